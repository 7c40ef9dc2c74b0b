//! Files of the dashboard, embedded in the program: `web` and `published` in the repository.
//!
//! They hold no figures and need no token. The page shows figures once it has the token, which it
//! takes from the fragment of its address; browsers send no fragment.

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// A file of the dashboard.
pub(super) struct File {
    /// Path of the request.
    pub(super) path: &'static str,
    media_type: &'static str,
    contents: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! file {
    ($media_type:expr, $name:literal) => {
        File {
            path: concat!("/web/", $name),
            media_type: $media_type,
            contents: include_bytes!(concat!("../../../web/", $name)),
        }
    };
}

/// A table of published measurements.
macro_rules! published {
    ($name:literal) => {
        File {
            path: concat!("/web/published/", $name),
            media_type: CSV,
            contents: include_bytes!(concat!("../../../published/", $name)),
        }
    };
}

/// All files.
pub(super) static FILES: [File; 31] = [
    File { path: "/", ..file!(HTML, "index.html") },
    File { path: "/plan.html", ..file!(HTML, "plan.html") },
    File { path: "/lab.html", ..file!(HTML, "lab.html") },
    file!(STYLE, "style.css"),
    file!("image/svg+xml", "icon.svg"),
    file!(SCRIPT, "main.js"),
    file!(SCRIPT, "feed.js"),
    file!(SCRIPT, "model.js"),
    file!(SCRIPT, "format.js"),
    file!(SCRIPT, "dom.js"),
    file!(SCRIPT, "theme.js"),
    file!(SCRIPT, "dials.js"),
    file!(SCRIPT, "house.js"),
    file!(SCRIPT, "tables.js"),
    file!(SCRIPT, "events.js"),
    file!(SCRIPT, "charts.js"),
    file!(SCRIPT, "recording.js"),
    file!(SCRIPT, "change.js"),
    file!(SCRIPT, "table.js"),
    file!(SCRIPT, "plot.js"),
    file!(SCRIPT, "login.js"),
    file!(SCRIPT, "plan.js"),
    file!(SCRIPT, "lab.js"),
    file!(SCRIPT, "results.js"),
    file!(SCRIPT, "published.js"),
    file!(SCRIPT, "uplot/uPlot.iife.min.js"),
    file!(STYLE, "uplot/uPlot.min.css"),
    file!(TEXT, "uplot/LICENSE"),
    published!("nfv_dpdk_forwarding.csv"),
    published!("nfv_netperf_tcp.csv"),
    published!("headlines.csv"),
];

/// Headers of each file, beside those of all responses. The policy permits scripts, styles and
/// requests of this origin only, and no script or style within the page.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// `true` if a file has this path.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

impl IntoResponse for &'static File {
    fn into_response(self) -> Response {
        let mut response = Response::new(Bytes::from_static(self.contents).into());
        let media_type = (header::CONTENT_TYPE, self.media_type);
        for (name, value) in HEADERS.into_iter().chain([media_type]) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

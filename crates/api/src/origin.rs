//! Protection of the API from pages of other sites that run in an operator's browser.
//!
//! # Model
//! A browser sends requests for any page to any address that it can reach, such as a loopback
//! address or a UNIX socket that `ssh -L` forwards. It names the page's site in two headers:
//! - `Host` is the name in the page's address. A site can have its own name resolve to 127.0.0.1
//!   (DNS rebinding), so names other than the daemon's are rejected. Over TLS the certificate
//!   protects the name, and any is accepted.
//! - `Origin` is the page's scheme and host. If present, it must be that of this request.
//!
//! # Limits
//! Other programs may leave out both; they are no browsers.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};

use super::error::ApiError;

/// Names of the daemon beside its addresses; clients of the UNIX socket use the second.
const NAMES: [&str; 2] = ["localhost", "shunt"];

/// Checks the headers of a request; `tls` if it came over TLS.
///
/// # Errors
/// The name is not the daemon's, or another site's page made the request.
pub(super) fn check(headers: &HeaderMap, tls: bool) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    if !tls && !host.is_empty() && !is_own(host) {
        return Err(ApiError::Host);
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let scheme: &[u8] = if tls { b"https://" } else { b"http://" };
    match origin.as_bytes().strip_prefix(scheme) {
        Some(site) if !site.is_empty() && site.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(ApiError::Origin),
    }
}

/// `true` for an address, or a name of the daemon, with or without a port.
fn is_own(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (&*host, ""),
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let is_named = NAMES.iter().any(|own| name.eq_ignore_ascii_case(own));
    port.bytes().all(|byte| byte.is_ascii_digit())
        && (is_named || address.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        headers
    }

    #[test]
    fn names_of_other_sites_are_rejected() {
        for own in ["localhost", "LOCALHOST:8080", "shunt", "127.0.0.1:80", "[::1]:80", "[::1]"] {
            assert!(check(&headers(own, None), false).is_ok(), "{own}");
        }
        let others = ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.x"];
        for other in others.into_iter().chain(["localhost:80@evil.example", "x", "[::1", ":"]) {
            let refused = check(&headers(other, None), false);
            assert!(matches!(refused, Err(ApiError::Host)), "{other}");
            assert!(check(&headers(other, None), true).is_ok(), "{other}: the certificate says it");
        }
        assert!(check(&HeaderMap::new(), false).is_ok(), "no browser");
    }

    #[test]
    fn pages_of_other_sites_are_rejected() {
        let own = [("localhost:1", "http://localhost:1", false), ("a.b", "https://a.b", true)];
        for (host, origin, tls) in own {
            assert!(check(&headers(host, Some(origin)), tls).is_ok(), "{origin}");
        }
        for (origin, tls) in [
            ("null", false),
            ("", false),
            ("http://", false),
            ("http://evil.example", false),
            ("http://localhost:2", false),
            ("https://localhost:1", false),
            ("http://localhost:1", true),
            ("http://localhost:1.evil.example", false),
        ] {
            let refused = check(&headers("localhost:1", Some(origin)), tls);
            assert!(matches!(refused, Err(ApiError::Origin)), "{origin}");
        }
        let mut none = headers("x", Some("http://"));
        none.remove(header::HOST);
        assert!(check(&none, false).is_err(), "an empty name matches nothing");
    }
}

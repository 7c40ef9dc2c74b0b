//! Captures, as the API serves them: the request, and the stream of the answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use engine::capture::{CaptureSpec, CaptureStream};
use hyper::body::{Body, Frame};
use model::state::Problem;
use port::capture::filter::Filter;
use port::capture::live::{Direction, SNAP_LENS};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Sleep, sleep};
use utoipa::ToSchema;

use crate::ApiError;
use crate::trace::TraceError;

/// Maximum number of captures at a time, of all clients. Each has a buffer of 16 MiB.
pub const CAPTURES_MAX: usize = 8;
/// Maximum number of ports of a request.
const PORTS_MAX: usize = 64;
/// Interval of reads while no frames come.
const READ_INTERVAL: Duration = Duration::from_millis(5);
/// Interval of reports of lost frames.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Request for a capture. The answer is a stream of pcapng, which ends when the client closes the
/// connection, or when the daemon stops or is hot-restarted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Ports, up to 64: adapters or tunnels, `uplink`, `pf` or `vf0`, or with their NIC as in
    /// `/v1/stats`, such as `nic0/vf0`. Empty for all, which requires `dropped`.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub ports: Vec<String>,
    /// Only frames that are dropped, with the reason as a comment.
    #[serde(default)]
    pub dropped: bool,
    /// Direction, seen from the port.
    #[serde(default)]
    pub direction: CaptureDirection,
    /// Only frames that match this expression, in a subset of the syntax of pcap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Bytes kept of a frame, 16 to 262144. Default: 262144.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16, maximum = 262_144)]
    pub snap_len: Option<u32>,
}

/// Direction of captured frames, seen from the port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CaptureDirection {
    /// Frames that the port's guest sends.
    In,
    /// Frames that the port's guest receives.
    Out,
    /// Both.
    #[default]
    Both,
}

/// Reason for which the data plane cannot begin a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A port is unknown.
    #[error("{error}")]
    Port {
        /// Its name.
        name: String,
        /// The reason.
        error: TraceError,
    },
    /// No memory is left.
    #[error(transparent)]
    Begin(#[from] port::capture::CaptureError),
}

impl CaptureRequest {
    /// The capture, with the ports as they are named in the request.
    ///
    /// # Errors
    /// A field is out of range, or the filter is wrong.
    pub(crate) fn spec(&self) -> Result<CaptureSpec, ApiError> {
        let wrong = |field: &str, value: Value, message: &str, remedy: String| {
            Err(ApiError::Wrong(Problem::new(field, value, message, remedy).into()))
        };
        let count = self.ports.len();
        if count > PORTS_MAX {
            let remedy = format!("name at most {PORTS_MAX}");
            return wrong("ports", count.into(), "ports are too many", remedy);
        }
        if count == 0 && !self.dropped {
            let remedy = "name a port, or set dropped for the dropped frames of all ports";
            return wrong("ports", Value::Array(Vec::new()), "is empty", remedy.into());
        }
        let snap_len = self.snap_len.unwrap_or(*SNAP_LENS.end());
        if !SNAP_LENS.contains(&snap_len) {
            let remedy = format!("choose {} to {}", SNAP_LENS.start(), SNAP_LENS.end());
            return wrong("snap_len", snap_len.into(), "is out of range", remedy);
        }
        let filter = match self.filter.as_deref().map(Filter::parse).transpose() {
            Ok(filter) => filter,
            Err(error) => {
                let text = self.filter.iter().flat_map(|text| text.chars().take(200));
                let shown = Value::String(text.collect());
                let remedy = "see docs/capture.md for the syntax";
                return wrong("filter", shown, &error.to_string(), remedy.into());
            }
        };
        let direction = match self.direction {
            CaptureDirection::In => Some(Direction::In),
            CaptureDirection::Out => Some(Direction::Out),
            CaptureDirection::Both => None,
        };
        let (ports, dropped) = (self.ports.clone(), self.dropped);
        Ok(CaptureSpec { ports, dropped, direction, filter, snap_len })
    }
}

impl CaptureError {
    /// As an error of the API.
    pub(crate) fn of_api(self) -> ApiError {
        match self {
            CaptureError::Port { name, error } => error.of(&name),
            CaptureError::Begin(error) => ApiError::NoCapture(error),
        }
    }
}

/// Body of the answer: reads the capture while the client takes it.
#[derive(Debug)]
pub(crate) struct CaptureBody {
    stream: CaptureStream,
    timer: Option<Pin<Box<Sleep>>>,
    next_report: Instant,
}

impl CaptureBody {
    pub(crate) fn new(stream: CaptureStream) -> CaptureBody {
        CaptureBody { stream, timer: None, next_report: Instant::now() + REPORT_INTERVAL }
    }
}

impl Body for CaptureBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(timer) = &mut self.timer {
                ready!(timer.as_mut().poll(context));
                self.timer = None;
            }
            let now = Instant::now();
            if now >= self.next_report {
                self.next_report = now + REPORT_INTERVAL;
                self.stream.report();
            }
            match self.stream.next_bytes() {
                None => return Poll::Ready(None),
                Some(bytes) if !bytes.is_empty() => {
                    return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
                }
                Some(_) => self.timer = Some(Box::pin(sleep(READ_INTERVAL))),
            }
        }
    }
}

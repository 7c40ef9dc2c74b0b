//! `shunt trace`: stages that a frame would take through a running daemon.

use std::path::PathBuf;

use anyhow::Result;
use api::Method;
use api::hex::{from_hex, to_hex};
use api::trace::{
    BYTES_MAX, FRAMES_MAX, FrameTrace, TraceAnswer, TraceDelivery, TraceDrop, TraceResult,
    TraceStage,
};
use serde_json::json;

use super::client::DaemonArgs;
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{table, wrapped};

/// Bytes of a delivered frame that the table shows: both addresses, tags and a type.
const SHOWN_BYTES: usize = 22;

/// Show the stages that a frame would take from a port, and its result: receivers, or the drop
/// reason.
///
/// The daemon forwards the frame with the code and the tables that its lanes use, but between ports
/// that only record. So nothing is sent, learned, charged or counted. The stages show each check,
/// the VLAN, the table entry that matched, and the limits in force.
#[derive(Debug, clap::Args)]
#[command(add = Title("stages that a frame would take, and its result"))]
#[command(after_help = "\
Examples:
  shunt trace web --frame 'ffffffffffff 020000000001 0806'   a broadcast from adapter web
  shunt trace uplink --frame 02:00:00:00:00:01:02:00:00:00:00:99:81:00:00:0a:08:00
                                                             a frame of VLAN 10 from the wire
  shunt trace web --pcap lost.pcapng --count 3               the first frames of a capture
  shunt trace web --pcap lost.pcapng --json                  with the delivered bytes

A short frame is enough, unless an ACL or guard needs its headers. Each frame is traced by itself:
the switch knows only what it has learned from real frames.")]
pub(crate) struct Trace {
    /// Port at which the frame enters: an adapter, a tunnel, vf0, pf, uplink, or NIC/port.
    #[arg(add = complete::counted_port())]
    port: String,
    /// Frame in hexadecimal digits, from the destination address, without FCS. Blanks, colons and
    /// hyphens are ignored. May be repeated.
    #[arg(long, value_name = "HEX", value_parser = frame, required_unless_present = "pcap")]
    frame: Vec<Bytes>,
    /// Frames of a pcap or pcapng file.
    #[arg(long, value_name = "FILE", conflicts_with = "frame")]
    pcap: Option<PathBuf>,
    /// Trace only the first N frames of the file.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "pcap",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    #[command(flatten)]
    target: DaemonArgs,
}

/// Bytes of a frame.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

fn frame(text: &str) -> Result<Bytes, String> {
    let digits: String = text.chars().filter(|c| !matches!(c, ' ' | ':' | '-' | '.')).collect();
    let bytes = from_hex(&digits).filter(|bytes| !bytes.is_empty());
    bytes.map(Bytes).ok_or_else(|| {
        "expected two hexadecimal digits a byte, such as \"ffffffffffff 020000000001 0806\""
            .to_owned()
    })
}

impl Trace {
    pub(crate) fn run(self) -> Result<()> {
        let frames = self.frames()?;
        let mut answer = TraceAnswer { port: self.port.clone(), frames: Vec::new() };
        for batch in batches(&frames) {
            let frames: Vec<String> = batch.iter().map(|frame| to_hex(frame)).collect();
            let request = json!({"port": self.port, "frames": frames});
            let reply = self.target.send(Method::POST, "/v1/trace", Some(&request), None)?;
            let part: TraceAnswer = serde_json::from_value(reply.body)?;
            answer.port = part.port;
            answer.frames.extend(part.frames);
        }
        self.target.show(&serde_json::to_value(&answer)?, |_| {
            let traces = answer.frames.iter().zip(&frames).enumerate();
            let each = traces.map(|(n, (trace, frame))| text(n + 1, trace, frame));
            each.collect::<Vec<_>>().join("\n")
        })
    }

    /// Frames of the command line, or of the file.
    fn frames(&self) -> Result<Vec<Vec<u8>>> {
        let Some(file) = &self.pcap else {
            return Ok(self.frame.iter().map(|Bytes(bytes)| bytes.clone()).collect());
        };
        let read = port::pcap::read_frames(file, self.count as usize);
        read.map_err(|error| {
            UsageError::option("--pcap", file.display().to_string(), &error.to_string(), "").into()
        })
    }
}

/// Frames in requests that the API allows.
fn batches(frames: &[Vec<u8>]) -> Vec<&[Vec<u8>]> {
    let mut batches = Vec::new();
    let mut rest = frames;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |frame: &&Vec<u8>| {
            bytes += frame.len();
            bytes <= BYTES_MAX
        };
        // A frame that is too long by itself is sent alone, and refused with the limit.
        let count = rest.iter().take(FRAMES_MAX).take_while(fits).count().max(1);
        let (batch, behind) = rest.split_at(count);
        batches.push(batch);
        rest = behind;
    }
    batches
}

/// A trace as text.
fn text(number: usize, trace: &FrameTrace, frame: &[u8]) -> String {
    let FrameTrace { stages, deliveries, drops, limits, .. } = trace;
    let mut text = format!("frame {number}: {}\n", summary(frame));
    let rows = stages.iter().flat_map(rows);
    text += &table(["stage", "from", "rule", "result", "detail"], rows.collect());
    if !limits.is_empty() {
        let limits = limits.iter().map(|limit| format!("{} {}", limit.setting, limit.value));
        text += &format!("limits of the sender: {}\n", limits.collect::<Vec<_>>().join(", "));
    }
    if !deliveries.is_empty() {
        let row = |delivery: &TraceDelivery| {
            let TraceDelivery { port, path, waits, edit, bytes, frame } = delivery;
            let path = if *waits { format!("{path} (waits)") } else { path.clone() };
            let shown = frame.get(..2 * SHOWN_BYTES).unwrap_or(frame);
            [port.clone(), path, edit.clone(), bytes.to_string(), shown.to_owned()]
        };
        let header = ["to", "path", "tag edit", "bytes", "begins with"];
        text += &table(header, deliveries.iter().map(row).collect());
    } else if drops.is_empty() {
        text += "no port receives it, and no drop is counted\n";
    }
    for TraceDrop { port, counter, meaning, cause, remedy, .. } in drops {
        text += &wrapped(&format!("dropped: {counter} of {port}. {meaning}"));
        text += &wrapped(&format!("  likely cause: {cause}"));
        text += &wrapped(&format!("  remedy: {remedy}"));
    }
    text
}

/// Rows of a stage.
fn rows(stage: &TraceStage) -> Vec<[String; 5]> {
    let steps = stage.steps.iter().map(|step| {
        let result = match (step.result, &step.reason) {
            (TraceResult::Passed, _) => "passed".to_owned(),
            (TraceResult::Off, _) => "off".to_owned(),
            (TraceResult::Dropped, reason) => reason.clone().unwrap_or_default(),
        };
        [stage.stage.clone(), stage.from.clone(), step.rule.clone(), result, step.detail.clone()]
    });
    steps.collect()
}

/// Addresses, type and length of a frame.
fn summary(frame: &[u8]) -> String {
    let len = frame.len();
    match wire::FrameHeader::of_frame(frame) {
        Err(_) => format!("{len} bytes, shorter than an Ethernet header"),
        Ok(header) => {
            let kind = header.tpid_or_type();
            format!("{} to {}, type {kind:#06x}, {len} bytes", header.src(), header.dst())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_with_usual_separators() {
        for text in ["0102ff", "01:02:FF", "01-02-ff", "0102.ff", " 01 02 ff "] {
            let Bytes(bytes) = frame(text).unwrap();
            assert_eq!(bytes, [1, 2, 255], "{text}");
        }
        for text in ["", " ", "012", "0g", "0x01"] {
            assert!(frame(text).unwrap_err().contains("two hexadecimal digits"), "{text}");
        }
    }

    #[test]
    fn requests_are_within_the_limits_of_the_api() {
        let of = |len: usize, count: usize| vec![vec![0; len]; count];
        let counts = |frames: Vec<Vec<u8>>| -> Vec<usize> {
            batches(&frames).iter().map(|batch| batch.len()).collect()
        };
        assert_eq!(counts(of(60, 130)), [64, 64, 2]);
        assert_eq!(counts(of(1500, 50)), [43, 7]);
        assert_eq!(counts(of(BYTES_MAX, 2)), [1, 1]);
        assert_eq!(counts(of(BYTES_MAX + 1, 2)), [1, 1]);
    }
}

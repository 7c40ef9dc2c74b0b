//! `shunt capture`: frames at the ports of a running daemon.

mod extcap;
mod line;

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::capture::{CaptureDirection, CaptureRequest};
use api::{Method, StreamPart};
use clap::ValueEnum;
use port::capture::live::{LiveBlock, LiveFrame, LiveParser};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::client::DaemonArgs;
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::stats::seconds;
use extcap::ExtcapArgs;
use line::Row;

/// Interval of looks at signals and at the time.
const LOOK: Duration = Duration::from_millis(100);

/// Capture frames at ports, or dropped frames with their reasons.
///
/// Without -w each frame is a line: time, port, direction, addresses, and the reason if it is
/// dropped. With -w the frames go to a file or a pipe as pcapng, for Wireshark, tshark and tcpdump,
/// with path, VF and drop reason as comments. Directions are seen from the port: in is what its
/// guest sends. Ends with Ctrl-C.
///
/// A slow reader loses frames, which are counted at the end; guests lose none. While a port is
/// captured, the frames of its NIC take the slower way through the daemon.
#[derive(Debug, clap::Args)]
#[command(add = Title("frames at ports, or dropped frames with their reasons"))]
#[command(after_help = "\
Examples:
  shunt capture web                       frames of adapter web, one a line
  shunt capture --dropped                 dropped frames of all ports, with their reasons
  shunt capture web db --filter 'tcp port 443' -w web.pcapng
                                          HTTPS of two adapters to a file
  shunt capture uplink -w - | tshark -r - -V
                                          all details of the frames on the wire
  ssh host shunt capture web -w - | wireshark -k -i -
                                          live in Wireshark, of another host
  shunt capture web --frames 100 --json   the first hundred, one JSON object a line

Filters are a subset of the syntax of pcap: docs/capture.md. Wireshark lists the ports as interfaces
with deploy/wireshark/shunt in its extcap directory.")]
pub(crate) struct Capture {
    /// Ports: an adapter, a tunnel, vf0, pf, uplink, or NIC/port.
    #[arg(value_name = "PORT", add = complete::counted_port(),
        required_unless_present_any = ["dropped", "extcap_interfaces", "extcap_dlts",
            "extcap_config", "extcap_capture_filter", "capture"])]
    ports: Vec<String>,
    /// Only frames that are dropped; of all ports if none is named.
    #[arg(long)]
    dropped: bool,
    /// Direction, seen from the port.
    #[arg(long, value_name = "DIR", default_value = "both")]
    dir: Direction,
    /// Only frames that match, in the syntax of pcap.
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Bytes kept of each frame, 16 to 262144 [default: 262144].
    #[arg(long, value_name = "BYTES")]
    snap_len: Option<u32>,
    /// End after N frames.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    frames: Option<u64>,
    /// End after S seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Write pcapng to FILE; - for standard output.
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    extcap: ExtcapArgs,
    #[command(flatten)]
    target: DaemonArgs,
}

/// Direction of frames.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// Frames that the port's guest sends
    In,
    /// Frames that it receives
    Out,
    /// Both
    Both,
}

impl From<Direction> for CaptureDirection {
    fn from(direction: Direction) -> CaptureDirection {
        match direction {
            Direction::In => CaptureDirection::In,
            Direction::Out => CaptureDirection::Out,
            Direction::Both => CaptureDirection::Both,
        }
    }
}

/// Output of frames.
enum Sink {
    Pcapng(Box<dyn Write>),
    Text,
    Json,
}

impl Sink {
    fn write(&mut self, block: &LiveBlock) -> io::Result<()> {
        let row = |frame: &LiveFrame| match self {
            Sink::Json => serde_json::to_string(&Row::of(frame)).map(|text| text + "\n"),
            _ => Ok(format!("{}\n", Row::of(frame))),
        };
        let line = block.frame.as_ref().map(row).transpose()?;
        match (self, line) {
            (Sink::Pcapng(file), _) => file.write_all(&block.bytes),
            (_, Some(line)) => io::stdout().write_all(line.as_bytes()),
            (_, None) => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Pcapng(file) => file.flush(),
            Sink::Text | Sink::Json => io::stdout().flush(),
        }
    }
}

/// Reason for the end of a capture.
enum End {
    /// A limit, a signal, or the reader of the output.
    Ours,
    Daemon,
}

impl Capture {
    pub(crate) fn run(mut self) -> Result<()> {
        if let Some(answer) = self.extcap.answer(&self.target)? {
            return Ok(crate::text::print(&answer)?);
        }
        if self.take_extcap()? {
            // Wireshark shows what comes on standard error as an error.
            return self.copy(&mut Totals::default()).map(drop);
        }
        let to_terminal = self.write.as_ref().is_some_and(|path| path.as_os_str() == "-")
            && io::stdout().is_terminal();
        if to_terminal {
            let remedy = "pipe it into tshark or Wireshark, or name a file";
            return Err(UsageError::option("-w", "-", "is a terminal", remedy).into());
        }
        let mut totals = Totals::default();
        let ended = self.copy(&mut totals);
        let Totals { frames, lost, begun } = totals;
        if begun {
            eprintln!("shunt: {frames} frames captured, {lost} lost");
        }
        if let End::Daemon = ended? {
            eprintln!("shunt: the daemon has ended the capture: it stops, or was hot-restarted");
        }
        Ok(())
    }

    fn request(&self) -> CaptureRequest {
        CaptureRequest {
            ports: self.ports.clone(),
            dropped: self.dropped,
            direction: self.dir.into(),
            filter: self.filter.clone(),
            snap_len: self.snap_len,
        }
    }

    /// Output that the options name.
    fn sink(&self) -> Result<Sink> {
        let Some(path) = &self.write else {
            return Ok(if self.target.json { Sink::Json } else { Sink::Text });
        };
        if path.as_os_str() == "-" {
            return Ok(Sink::Pcapng(Box::new(io::stdout())));
        }
        // Frames are for the operator only.
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Sink::Pcapng(Box::new(file)))
    }

    /// Copies frames from the daemon to the output, which is opened once the daemon has agreed.
    fn copy(&self, totals: &mut Totals) -> Result<End> {
        let stop = stop_flag()?;
        let request = serde_json::to_value(self.request())?;
        let mut stream = self.target.stream(Method::POST, "/v1/capture", &request)?;
        let mut sink = self.sink()?;
        totals.begun = true;
        let until = self.seconds.map(|time| Instant::now() + time);
        let mut parser = LiveParser::default();
        while !stop.load(Ordering::Relaxed) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            match stream.next(left.unwrap_or(LOOK).min(LOOK))? {
                StreamPart::Nothing => continue,
                StreamPart::End => return Ok(End::Daemon),
                StreamPart::Bytes(bytes) => parser.add(&bytes),
            }
            let mut is_full = false;
            while let Some(block) = parser.next_block()?.filter(|_| !is_full) {
                totals.add(&block);
                if ends(sink.write(&block))? {
                    return Ok(End::Ours);
                }
                is_full = self.frames.is_some_and(|most| totals.frames >= most);
            }
            if ends(sink.flush())? || is_full {
                break;
            }
        }
        Ok(End::Ours)
    }
}

/// Counts of a capture.
#[derive(Default)]
struct Totals {
    frames: u64,
    lost: u64,
    /// The capture has begun.
    begun: bool,
}

impl Totals {
    fn add(&mut self, block: &LiveBlock) {
        if let Some(frame) = &block.frame {
            self.frames += 1;
            self.lost += frame.missed;
        }
        // The daemon's total is right at its time, and frames after it tell what they miss.
        self.lost = block.lost.unwrap_or(0).max(self.lost);
    }
}

/// Returns `true` if the reader of the output has closed it.
fn ends(written: io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("the capture cannot be written; free space for it"),
    }
}

/// Flag that SIGINT and SIGTERM set; the second ends the process.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

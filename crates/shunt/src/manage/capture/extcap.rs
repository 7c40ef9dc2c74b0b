//! Wireshark's interface for capture programs (extcap): lists ports as interfaces.
//!
//! Wireshark starts `deploy/wireshark/shunt` with options of its own, which are hidden options of
//! `shunt capture`: to list interfaces, their link type and settings, to check a filter, and to
//! capture into a named pipe
//! (<https://www.wireshark.org/docs/wsdg_html_chunked/ChCaptureExtcap.html>).

use std::path::PathBuf;

use anyhow::Result;
use api::stats;
use port::capture::filter::Filter;

use super::super::client::DaemonArgs;
use super::Capture;
use crate::error::UsageError;

/// Interface for the dropped frames of all ports.
const DROPPED: &str = "shunt-dropped";

/// Options that Wireshark passes.
#[derive(Debug, clap::Args)]
pub(super) struct ExtcapArgs {
    /// List interfaces.
    #[arg(long, hide = true)]
    extcap_interfaces: bool,
    /// Version of Wireshark.
    #[arg(long, hide = true, value_name = "ID")]
    extcap_version: Option<String>,
    /// List link types of an interface.
    #[arg(long, hide = true, requires = "extcap_interface")]
    extcap_dlts: bool,
    /// List settings of an interface.
    #[arg(long, hide = true, requires = "extcap_interface")]
    extcap_config: bool,
    /// Interface.
    #[arg(long, hide = true, value_name = "ID")]
    extcap_interface: Option<String>,
    /// Capture into a named pipe.
    #[arg(long, hide = true, requires = "fifo")]
    capture: bool,
    /// Named pipe.
    #[arg(long, hide = true, value_name = "FILE", requires = "extcap_interface")]
    fifo: Option<PathBuf>,
    /// Capture filter of Wireshark; to be checked, without `capture`.
    #[arg(long, hide = true, value_name = "EXPR", requires = "extcap_interface")]
    extcap_capture_filter: Option<String>,
}

/// Settings of an interface, as options of `shunt capture`.
const CONFIG: &str = "\
arg {number=0}{call=--dir}{display=Direction}{type=selector}{tooltip=Seen from the port}
value {arg=0}{value=both}{display=Both}{default=true}
value {arg=0}{value=in}{display=In: what the guest sends}{default=false}
value {arg=0}{value=out}{display=Out: what the guest receives}{default=false}
arg {number=1}{call=--filter}{display=Filter}{type=string}{tooltip=In the syntax of pcap}
arg {number=2}{call=--snap-len}{display=Bytes kept of a frame}{type=unsigned}{range=16,262144}{default=262144}
arg {number=3}{call=--dropped}{display=Dropped frames only}{type=boolflag}{default=false}
arg {number=4}{call=--run-dir}{display=Run directory}{type=string}{tooltip=Of the daemon, if several run}
";

impl ExtcapArgs {
    /// Answer to a question of Wireshark, if the options are one.
    pub(super) fn answer(&self, target: &DaemonArgs) -> Result<Option<String>> {
        if self.extcap_interfaces {
            return Ok(Some(interfaces(target)));
        }
        if self.extcap_dlts {
            return Ok(Some("dlt {number=1}{name=EN10MB}{display=Ethernet}\n".to_owned()));
        }
        if self.extcap_config {
            return Ok(Some(CONFIG.to_owned()));
        }
        let checked = self.extcap_capture_filter.as_deref().filter(|_| !self.capture);
        Ok(checked.map(verdict))
    }
}

/// The error of a filter; empty for a good one, and for none.
fn verdict(filter: &str) -> String {
    let checked = if filter.trim().is_empty() { None } else { Filter::parse(filter).err() };
    checked.map_or(String::new(), |error| format!("{error}\n"))
}

/// Interfaces: a port each. Without a daemon there are none, which is no error: Wireshark asks at
/// each start.
fn interfaces(target: &DaemonArgs) -> String {
    let mut text = format!("extcap {{version={}}}{{display=Shunt}}\n", env!("CARGO_PKG_VERSION"));
    let stats = target.daemon.path().and_then(|run_dir| {
        anyhow::ensure!(stats::is_running(run_dir)?, "no daemon runs");
        stats::read(run_dir)
    });
    let Ok(stats) = stats else { return text };
    for port in stats.ports {
        text += &format!("interface {{value={0}}}{{display=Shunt {0}}}\n", port.name);
    }
    text + &format!("interface {{value={DROPPED}}}{{display=Shunt: dropped frames}}\n")
}

impl Capture {
    /// Takes the capture that Wireshark asks for, with its named pipe in place of a file; `false`
    /// if it does not.
    pub(super) fn take_extcap(&mut self) -> Result<bool> {
        if !self.extcap.capture {
            return Ok(false);
        }
        let ExtcapArgs { extcap_interface, fifo, extcap_capture_filter, .. } = &mut self.extcap;
        let (Some(interface), Some(fifo)) = (extcap_interface.take(), fifo.take()) else {
            return Ok(false);
        };
        if self.write.is_some() || !self.ports.is_empty() {
            let message = "takes neither ports nor -w";
            return Err(UsageError::option("--fifo", "", message, "leave them out").into());
        }
        self.write = Some(fifo);
        match &*interface {
            DROPPED => self.dropped = true,
            _ => self.ports.push(interface),
        }
        // Wireshark passes an empty text for none.
        let is_set = |text: &String| !text.trim().is_empty();
        let filters = [self.filter.take(), extcap_capture_filter.take()].into_iter().flatten();
        let mut filters: Vec<String> = filters.filter(is_set).collect();
        if filters.len() > 1 {
            filters = vec![format!("({}) and ({})", filters[0], filters[1])];
        }
        self.filter = filters.pop();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `shunt capture` alone.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        capture: Capture,
    }

    fn parse(words: &[&str]) -> Capture {
        let line = Line::try_parse_from(std::iter::once(&"shunt").chain(words));
        line.expect("what Wireshark writes").capture
    }

    /// As Wireshark asks while a filter is typed: no output for a good one.
    #[test]
    fn filters_are_checked() {
        for (filter, told) in [
            ("tcp port 80", ""),
            ("", ""),
            ("tcp port http", "column 10: \"http\" is no port"),
            ("tcp and", "column 8: a term is missing"),
        ] {
            let capture =
                parse(&["--extcap-capture-filter", filter, "--extcap-interface", "nic0/web"]);
            let answer = capture.extcap.answer(&capture.target).unwrap().expect("an answer");
            assert!(answer.starts_with(told) && answer.is_empty() == told.is_empty(), "{answer}");
            assert!(answer.matches('\n').count() <= 1, "Wireshark shows the first line");
        }
    }

    #[test]
    fn a_capture_has_both_filters() {
        let mut capture = parse(&[
            "--capture",
            "--extcap-interface",
            "shunt-dropped",
            "--fifo",
            "/pipe",
            "--filter",
            "tcp or udp",
            "--extcap-capture-filter",
            "port 53",
        ]);
        assert!(capture.extcap.answer(&capture.target).unwrap().is_none());
        assert!(capture.take_extcap().unwrap());
        assert_eq!(capture.filter.as_deref(), Some("(tcp or udp) and (port 53)"));
        assert!(capture.dropped && capture.ports.is_empty());
    }
}

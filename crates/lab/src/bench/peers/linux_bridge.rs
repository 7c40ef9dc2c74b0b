//! The kernel's bridge between two interfaces.
//!
//! # Model
//! The bridge has no process and no thread: the kernel forwards a frame in its sender's system
//! call, or in a soft interrupt that follows on the same CPU. So its cycles are the kernel time of
//! the guest's CPU in `/proc/stat`, times the rate of the time-stamp counter. That includes the
//! guest's side of its ports, which cannot be separated: the system call, both veth pairs, and the
//! copies into and out of AF_PACKET rings.
//!
//! # Limits
//! - `/proc/stat` counts in steps of 10 ms, and includes the kernel time of all processes on that
//!   CPU.
//! - Only the guest's CPU is read: receive packet steering (RPS), off in a new namespace, would
//!   move frames to other CPUs.

use std::fs;

use anyhow::{Context, Result};
use host::links::Links;
use traffic::netns;

use super::Veths;

/// Two ports of the bridge in the lab's namespace.
#[derive(Debug)]
pub struct LinuxBridge {
    ports: [String; 2],
}

impl LinuxBridge {
    /// Makes interfaces ports of the bridge, which then forwards.
    ///
    /// # Errors
    /// The kernel has no bridge, or rejects an interface as port.
    pub fn start(veths: &Veths) -> Result<LinuxBridge> {
        let bridge = netns::bridge()?;
        let mut links = Links::open()?;
        veths.switch.iter().try_for_each(|port| links.join(port, bridge))?;
        Ok(LinuxBridge { ports: veths.switch.clone() })
    }

    /// Frames sent by its ports.
    ///
    /// # Errors
    /// The kernel's statistics cannot be read.
    pub fn frames(&self) -> Result<u64> {
        const FILE: &str = "/proc/thread-self/net/dev";
        let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
        let sent = |port: &String| {
            sent(&text, port).with_context(|| format!("{FILE} has no interface {port}"))
        };
        self.ports.iter().map(sent).sum()
    }
}

/// Frames sent by an interface: the tenth number of its line.
fn sent(text: &str, port: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(port)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_sent_are_the_tenth_number_of_the_interface() {
        let text = "Inter-|   Receive  |  Transmit\n\
                    port10: 9 8 0 0 0 0 0 0 7 6 0 0 0 0 0 0\n \
                    port1: 5 4 0 0 0 0 0 0 3 2 0 0 0 0 0 0\n";
        assert_eq!(sent(text, "port1"), Some(2));
        assert_eq!(sent(text, "port10"), Some(6));
        assert_eq!(sent(text, "port2"), None);
    }
}

//! A captured frame as a line of text, or as an object of JSON.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use api::hex::to_hex;
use port::capture::live::{Direction, LiveFrame};
use serde::Serialize;
use wire::vlan::is_tpid;
use wire::{FrameHeader, IpVersion, Layers, ethernet, ipv4, ipv6};

/// A captured frame, field by field.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Time in ns since 1970.
    time_ns: u64,
    /// Port, as in `/v1/stats`.
    port: String,
    /// `in` or `out`, seen from the port.
    direction: &'static str,
    /// Path of the port.
    path: Option<String>,
    /// Number of its VF.
    vf: Option<u16>,
    /// Counter of the drop.
    dropped: Option<String>,
    /// Meaning of the drop's reason.
    meaning: Option<String>,
    /// `true` if the frame waits in the daemon.
    waits: bool,
    src: Option<String>,
    dst: Option<String>,
    /// VLANs of the tags, the outer first.
    vlans: Vec<u16>,
    /// Type behind the tags.
    ethertype: Option<u16>,
    /// IP addresses, protocol and ports.
    packet: Option<String>,
    /// Bytes of the frame.
    bytes: u32,
    /// Bytes that were kept, in hexadecimal digits.
    frame: String,
    /// Frames lost before it.
    lost: u64,
}

impl Row {
    pub(super) fn of(frame: &LiveFrame) -> Row {
        let mut row = Row {
            time_ns: frame.time.as_nanos() as u64,
            port: frame.port.clone(),
            direction: match frame.direction {
                Direction::In => "in",
                Direction::Out => "out",
            },
            path: None,
            vf: None,
            dropped: None,
            meaning: None,
            waits: false,
            src: None,
            dst: None,
            vlans: Vec::new(),
            ethertype: None,
            packet: packet(&frame.bytes, frame.len),
            bytes: frame.len,
            frame: to_hex(&frame.bytes),
            lost: frame.missed,
        };
        for comment in &frame.comments {
            if let Some(rest) = comment.strip_prefix("path ") {
                let (path, vf) = rest.split_once(", VF ").unwrap_or((rest, ""));
                (row.path, row.vf) = (Some(path.to_owned()), vf.parse().ok());
            } else if let Some(rest) = comment.strip_prefix("dropped: ") {
                let (name, meaning) = rest.split_once(": ").unwrap_or((rest, ""));
                (row.dropped, row.meaning) = (Some(name.to_owned()), Some(meaning.to_owned()));
            } else if comment.starts_with("waits: ") {
                row.waits = true;
            }
        }
        if let Ok(header) = FrameHeader::of_frame(&frame.bytes) {
            (row.src, row.dst) = (Some(header.src().to_string()), Some(header.dst().to_string()));
            let word = |at: usize| {
                frame.bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
            };
            let mut at = 12;
            while let (Some(tpid), Some(tci)) = (word(at), word(at + 2))
                && is_tpid(tpid)
            {
                row.vlans.push(tci & 0xfff);
                at += 4;
            }
            row.ethertype = word(at);
        }
        row
    }
}

/// IP addresses, protocol and ports of a frame.
fn packet(bytes: &[u8], len: u32) -> Option<String> {
    let layers = Layers::of(bytes, len as usize).ok()?;
    let address = |at: usize| {
        let at = layers.network + at;
        Some(match layers.version {
            IpVersion::V4 => Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?).to_string(),
            IpVersion::V6 => Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?).to_string(),
        })
    };
    let [src, dst] = match layers.version {
        IpVersion::V4 => [address(12)?, address(16)?],
        IpVersion::V6 => [address(8)?, address(24)?],
    };
    let port = |at: usize| {
        let bytes = bytes.get(layers.upper + at..)?.first_chunk::<2>()?;
        Some(format!(".{}", u16::from_be_bytes(*bytes)))
    };
    let (name, has_ports) = match layers.protocol {
        ipv4::PROTOCOL_TCP => ("tcp".to_owned(), true),
        ipv4::PROTOCOL_UDP => ("udp".to_owned(), true),
        132 => ("sctp".to_owned(), true),
        1 => ("icmp".to_owned(), false),
        ipv6::PROTOCOL_ICMPV6 => ("icmp6".to_owned(), false),
        other => (format!("protocol {other}"), false),
    };
    let has_ports = has_ports && layers.is_whole;
    let of = |at| port(at).filter(|_| has_ports).unwrap_or_default();
    Some(format!("{src}{} > {dst}{} {name}", of(0), of(2)))
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time_ns / 1_000_000_000 % 86_400;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let micros = self.time_ns / 1000 % 1_000_000;
        write!(f, "{hours:02}:{minutes:02}:{:02}.{micros:06}Z ", seconds % 60)?;
        write!(f, "{} {:<3} ", self.port, self.direction)?;
        if let (Some(src), Some(dst)) = (&self.src, &self.dst) {
            write!(f, "{src} > {dst}, ")?;
        }
        for vlan in &self.vlans {
            write!(f, "vlan {vlan}, ")?;
        }
        match (&self.packet, self.ethertype) {
            (Some(packet), _) => write!(f, "{packet}, ")?,
            (None, Some(ethernet::TYPE_ARP)) => write!(f, "arp, ")?,
            (None, Some(ethertype)) => write!(f, "type {ethertype:#06x}, ")?,
            (None, None) => {}
        }
        write!(f, "{} bytes", self.bytes)?;
        if let Some(dropped) = &self.dropped {
            let meaning = self.meaning.as_deref().unwrap_or_default();
            write!(f, ", dropped: {dropped}: {meaning}")?;
        }
        if self.waits {
            write!(f, ", waits in the daemon")?;
        }
        if self.lost > 0 {
            write!(f, " ({} frames lost before it)", self.lost)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn shown(bytes: &[u8], comments: &[&str]) -> String {
        let frame = LiveFrame {
            time: Duration::new(45_296, 7_000),
            port: "nic0/web".into(),
            direction: Direction::In,
            len: bytes.len() as u32,
            bytes: bytes.to_vec(),
            comments: comments.iter().map(|text| (*text).to_owned()).collect(),
            missed: 0,
        };
        Row::of(&frame).to_string()
    }

    #[test]
    fn a_line_shows_what_a_frame_is() {
        let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let begin = "12:34:56.000007Z nic0/web in  02:00:00:00:00:01 > 02:00:00:00:00:02, ";
        let arp = [&macs[..], &[0x81, 0, 0x20, 5, 8, 6], &[0; 28]].concat();
        assert_eq!(shown(&arp, &[]), format!("{begin}vlan 5, arp, 46 bytes"));
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let udp = [&macs[..], &[8, 0], &ip, &[0, 53, 1, 0, 0, 8, 0, 0]].concat();
        let packet = "10.0.0.1.53 > 10.0.0.2.256 udp, 42 bytes";
        assert_eq!(shown(&udp, &["path vf, VF 3"]), format!("{begin}{packet}"));
        let dropped = shown(&udp, &["path vf, VF 3", "dropped: tx_rule: A rule drops it."]);
        assert_eq!(dropped, format!("{begin}{packet}, dropped: tx_rule: A rule drops it."));
        assert_eq!(shown(&[1, 2], &[]), "12:34:56.000007Z nic0/web in  2 bytes");
        let other = [&macs[..], &[0x88, 0xb5]].concat();
        assert_eq!(shown(&other, &[]), format!("{begin}type 0x88b5, 14 bytes"));
    }

    #[test]
    fn json_has_the_comments_as_fields() {
        let frame = LiveFrame {
            time: Duration::from_secs(1),
            port: "nic0/vf3".into(),
            direction: Direction::Out,
            len: 60,
            bytes: vec![0; 20],
            comments: vec!["path vf, VF 3".into(), "dropped: rx_down: No ring.".into()],
            missed: 2,
        };
        let json = serde_json::to_value(Row::of(&frame)).unwrap();
        assert_eq!(json["path"], "vf");
        assert_eq!(json["vf"], 3);
        assert_eq!(json["dropped"], "rx_down");
        assert_eq!(json["meaning"], "No ring.");
        assert_eq!((&json["bytes"], &json["lost"]), (&60.into(), &2.into()));
        assert_eq!(json["frame"].as_str().unwrap().len(), 40);
    }
}

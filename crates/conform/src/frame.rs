//! Frames of the suite: probes with unique numbers, so that copies can be told apart.

use std::net::Ipv4Addr;

use wire::Mac;
use wire::ethernet::FRAME_LEN_MIN;
use wire::probe::{self, Mark, Probe};
use wire::vlan::{TAG_OFFSET, TPID_8021AD, TPID_8021Q, Tag};

/// Size of a long frame in bytes, without FCS.
pub(super) const LONG: usize = 1514;

/// Address with this number: locally administered and unique.
pub(super) const fn mac(number: u8) -> Mac {
    Mac([0x02, 0x5b, 0x00, 0xc0, 0x00, number])
}

/// Multicast group of which every guest on a card is a member.
pub(super) const GROUP: Mac = Mac([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);

/// A test frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TestFrame {
    /// Its bytes, without FCS.
    pub(super) bytes: Vec<u8>,
}

impl TestFrame {
    /// Untagged frame of minimum length with this number.
    pub(super) fn new(src: Mac, dst: Mac, sequence: u64) -> TestFrame {
        TestFrame::sized(src, dst, sequence, FRAME_LEN_MIN)
    }

    /// The same with this length, 60 to 1514.
    pub(super) fn sized(src: Mac, dst: Mac, sequence: u64, len: usize) -> TestFrame {
        // Addresses of the benchmark range (RFC 2544), and the discard port.
        let probe = Probe {
            dst,
            src,
            dst_ip: Ipv4Addr::new(198, 18, 0, 2),
            src_ip: Ipv4Addr::new(198, 18, 0, 1),
            dst_port: 9,
            src_port: 9,
        };
        let mut bytes = vec![0; len.max(FRAME_LEN_MIN)];
        probe.emit(Mark { sequence, stamp: 0 }, &mut bytes).expect("an allowed length");
        TestFrame { bytes }
    }

    /// The frame with a tag of this VLAN, priority 0.
    pub(super) fn tagged(&self, vid: u16) -> TestFrame {
        self.with(Tag { tpid: TPID_8021Q, pcp: 0, dei: false, vid })
    }

    /// The frame with a tag of this VLAN and priority.
    pub(super) fn with_priority(&self, vid: u16, pcp: u8) -> TestFrame {
        self.with(Tag { tpid: TPID_8021Q, pcp, dei: false, vid })
    }

    /// The frame with a service tag of this VLAN.
    pub(super) fn service_tagged(&self, vid: u16) -> TestFrame {
        self.with(Tag { tpid: TPID_8021AD, pcp: 0, dei: false, vid })
    }

    fn with(&self, tag: Tag) -> TestFrame {
        let mut bytes = self.bytes.clone();
        bytes.splice(TAG_OFFSET..TAG_OFFSET, tag.to_bytes());
        TestFrame { bytes }
    }

    /// Parses a received frame; `None` if it is not from the suite.
    pub(super) fn of(bytes: Vec<u8>) -> Option<TestFrame> {
        probe::mark(&bytes).map(|_| TestFrame { bytes })
    }

    /// Its number.
    pub(super) fn sequence(&self) -> u64 {
        probe::mark(&self.bytes).map_or(0, |mark| mark.sequence)
    }

    /// Its tag as text, for a detail.
    pub(super) fn tag_text(&self) -> String {
        match Tag::parse(&self.bytes) {
            Ok(Some(Tag { tpid: TPID_8021Q, vid, pcp: 0, .. })) => format!("tagged {vid}"),
            Ok(Some(Tag { tpid: TPID_8021Q, vid, pcp, .. })) => {
                format!("tagged {vid} with priority {pcp}")
            }
            Ok(Some(Tag { vid, .. })) => format!("service-tagged {vid}"),
            _ => "untagged".to_owned(),
        }
    }
}

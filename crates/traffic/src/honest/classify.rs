//! Classifies a received frame by its source address and bytes.

use wire::Mac;
use wire::probe::{self, Mark};

use super::guest::frame_len;
use crate::protocol::honest::HonestResult;

/// EtherType of probes.
const IPV4: [u8; 2] = wire::ethernet::TYPE_IPV4.to_be_bytes();

/// Class of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameClass {
    /// A probe, unchanged.
    Probe(Mark),
    /// A probe with changed bytes.
    Corrupted,
    /// Forged source address.
    Spoofed,
    /// Sender on another VLAN.
    Misplaced,
    /// Sender that may send to these guests.
    Foreign,
}

/// Addresses of all senders.
#[derive(Clone, Debug)]
pub(super) struct FrameClassifier {
    pub(super) honest: [Mac; 2],
    pub(super) near: Vec<Mac>,
    pub(super) far: Vec<Mac>,
}

impl FrameClassifier {
    /// Classifies a frame that arrived at `to`, which expects probes of `from`.
    pub(super) fn classify(&self, frame: &[u8], from: Mac, to: Mac) -> FrameClass {
        let Some(source) = source(frame) else { return FrameClass::Corrupted };
        if source != from {
            return self.classify_source(source);
        }
        match probe::verify(frame) {
            Ok(mark) if frame[..6] == to.0 && frame.len() == frame_len(mark.sequence) => {
                FrameClass::Probe(mark)
            }
            // Frames of the hostile guests have another EtherType than probes.
            _ if frame.get(12..14) == Some(&IPV4[..]) => FrameClass::Corrupted,
            _ => FrameClass::Spoofed,
        }
    }

    /// Classifies a frame whose source sends no probes to this receiver.
    pub(super) fn classify_source(&self, source: Mac) -> FrameClass {
        if self.near.contains(&source) {
            FrameClass::Foreign
        } else if self.far.contains(&source) {
            FrameClass::Misplaced
        } else {
            FrameClass::Spoofed
        }
    }
}

/// Source address of a frame.
pub(super) fn source(frame: &[u8]) -> Option<Mac> {
    frame.get(6..)?.first_chunk().copied().map(Mac)
}

impl HonestResult {
    /// Counts a frame of another sender.
    pub(super) fn count(&mut self, seen: FrameClass) {
        match seen {
            FrameClass::Probe(_) => {}
            FrameClass::Corrupted => self.corrupted += 1,
            FrameClass::Spoofed => self.spoofed += 1,
            FrameClass::Misplaced => self.misplaced += 1,
            FrameClass::Foreign => self.foreign += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use wire::probe::Probe;

    use super::*;

    const MACS: [Mac; 5] = [
        Mac([2, 0, 0, 0, 0, 0]),
        Mac([2, 0, 0, 0, 0, 1]),
        Mac([2, 0, 0, 0, 0, 2]),
        Mac([2, 0, 0, 0, 0, 3]),
        Mac([2, 0, 0, 0, 0, 4]),
    ];

    fn frame(src: Mac, dst: Mac, sequence: u64) -> Vec<u8> {
        let ip = Ipv4Addr::new(198, 18, 0, 1);
        let probe = Probe { dst, src, dst_ip: ip, src_ip: ip, dst_port: 9, src_port: 9 };
        let mut frame = vec![0; frame_len(sequence)];
        probe.emit(Mark { sequence, stamp: 0 }, &mut frame).unwrap();
        frame
    }

    #[test]
    fn frames_are_told_apart() {
        let [a, b, near, far, unknown] = MACS;
        let classifier = FrameClassifier { honest: [a, b], near: vec![near], far: vec![far] };
        let seen = |frame: &[u8]| classifier.classify(frame, a, b);
        for sequence in 0..20 {
            let good = frame(a, b, sequence);
            assert!(matches!(seen(&good), FrameClass::Probe(mark) if mark.sequence == sequence));
            assert_eq!(seen(&good[..good.len() - 1]), FrameClass::Corrupted);
            for at in 14..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(!matches!(seen(&bad), FrameClass::Probe(_)), "byte {at}");
            }
        }
        assert_eq!(seen(&frame(a, near, 0)), FrameClass::Corrupted, "another's frame");
        assert_eq!(seen(&wire::rarp::announcement(a)), FrameClass::Spoofed);
        assert_eq!(seen(&frame(b, b, 0)), FrameClass::Spoofed, "its own address");
        assert_eq!(seen(&frame(near, b, 0)), FrameClass::Foreign);
        assert_eq!(seen(&frame(far, b, 0)), FrameClass::Misplaced);
        assert_eq!(seen(&frame(unknown, b, 0)), FrameClass::Spoofed);
        assert_eq!(seen(&[0; 11]), FrameClass::Corrupted);
    }
}

//! Classifies a received frame by its source address and bytes.

use wire::Mac;
use wire::probe::{self, Mark};

use super::end::frame_len;

/// EtherType of probes.
const IPV4: [u8; 2] = wire::ethernet::TYPE_IPV4.to_be_bytes();

/// Class of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A probe, unchanged.
    Ours(Mark),
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
pub(super) struct Judge {
    pub(super) honest: [Mac; 2],
    pub(super) near: Vec<Mac>,
    pub(super) far: Vec<Mac>,
}

impl Judge {
    /// Classifies a frame that arrived at `to`, which expects probes of `from`.
    pub(super) fn judge(&self, frame: &[u8], from: Mac, to: Mac) -> Seen {
        let Some(source) = source(frame) else { return Seen::Corrupted };
        if source != from {
            return self.others(source);
        }
        match probe::verify(frame) {
            Ok(mark) if frame[..6] == to.0 && frame.len() == frame_len(mark.sequence) => {
                Seen::Ours(mark)
            }
            // Frames of the hostile guests have another EtherType than probes.
            _ if frame.get(12..14) == Some(&IPV4[..]) => Seen::Corrupted,
            _ => Seen::Spoofed,
        }
    }

    /// Classifies a frame whose source sends no probes to this receiver.
    pub(super) fn others(&self, source: Mac) -> Seen {
        if self.near.contains(&source) {
            Seen::Foreign
        } else if self.far.contains(&source) {
            Seen::Misplaced
        } else {
            Seen::Spoofed
        }
    }
}

/// Source address of a frame.
pub(super) fn source(frame: &[u8]) -> Option<Mac> {
    frame.get(6..)?.first_chunk().copied().map(Mac)
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
        let [a, b, near, far, nobody] = MACS;
        let judge = Judge { honest: [a, b], near: vec![near], far: vec![far] };
        let seen = |frame: &[u8]| judge.judge(frame, a, b);
        for sequence in 0..20 {
            let good = frame(a, b, sequence);
            assert!(matches!(seen(&good), Seen::Ours(mark) if mark.sequence == sequence));
            assert_eq!(seen(&good[..good.len() - 1]), Seen::Corrupted);
            for at in 14..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(!matches!(seen(&bad), Seen::Ours(_)), "byte {at}");
            }
        }
        assert_eq!(seen(&frame(a, near, 0)), Seen::Corrupted, "another's frame");
        assert_eq!(seen(&wire::rarp::announcement(a)), Seen::Spoofed);
        assert_eq!(seen(&frame(b, b, 0)), Seen::Spoofed, "its own address");
        assert_eq!(seen(&frame(near, b, 0)), Seen::Foreign);
        assert_eq!(seen(&frame(far, b, 0)), Seen::Misplaced);
        assert_eq!(seen(&frame(nobody, b, 0)), Seen::Spoofed);
        assert_eq!(seen(&[0; 11]), Seen::Corrupted);
    }
}

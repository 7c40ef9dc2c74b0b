//! Reverse ARP (RFC 903), for one purpose: to announce a guest's location after a migration.
//!
//! Switches learn the guest's new port from the source address; no host answers.

use crate::Mac;

/// Type of a reverse ARP frame.
pub const TYPE_RARP: u16 = 0x8035;
/// Bytes of the frame without FCS: the shortest that Ethernet has.
pub const FRAME_LEN: usize = 60;

/// A broadcast "request reverse" of `mac` for itself, as QEMU and Linux send it after a migration.
pub fn announcement(mac: Mac) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..6].copy_from_slice(&Mac::BROADCAST.0);
    frame[6..12].copy_from_slice(&mac.0);
    frame[12..14].copy_from_slice(&TYPE_RARP.to_be_bytes());
    // Ethernet, IPv4, lengths 6 and 4, operation 3: "request reverse".
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac.0);
    frame[32..38].copy_from_slice(&mac.0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_is_a_reverse_request_for_itself() {
        let mac = Mac([2, 0, 0, 0, 0, 7]);
        let frame = announcement(mac);
        let parsed = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let link = parsed.link.unwrap().ethernet2().unwrap();
        assert_eq!((link.destination, link.source), ([0xff; 6], mac.0));
        assert_eq!(link.ether_type.0, TYPE_RARP);
        assert_eq!(frame[14..22], [0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&frame[22..28], &frame[32..38]), (&mac.0[..], &mac.0[..]));
        assert_eq!(frame[28..32], [0; 4]);
    }
}

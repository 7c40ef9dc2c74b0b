//! TCP headers (RFC 9293, section 3.1).
//!
//! Model: [`Segment`] reads; segmentation patches a header in place, so that options stay as they
//! are. Limits: options are not parsed. Cannot panic.

use crate::{Truncated, prefix};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: u16 = 16;

/// [`Segment::flags`]: the sender is done.
pub const FLAG_FIN: u8 = 1;
/// [`Segment::flags`]: a connection begins.
pub const FLAG_SYN: u8 = 1 << 1;
/// [`Segment::flags`]: the connection is broken off.
pub const FLAG_RST: u8 = 1 << 2;
/// [`Segment::flags`]: to be handed to the receiver at once.
pub const FLAG_PSH: u8 = 1 << 3;
/// [`Segment::flags`]: the acknowledgement number counts.
pub const FLAG_ACK: u8 = 1 << 4;
/// [`Segment::flags`]: the urgent pointer counts.
pub const FLAG_URG: u8 = 1 << 5;
/// [`Segment::flags`]: the sender has slowed down (RFC 3168).
pub const FLAG_CWR: u8 = 1 << 7;

mod field {
    use std::ops::Range;
    pub(super) const SEQ: Range<usize> = 4..8;
    pub(super) const FLAGS: usize = 13;
    pub(super) const CHECKSUM: Range<usize> = 16..18;
    pub(super) const URGENT: Range<usize> = 18..20;
}

/// Reasons that bytes are not a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// Fewer bytes than a header, or than the data offset says.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The data offset is below 20 bytes.
    #[error("TCP: the data offset is {0} bytes; it must be at least 20")]
    DataOffset(usize),
}

/// A segment whose data offset agrees with its bytes, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    fixed: &'a [u8; HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Views `bytes`, the payload of an IP packet, as a segment.
    ///
    /// # Errors
    /// Too few bytes, or a data offset that is too small.
    pub fn new(bytes: &'a [u8]) -> Result<Self, TcpError> {
        let fixed: &[u8; HEADER_LEN] = prefix(bytes, "TCP")?;
        let header_len = header_len(fixed)?;
        let cut = Truncated { header: "TCP options", need: header_len, have: bytes.len() };
        let (header, payload) = bytes.split_at_checked(header_len).ok_or(cut)?;
        Ok(Self { fixed, header, payload })
    }

    /// Source port.
    pub fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Sequence number of the first byte of the payload.
    pub fn seq(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// `FLAG_*`.
    pub fn flags(&self) -> u8 {
        self.fixed[field::FLAGS]
    }

    /// End of the urgent data, in bytes from [`seq`](Self::seq).
    pub fn urgent(&self) -> u16 {
        u16::from_be_bytes([self.fixed[18], self.fixed[19]])
    }

    /// The header with its options.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Bytes of a header with its options, from the data offset; they need not all be present.
///
/// # Errors
/// The data offset is below a header without options.
#[inline]
pub fn header_len(fixed: &[u8; HEADER_LEN]) -> Result<usize, TcpError> {
    let len = usize::from(fixed[12] >> 4) * 4;
    if len < HEADER_LEN { Err(TcpError::DataOffset(len)) } else { Ok(len) }
}

/// Sets sequence number, flags and urgent pointer of a header, and its checksum to 0. Changes
/// nothing if there are fewer bytes than a header.
pub(crate) fn patch(header: &mut [u8], seq: u32, flags: u8, urgent: u16) {
    if let Some(fixed) = header.first_chunk_mut::<HEADER_LEN>() {
        fixed[field::SEQ].copy_from_slice(&seq.to_be_bytes());
        fixed[field::FLAGS] = flags;
        fixed[field::CHECKSUM].fill(0);
        fixed[field::URGENT].copy_from_slice(&urgent.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use etherparse::TcpHeader;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refusals() {
        let mut bytes = [0u8; 24];
        bytes[12] = 0x60;
        assert!(Segment::new(&bytes).is_ok());
        assert!(matches!(Segment::new(&bytes[..23]), Err(TcpError::Truncated(_))));
        assert!(matches!(Segment::new(&bytes[..19]), Err(TcpError::Truncated(_))));
        bytes[12] = 0x40;
        assert_eq!(Segment::new(&bytes).unwrap_err(), TcpError::DataOffset(16));
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(
            ports: (u16, u16), seq: u32, urgent: u16, fin: bool, psh: bool, cwr: bool,
            options in prop::collection::vec(Just(1u8), 0..=40), payload: Vec<u8>,
        ) {
            let mut theirs = TcpHeader::new(ports.0, ports.1, seq, 7);
            (theirs.fin, theirs.psh, theirs.cwr, theirs.urgent_pointer) = (fin, psh, cwr, urgent);
            theirs.set_options_raw(&options).unwrap();
            let mut bytes = theirs.to_bytes().to_vec();
            let header_len = bytes.len();
            bytes.extend_from_slice(&payload);

            let segment = Segment::new(&bytes).unwrap();
            prop_assert_eq!((segment.src_port(), segment.dst_port()), ports);
            prop_assert_eq!((segment.seq(), segment.urgent()), (seq, urgent));
            let flag = |set, flag| if set { flag } else { 0 };
            let flags = flag(fin, FLAG_FIN) | flag(psh, FLAG_PSH) | flag(cwr, FLAG_CWR);
            prop_assert_eq!(segment.flags(), flags);
            prop_assert_eq!(segment.header().len(), header_len);
            prop_assert_eq!(segment.payload(), &payload[..]);

            patch(&mut bytes, seq.wrapping_add(1), FLAG_FIN, 3);
            theirs.sequence_number = seq.wrapping_add(1);
            (theirs.fin, theirs.psh, theirs.cwr, theirs.urgent_pointer) = (true, false, false, 3);
            prop_assert_eq!(&bytes[..header_len], &theirs.to_bytes()[..]);
        }
    }
}

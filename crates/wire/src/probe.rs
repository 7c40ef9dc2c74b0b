//! The lab's test frames: Ethernet II, IPv4, UDP and a mark of sequence number and time stamp.
//!
//! Model: a [`Probe`] is a flow. [`Probe::emit`] writes a whole frame once. [`remark`] changes the
//! mark of a written frame and updates its checksum without reading the rest, cheap enough for
//! every frame of a generator. [`mark`] reads a mark, [`verify`] checks the whole frame.
//!
//! | bytes | what |
//! |---|---|
//! | 0..14 | Ethernet |
//! | 14..34 | IPv4, no options |
//! | 34..42 | UDP |
//! | 42..44 | [`MAGIC`] |
//! | 44..52 | sequence number, big-endian |
//! | 52..60 | time stamp, big-endian, in the writer's unit |
//! | 60.. | filler: the low byte of the offset |
//!
//! Reading accepts one VLAN tag before the IPv4 header; writing makes none. Limits: frames of 60 to
//! 65549 bytes, without FCS. Cannot panic.

use std::net::Ipv4Addr;

use crate::ipv4::{self, Ipv4Error};
use crate::vlan::{TAG_LEN, Tag};
use crate::{Mac, Truncated, checksum, ethernet, udp};

/// The first two bytes of the payload of a probe.
pub const MAGIC: [u8; 2] = *b"Sh";
/// Bytes of the shortest probe: the shortest frame that a wire carries.
pub const FRAME_LEN_MIN: usize = ethernet::FRAME_LEN_MIN;
/// Bytes of the longest probe: what IPv4's total length can say.
pub const FRAME_LEN_MAX: usize = ethernet::HEADER_LEN + u16::MAX as usize;

/// Bytes of magic and mark.
const PAYLOAD_LEN_MIN: usize = 18;

mod field {
    use std::ops::Range;
    pub(super) const IP: usize = 14;
    pub(super) const UDP: usize = 34;
    pub(super) const CHECKSUM: Range<usize> = 40..42;
    pub(super) const MAGIC: Range<usize> = 42..44;
    pub(super) const MARK: Range<usize> = 44..60;
    pub(super) const FILLER: usize = 60;
}

/// Distinguishes probes of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Sequence number, from the generator.
    pub sequence: u64,
    /// Time of sending, in a unit that generator and sink share.
    pub stamp: u64,
}

impl Mark {
    const fn to_bytes(self) -> [u8; 16] {
        ((self.sequence as u128) << 64 | self.stamp as u128).to_be_bytes()
    }

    const fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { sequence: (both >> 64) as u64, stamp: both as u64 }
    }
}

/// Reasons that a frame is not a probe, or cannot be made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// A frame to write is too short or too long.
    #[error("probe of {0} bytes; allowed: 60 to 65549, without FCS")]
    Len(usize),
    /// A header does not fit into the frame.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The IPv4 header is wrong.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// A checksum is wrong.
    #[error("{0} checksum is wrong: the frame was damaged in transit")]
    Checksum(&'static str),
    /// A well-formed frame of another sender.
    #[error("not a probe: unexpected {0}")]
    Foreign(&'static str),
    /// A byte after the mark differs from the one sent.
    #[error("byte {0} of the filler was changed in transit")]
    Filler(usize),
}

/// A flow of test frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Destination address.
    pub dst: Mac,
    /// Source address.
    pub src: Mac,
    /// Destination IPv4 address.
    pub dst_ip: Ipv4Addr,
    /// Source IPv4 address.
    pub src_ip: Ipv4Addr,
    /// Destination UDP port.
    pub dst_port: u16,
    /// Source UDP port.
    pub src_port: u16,
}

impl Probe {
    /// Writes a probe over all of `frame`, whose length is the frame's, without FCS.
    ///
    /// # Errors
    /// A length outside [`FRAME_LEN_MIN`] to [`FRAME_LEN_MAX`].
    pub fn emit(&self, mark: Mark, frame: &mut [u8]) -> Result<(), ProbeError> {
        let len = frame.len();
        if !(FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&len) {
            return Err(ProbeError::Len(len));
        }
        // From the inside out, as the checksum of UDP covers the payload.
        for (offset, byte) in frame.iter_mut().enumerate().skip(field::FILLER) {
            *byte = offset as u8;
        }
        frame[field::MAGIC].copy_from_slice(&MAGIC);
        frame[field::MARK].copy_from_slice(&mark.to_bytes());
        let ip = ipv4::Header {
            src: self.src_ip,
            dst: self.dst_ip,
            protocol: ipv4::PROTOCOL_UDP,
            ttl: 64,
            id: 0,
            // At most 65515, as the length was checked above.
            payload_len: (len - field::UDP) as u16,
        };
        let ports = udp::Header { src_port: self.src_port, dst_port: self.dst_port };
        ports.emit(&ip, &mut frame[field::UDP..])?;
        ip.emit(&mut frame[field::IP..])?;
        let header =
            ethernet::Header { dst: self.dst, src: self.src, ethertype: ethernet::TYPE_IPV4 };
        Ok(header.emit(frame)?)
    }
}

/// Changes the mark of an untagged probe, and its checksum with it.
///
/// # Errors
/// The frame is shorter than a probe. It is not checked to be one: this is for frames that
/// [`Probe::emit`] wrote.
#[inline]
pub fn remark(frame: &mut [u8], mark: Mark) -> Result<(), Truncated> {
    let have = frame.len();
    let short = Truncated { header: "probe", need: FRAME_LEN_MIN, have };
    let frame: &mut [u8; FRAME_LEN_MIN] = frame.first_chunk_mut().ok_or(short)?;
    let new = mark.to_bytes();
    let before = u16::from_be_bytes([frame[40], frame[41]]);
    let after = udp::stored(checksum::update(before, &frame[field::MARK], &new));
    frame[field::CHECKSUM].copy_from_slice(&after.to_be_bytes());
    frame[field::MARK].copy_from_slice(&new);
    Ok(())
}

/// The mark of a probe; `None` if the frame is not one. Checksums and filler are not checked.
#[inline]
pub fn mark(frame: &[u8]) -> Option<Mark> {
    let frame: &[u8; FRAME_LEN_MIN] = untagged(frame).first_chunk()?;
    // Offsets are those of an untagged frame, since `untagged` cuts bytes off the front.
    let (magic, bytes) = frame[field::MAGIC.start..].split_first_chunk()?;
    if *magic != MAGIC {
        return None;
    }
    bytes.first_chunk().map(|bytes| Mark::from_bytes(*bytes))
}

/// Checks every byte of a probe after its addresses and gives its mark.
///
/// # Errors
/// The first thing found wrong, from the outermost header inwards.
pub fn verify(frame: &[u8]) -> Result<Mark, ProbeError> {
    let rest = untagged(frame);
    if ethernet::Frame::new(rest)?.ethertype() != ethernet::TYPE_IPV4 {
        return Err(ProbeError::Foreign("the EtherType"));
    }
    let packet = ipv4::Packet::new(rest.get(field::IP..).unwrap_or_default())?;
    if !packet.checksum_ok() {
        return Err(ProbeError::Checksum("IPv4"));
    }
    if packet.protocol() != ipv4::PROTOCOL_UDP {
        return Err(ProbeError::Foreign("the IP protocol"));
    }
    let datagram = udp::Datagram::new(packet.payload())?;
    if datagram.payload().len() + udp::HEADER_LEN != packet.payload().len() {
        return Err(ProbeError::Foreign("the UDP length"));
    }
    // 0 means no checksum, and every probe has one.
    if datagram.checksum() == 0 || !datagram.checksum_ok(&ipv4::Header::parse(&packet)) {
        return Err(ProbeError::Checksum("UDP"));
    }
    let mark = mark(frame).ok_or(ProbeError::Foreign("the magic of the payload"))?;
    // The payload begins where the magic lies; offsets count from the untagged frame's start.
    for (offset, byte) in (field::MAGIC.start..).zip(datagram.payload()).skip(PAYLOAD_LEN_MIN) {
        if *byte != offset as u8 {
            return Err(ProbeError::Filler(offset));
        }
    }
    Ok(mark)
}

/// The frame from the start that an untagged one would have, with its IPv4 header at offset 14.
///
/// Cutting four bytes off the front of a tagged frame garbles its addresses, but puts the type and
/// all later bytes at the offsets of an untagged one.
fn untagged(frame: &[u8]) -> &[u8] {
    match Tag::parse(frame) {
        Ok(Some(_)) => frame.get(TAG_LEN..).unwrap_or_default(),
        _ => frame,
    }
}

#[cfg(test)]
mod tests;

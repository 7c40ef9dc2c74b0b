//! Bursts: frames that are handled together.

use guestmem::{Buffer, GuestSlice};

pub use virtq::BURST;

/// Most bytes of a burst of more than one frame, four of the longest: they are still in the L2
/// cache when they are copied, and a flood of them to all does not keep others waiting for long.
pub const BURST_BYTES: u64 = 256 << 10;
pub use wire::virtio_net::NetHeader;
pub use wire::{HeaderSnapshot, VlanEdit};

/// The first 16 bytes of a frame: both addresses, and the tag or the type. Read once.
pub type HeaderBytes = [u8; 16];

/// Up to [`BURST`] frames, borrowed from the transmit half that took them.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// Snapshots of the first 16 bytes; a shorter frame is padded with zeros.
    pub headers: &'a [HeaderBytes],
    /// Longer snapshots, or empty before
    /// [`snapshot_headers`](crate::BurstBuffers::snapshot_headers).
    /// They begin with the 16 bytes of `headers`; the receiver gets their bytes.
    pub snapshots: &'a [HeaderSnapshot],
    /// Buffers of the frames, including the first 16 bytes.
    pub frames: &'a [Buffer<'a>],
    /// Further slices of frames that are not contiguous.
    pub arena: &'a [GuestSlice<'a>],
    /// Offload requested for each frame: a checksum, or segmentation. Empty if no frame has one.
    /// Validated against the frames' lengths.
    pub offloads: &'a [NetHeader],
    /// Bit i is set if frame i must be dropped: too short, too long, or with an invalid offload.
    pub malformed: u64,
    /// Set if all headers are known to be of one flow (`wire::FrameHeader::is_one_flow`): the
    /// verdict of the first is that of all.
    pub is_one_flow: bool,
}

impl<'a> Burst<'a> {
    /// A burst of frames in one slice each, without snapshots, offloads and malformed frames.
    pub fn plain(headers: &'a [HeaderBytes], frames: &'a [Buffer<'a>]) -> Burst<'a> {
        Burst {
            headers,
            snapshots: &[],
            frames,
            arena: &[],
            offloads: &[],
            malformed: 0,
            is_one_flow: false,
        }
    }

    /// Offload requested for a frame.
    #[inline]
    pub fn offload(&self, frame: usize) -> NetHeader {
        self.offloads.get(frame).copied().unwrap_or(NetHeader::PLAIN)
    }
}

/// Snapshots the headers of a burst. Each snapshot begins with the bytes of `headers`, which are
/// not read again.
pub(crate) fn snapshot_headers(
    snapshots: &mut [HeaderSnapshot],
    headers: &[HeaderBytes],
    frames: &[Buffer<'_>],
    arena: &[GuestSlice<'_>],
) {
    for ((snapshot, header), frame) in snapshots.iter_mut().zip(headers).zip(frames) {
        snapshot_header(snapshot, header, frame, arena);
    }
}

#[inline(always)]
fn snapshot_header(
    snapshot: &mut HeaderSnapshot,
    header: &HeaderBytes,
    frame: &Buffer<'_>,
    arena: &[GuestSlice<'_>],
) {
    const LEN: usize = HeaderSnapshot::LEN;
    let len = (frame.len as usize).min(LEN);
    snapshot.len = len as u8;
    let (first, rest) = snapshot.bytes.split_at_mut(header.len());
    first.copy_from_slice(header);
    let Some(rest) = rest.get_mut(..len.saturating_sub(header.len())) else { return };
    let at = header.len() as u32;
    if frame.first.len() as usize >= len {
        frame.first.skip(at).read_bytes(rest);
    } else {
        frame.read_bytes(arena, at, rest);
    }
}

/// Result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Frames, including malformed ones.
    pub frames: u32,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Bytes charged to the sender beyond `bytes`: headers of further segments, or, if
    /// these are more, bytes delivered to further receivers.
    pub surplus_bytes: u64,
    /// Frames that are too short to be Ethernet.
    pub runts: u32,
    /// Frames longer than the port's MTU allows.
    pub oversize: u32,
    /// Frames with an invalid offload, or one that was not negotiated.
    pub bad_offload: u32,
    /// Frames in a ring that the guest's device has disabled.
    pub disabled: u32,
    /// Set if more frames are waiting.
    pub backlog: bool,
    /// Ring fault, after which this half takes nothing.
    pub fault: Option<virtq::Fault>,
    /// Frames that a device placed in the guest's buffers; `None` for a half that takes frames.
    /// Then `fault` is one of the guest's receive ring.
    pub placed: Option<Placed>,
}

/// Frames that a device placed in a guest's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Frames.
    pub frames: u32,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Set if the guest was notified.
    pub notified: bool,
}

impl Polled {
    /// Frames taken or placed, and the bytes charged to the sender.
    #[inline]
    pub fn work(&self) -> (u32, u64) {
        let placed = self.placed.unwrap_or_default();
        (self.frames + placed.frames, self.bytes + self.surplus_bytes + placed.bytes)
    }

    /// Frames that must be dropped.
    #[inline]
    pub fn malformed(&self) -> u32 {
        self.runts + self.oversize + self.bad_offload + self.disabled
    }
}

/// Result of [`Receive::deliver`](crate::Receive::deliver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Frames copied.
    pub frames: u32,
    /// Bytes of these frames as the guest sees them, without device headers.
    pub bytes: u64,
    /// Frames dropped because the guest had posted no buffer.
    pub no_buffer: u32,
    /// Frames dropped because the posted buffer is too small, or because their checksum or
    /// segmentation cannot be completed.
    pub too_small: u32,
    /// Copies that a tunnel sent to further peers, beyond the first of each frame.
    pub copies: u32,
    /// Bytes of these copies.
    pub copied_bytes: u64,
    /// Frames dropped at the limit of [`Receive::allow_copies`](crate::Receive::allow_copies).
    pub over_limit: u32,
    /// Ring fault, after which this half delivers nothing.
    pub fault: Option<virtq::Fault>,
}

impl Delivered {
    /// Adds the counts of another delivery, except for copies and faults.
    pub(crate) fn add(&mut self, more: Delivered) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.no_buffer += more.no_buffer;
        self.too_small += more.too_small;
        self.over_limit += more.over_limit;
    }
}

const TAG: usize = 4;

/// Edited header of a frame: the bytes that replace the frame's first bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderEdit {
    pub(crate) bytes: [u8; 20],
    /// Valid bytes in `bytes`.
    pub(crate) len: u32,
    /// Bytes of the frame that they replace.
    pub(crate) replaces: u32,
}

impl HeaderEdit {
    /// Length of the edited frame, which had `len` bytes.
    pub(crate) fn len_of(&self, len: u32) -> u32 {
        len - self.replaces + self.len
    }

    /// Offload of the edited frame; `None` if it cannot be expressed.
    pub(crate) fn offload(&self, before: NetHeader) -> Option<NetHeader> {
        let by = self.len as i32 - self.replaces as i32;
        if by == 0 { Some(before) } else { before.moved_by(by) }
    }

    /// Edits the header of a frame of `len` bytes that begins with `header`.
    pub(crate) fn new(edit: VlanEdit, header: &HeaderBytes, len: u32) -> HeaderEdit {
        let replaces = len.min(16);
        let mut bytes = [0; 20];
        let kept = match edit {
            VlanEdit::None => {
                bytes[..16].copy_from_slice(header);
                replaces as usize
            }
            VlanEdit::Push(tag) => {
                bytes[..12].copy_from_slice(&header[..12]);
                bytes[12..16].copy_from_slice(&tag);
                bytes[16..].copy_from_slice(&header[12..]);
                replaces as usize + TAG
            }
            VlanEdit::Retag(tag) => {
                bytes[..16].copy_from_slice(header);
                bytes[12..16].copy_from_slice(&tag);
                replaces as usize
            }
            VlanEdit::Pop => {
                bytes[..12].copy_from_slice(&header[..12]);
                12
            }
        };
        HeaderEdit { bytes, len: kept as u32, replaces }
    }
}

//! Frames handled together.

use guestmem::{Buffer, GuestSlice};

use crate::plain::Scratch;

pub use virtq::BURST;
pub use wire::virtio_net::Header as Offload;
pub use wire::{DeepHead, VlanEdit};

/// The first 16 bytes of a frame: both addresses, and the tag or the type. Read once.
pub type Head = [u8; 16];

/// Up to [`BURST`] frames, borrowed from the transmit half that took them.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// Snapshots. Of a frame of fewer than 16 bytes the rest is zeros.
    pub heads: &'a [Head],
    /// Longer snapshots, or empty before [`snapshot_headers`](crate::Transmit::snapshot_headers).
    /// They begin with the 16 bytes of `heads`; the receiver gets their bytes.
    pub deep: &'a [DeepHead],
    /// Where the frames are, their first 16 bytes included.
    pub frames: &'a [Buffer<'a>],
    /// Further slices of frames that are not in one piece.
    pub arena: &'a [GuestSlice<'a>],
    /// What is left to do on each frame, by whoever sends it on a wire: a checksum to be made, or
    /// segments. Empty if nothing is on any of them. Checked against the frames' lengths.
    pub offloads: &'a [Offload],
    /// Bit i is set if frame i is too short or too long to be a frame, or what is left to do on it
    /// makes no sense: it must be dropped.
    pub malformed: u64,
}

impl Burst<'_> {
    /// What is left to do on a frame.
    #[inline]
    pub fn offload(&self, frame: usize) -> Offload {
        self.offloads.get(frame).copied().unwrap_or(Offload::PLAIN)
    }
}

/// Room for a burst that is being worked on. A lane has one for each direction and lends it to the
/// ring it works on, so that serving many rings takes no more of its nearest cache than one.
#[derive(Debug)]
pub struct BurstBuffers {
    pub(crate) stage: virtq::StagingBuffers,
    pub(crate) heads: Box<[Head; BURST]>,
    /// As long as a burst, or empty if nobody needed it yet.
    pub(crate) deep: Vec<DeepHead>,
    pub(crate) offloads: Box<[Offload; BURST]>,
    pub(crate) scratch: Scratch,
}

impl Default for BurstBuffers {
    fn default() -> BurstBuffers {
        let heads = Box::new([[0; 16]; BURST]);
        BurstBuffers {
            stage: virtq::StagingBuffers::default(),
            heads,
            deep: vec![DeepHead::EMPTY; BURST],
            offloads: Box::new([Offload::PLAIN; BURST]),
            scratch: Scratch::default(),
        }
    }
}

/// Takes the longer snapshots of a burst's frames, which begin with `heads`: those are not read
/// again.
pub(crate) fn snapshot_headers(
    deep: &mut Vec<DeepHead>,
    heads: &[Head],
    frames: &[Buffer<'_>],
    arena: &[GuestSlice<'_>],
) {
    // Changes nothing but for a half that works without a lane's room.
    deep.resize(BURST, DeepHead::EMPTY);
    for ((deep, head), frame) in deep.iter_mut().zip(heads).zip(frames) {
        snapshot_header(deep, head, frame, arena);
    }
}

#[inline]
fn snapshot_header(deep: &mut DeepHead, head: &Head, frame: &Buffer<'_>, arena: &[GuestSlice<'_>]) {
    // What a short frame leaves free must not show what another guest's had there.
    *deep = DeepHead { len: frame.len.min(DeepHead::LEN as u32) as u8, ..DeepHead::EMPTY };
    let (front, rest) = deep.bytes.split_at_mut(head.len());
    front.copy_from_slice(head);
    let at = head.len() as u32;
    if frame.first.len() == frame.len || frame.first.len() as usize >= DeepHead::LEN {
        frame.first.skip(at).read_bytes(rest);
    } else {
        frame.read_bytes(arena, at, rest);
    }
}

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Frames, malformed ones included.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that the sender is charged beyond `bytes`: headers of further segments and, after
    /// forwarding, copies of the frames.
    pub surplus_bytes: u64,
    /// Frames that are too short to be Ethernet.
    pub runts: u32,
    /// Frames longer than the port's MTU allows.
    pub oversize: u32,
    /// Frames on which something is left to do that makes no sense, or was not agreed on.
    pub bad_offload: u32,
    /// Frames in a ring that the guest's device has disabled.
    pub disabled: u32,
    /// Whether more waited than were taken.
    pub backlog: bool,
    /// Why nothing will be taken after these, if so.
    pub fault: Option<virtq::Fault>,
    /// Of a half that takes no frames but finds those that a device placed in the guest's buffers:
    /// what it found. The fault is then one of the guest's receive ring.
    pub placed: Option<Placed>,
}

/// Frames that are where they belong already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Frames.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the guest had to be notified.
    pub notified: bool,
}

impl Polled {
    /// Frames that were taken or found, and the bytes that the sender is charged.
    #[inline]
    pub fn work(&self) -> (u32, u64) {
        let placed = self.placed.unwrap_or_default();
        (self.frames + placed.frames, self.bytes + self.surplus_bytes + placed.bytes)
    }

    /// Frames that must be dropped as they came.
    #[inline]
    pub fn malformed(&self) -> u32 {
        self.runts + self.oversize + self.bad_offload + self.disabled
    }
}

const TAG: usize = 4;

/// What the receiver gets in place of a frame's first bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    pub(crate) bytes: [u8; 20],
    /// How many of `bytes` count.
    pub(crate) len: u32,
    /// How many bytes of the frame they replace.
    pub(crate) replaces: u32,
}

impl Front {
    /// Bytes of the edited frame, which had `len`.
    pub(crate) fn len_of(&self, len: u32) -> u32 {
        len - self.replaces + self.len
    }

    /// What is left to do on the edited frame; `None` if that cannot be said.
    pub(crate) fn offload(&self, before: Offload) -> Option<Offload> {
        let by = self.len as i32 - self.replaces as i32;
        if by == 0 { Some(before) } else { before.moved_by(by) }
    }

    /// The edited front of a frame of `len` bytes that begins with `head`.
    pub(crate) fn new(edit: VlanEdit, head: &Head, len: u32) -> Front {
        let replaces = len.min(16);
        let mut bytes = [0; 20];
        let kept = match edit {
            VlanEdit::None => {
                bytes[..16].copy_from_slice(head);
                replaces as usize
            }
            VlanEdit::Push(tag) => {
                bytes[..12].copy_from_slice(&head[..12]);
                bytes[12..16].copy_from_slice(&tag);
                bytes[16..].copy_from_slice(&head[12..]);
                replaces as usize + TAG
            }
            VlanEdit::Retag(tag) => {
                bytes[..16].copy_from_slice(head);
                bytes[12..16].copy_from_slice(&tag);
                replaces as usize
            }
            VlanEdit::Pop => {
                bytes[..12].copy_from_slice(&head[..12]);
                12
            }
        };
        Front { bytes, len: kept as u32, replaces }
    }
}

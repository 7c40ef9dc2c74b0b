//! The one copy: from the source's buffer into the buffers that the receiver posted.

use guestmem::GuestSlice;
use virtq::{BURST, DeviceQueue};
use wire::segment::Segment;
use wire::virtio_net::Accepts;

use crate::Delivered;
use crate::burst::{Burst, DeepHead, Front, Offload, VlanEdit};
use crate::virtio_net::HEADER_LEN;

/// How frames are laid out for a receiver.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes of the device's header.
    pub header: u32,
    /// Whether a frame may use several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub mergeable: bool,
}

/// Why a frame could not be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoom {
    /// The guest has posted too few buffers.
    Empty,
    /// The next buffer is too small for the frame, and only one may be used.
    TooSmall,
}

/// A header that leaves nothing to be done, for one buffer.
const ONE_BUFFER: [u8; HEADER_LEN as usize] = Offload::PLAIN.to_bytes();

/// Delivers the leading frames of `indices` that are the usual case: one slice, unchanged, into
/// one slice. Returns their number and bytes.
#[inline]
pub(crate) fn in_one_piece(
    queue: &mut DeviceQueue,
    burst: &Burst<'_>,
    indices: &[u8],
) -> (usize, u64) {
    let mut lens = [0; BURST];
    let mut bytes = 0;
    let mut done = 0;
    let (buffers, _) = queue.buffers();
    for ((index, buffer), used) in indices.iter().zip(buffers).zip(&mut lens) {
        let frame = usize::from(*index);
        let (Some(source), Some(head)) = (burst.frames.get(frame), burst.heads.get(frame)) else {
            break;
        };
        let len = source.len;
        let fits = (source.first.len() == len)
            & (len >= 16)
            & (u64::from(buffer.first.len()) >= u64::from(HEADER_LEN) + u64::from(len));
        if !fits {
            break;
        }
        let target = buffer.first;
        target.write(0, ONE_BUFFER);
        target.write(HEADER_LEN, *head);
        target.skip(HEADER_LEN + 16).copy_from(source.first.skip(16), len - 16);
        *used = HEADER_LEN + len;
        bytes += u64::from(len);
        done += 1;
    }
    queue.add_used_batch(&lens[..done]);
    (done, bytes)
}

/// As [`in_one_piece`], for a burst with longer snapshots, or on whose frames something is left to
/// do that the receiver `takes`: what is in a snapshot is not read again.
#[inline]
pub(crate) fn in_one_deep_piece(
    queue: &mut DeviceQueue,
    burst: &Burst<'_>,
    indices: &[u8],
    takes: Accepts,
) -> (usize, u64) {
    const DEEP: u32 = DeepHead::LEN as u32;
    let mut lens = [0; BURST];
    let mut bytes = 0;
    let mut done = 0;
    let (buffers, _) = queue.buffers();
    for ((index, buffer), used) in indices.iter().zip(buffers).zip(&mut lens) {
        let frame = usize::from(*index);
        let (Some(source), Some(head)) = (burst.frames.get(frame), burst.heads.get(frame)) else {
            break;
        };
        let snapshot = burst.deep.get(frame).map_or(&head[..], DeepHead::bytes);
        let len = source.len;
        let taken = len.min(snapshot.len() as u32);
        let offload = burst.offload(frame);
        // A frame that the snapshot holds whole may lie in any pieces.
        let fits = (source.first.len() == len || len == taken)
            & offload.fits(takes)
            & (u64::from(buffer.first.len()) >= u64::from(HEADER_LEN) + u64::from(len));
        if !fits {
            break;
        }
        let target = buffer.first;
        target.write(0, with_buffers(offload, 1));
        match burst.deep.get(frame) {
            Some(deep) if taken == DEEP => target.write(HEADER_LEN, deep.bytes),
            _ => {
                target.skip(HEADER_LEN).write_bytes(&snapshot[..taken as usize]);
            }
        }
        target.skip(HEADER_LEN + taken).copy_from(source.first.skip(taken), len - taken);
        *used = HEADER_LEN + len;
        bytes += u64::from(len);
        done += 1;
    }
    queue.add_used_batch(&lens[..done]);
    (done, bytes)
}

/// Every other frame: of several slices, changed, or into several slices or buffers.
#[cold]
#[inline(never)]
pub(crate) fn in_pieces(
    queue: &mut DeviceQueue,
    burst: &Burst<'_>,
    frame: usize,
    layout: Layout,
    edit: VlanEdit,
) -> Delivered {
    let source = &burst.frames[frame];
    let front = Front::new(edit, &burst.heads[frame], source.len);
    let Some(offload) = front.offload(burst.offload(frame)) else {
        return Delivered { too_small: 1, ..Delivered::default() };
    };
    let len = front.len_of(source.len);
    place(queue, layout, (offload, len), &Source::Burst { burst, frame, front })
}

/// A frame of our own making.
pub(crate) fn plain(queue: &mut DeviceQueue, frame: &Segment<'_>, layout: Layout) -> Delivered {
    let len = (frame.head.len() + frame.payload.len()) as u32;
    place(queue, layout, (Offload::PLAIN, len), &Source::Segment(frame))
}

/// What is put into buffers.
enum Source<'a> {
    Burst { burst: &'a Burst<'a>, frame: usize, front: Front },
    Segment(&'a Segment<'a>),
}

/// Puts the header and a frame of `len` bytes into the next buffers.
fn place(
    queue: &mut DeviceQueue,
    layout: Layout,
    (offload, len): (Offload, u32),
    source: &Source<'_>,
) -> Delivered {
    let used = match claim(queue, layout.header + len, layout.mergeable) {
        Ok(used) => used,
        Err(NoRoom::TooSmall) => return Delivered { too_small: 1, ..Delivered::default() },
        Err(NoRoom::Empty) => return Delivered { no_buffer: 1, ..Delivered::default() },
    };
    {
        let (buffers, arena) = queue.buffers();
        let mut writer =
            Writer::new(buffers[..used].iter().flat_map(|buffer| buffer.slices(arena)));
        writer.write(&with_buffers(offload, used as u16)[..layout.header as usize]);
        match source {
            Source::Burst { burst, frame, front } => writer.frame(burst, *frame, *front),
            Source::Segment(Segment { head, payload, .. }) => {
                writer.write(head);
                writer.write(payload);
            }
        }
    }
    let mut left = layout.header + len;
    for _ in 0..used {
        let room = queue.buffers().0[0].len;
        queue.add_used(room.min(left));
        left -= room.min(left);
    }
    Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() }
}

/// The header of a frame that takes so many buffers.
fn with_buffers(offload: Offload, buffers: u16) -> [u8; HEADER_LEN as usize] {
    Offload { num_buffers: buffers.into(), ..offload }.to_bytes()
}

/// How many staged buffers `need` bytes take; stages more where it can.
fn claim(queue: &mut DeviceQueue, need: u32, mergeable: bool) -> Result<usize, NoRoom> {
    if !mergeable {
        queue.stage(1);
        let buffer = queue.buffers().0.first().ok_or(NoRoom::Empty)?;
        return if buffer.len >= need { Ok(1) } else { Err(NoRoom::TooSmall) };
    }
    let mut room = 0;
    let mut used = 0;
    while room < need {
        if used == BURST {
            return Err(NoRoom::TooSmall); // buffers so small that a burst of them is not enough
        }
        queue.stage(used + 1);
        let Some(buffer) = queue.buffers().0.get(used) else {
            // More are there, but in so many pieces that they cannot be held together.
            let in_crumbs = queue.has_backlog() && queue.fault().is_none();
            return Err(if in_crumbs { NoRoom::TooSmall } else { NoRoom::Empty });
        };
        room += buffer.len;
        used += 1;
    }
    Ok(used)
}

/// Fills slices one after the other; what they have no room for is left out.
pub(crate) struct Writer<'a, I> {
    slices: I,
    current: GuestSlice<'a>,
}

impl<'a, I: Iterator<Item = GuestSlice<'a>>> Writer<'a, I> {
    pub(crate) fn new(slices: I) -> Self {
        Writer { slices, current: GuestSlice::EMPTY }
    }

    /// The place for the next bytes; empty only when all slices are full.
    fn room(&mut self) -> GuestSlice<'a> {
        while self.current.is_empty() {
            match self.slices.next() {
                Some(slice) => self.current = slice,
                None => break,
            }
        }
        self.current
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.room().is_empty() {
            let n = self.current.write_bytes(bytes);
            self.current = self.current.skip(n);
            bytes = &bytes[n as usize..];
        }
    }

    fn copy(&mut self, mut source: GuestSlice<'_>) {
        while !source.is_empty() && !self.room().is_empty() {
            let n = source.len().min(self.current.len());
            self.current.copy_from(source, n);
            self.current = self.current.skip(n);
            source = source.skip(n);
        }
    }

    /// A frame of the burst: its edited front, what else was snapshot, and the rest as it is now.
    pub(crate) fn frame(&mut self, burst: &Burst<'_>, frame: usize, front: Front) {
        let source = &burst.frames[frame];
        self.write(&front.bytes[..front.len as usize]);
        let snapshot = burst.deep.get(frame).map_or(&[][..], DeepHead::bytes);
        let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
        let behind = snapshot.get(front.replaces as usize..).unwrap_or(&[]);
        self.write(behind);
        let mut skip = front.replaces + behind.len() as u32;
        for slice in source.slices(burst.arena) {
            self.copy(slice.skip(skip));
            skip = skip.saturating_sub(slice.len());
        }
    }
}

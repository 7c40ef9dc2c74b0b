//! The one copy of a frame that is not the usual case, and of a segment made in software, into the
//! buffers that the receiver posted.

use guestmem::GuestSlice;
use virtq::{BURST, DeviceQueue};
use wire::segment::Segment;

use crate::burst::{Burst, Delivered, HeaderEdit, HeaderSnapshot, NetHeader, VlanEdit};

/// Bytes of the header with `num_buffers`: VERSION_1 or MRG_RXBUF.
pub const HEADER_LEN: u32 = 12;
/// Bytes of the legacy header.
pub const HEADER_LEN_LEGACY: u32 = 10;

/// Layout of frames in a receiver's buffers.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveLayout {
    /// Bytes of the virtio-net header.
    pub header: u32,
    /// Set if a frame may use several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub mergeable: bool,
}

/// Reason for which no buffer can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimError {
    /// The guest has posted too few buffers.
    Empty,
    /// The next buffer is too small for the frame, and only one may be used.
    TooSmall,
}

/// Copies a frame of any form: scattered, edited, or into several slices or buffers.
#[cold]
#[inline(never)]
pub(crate) fn copy_any(
    queue: &mut DeviceQueue,
    burst: &Burst<'_>,
    frame: usize,
    layout: ReceiveLayout,
    edit: VlanEdit,
) -> Delivered {
    let source = &burst.frames[frame];
    let edited = HeaderEdit::new(edit, &burst.headers[frame], source.len);
    let Some(offload) = edited.offload(burst.offload(frame)) else {
        return Delivered { too_small: 1, ..Delivered::default() };
    };
    let len = edited.len_of(source.len);
    write_frame(queue, layout, (offload, len), &CopySource::Burst { burst, frame, edited })
}

/// Copies a segment made in software.
pub(crate) fn copy_segment(
    queue: &mut DeviceQueue,
    frame: &Segment<'_>,
    layout: ReceiveLayout,
) -> Delivered {
    let len = (frame.headers.len() + frame.payload.len()) as u32;
    write_frame(queue, layout, (NetHeader::PLAIN, len), &CopySource::Segment(frame))
}

/// Source of a frame to write.
enum CopySource<'a> {
    Burst { burst: &'a Burst<'a>, frame: usize, edited: HeaderEdit },
    Segment(&'a Segment<'a>),
}

/// Writes the header and a frame of `len` bytes into the next buffers.
fn write_frame(
    queue: &mut DeviceQueue,
    layout: ReceiveLayout,
    (offload, len): (NetHeader, u32),
    source: &CopySource<'_>,
) -> Delivered {
    let used = match claim_buffers(queue, layout.header + len, layout.mergeable) {
        Ok(used) => used,
        Err(ClaimError::TooSmall) => return Delivered { too_small: 1, ..Delivered::default() },
        Err(ClaimError::Empty) => return Delivered { no_buffer: 1, ..Delivered::default() },
    };
    {
        let (buffers, arena) = queue.buffers();
        let mut writer =
            SliceWriter::new(buffers[..used].iter().flat_map(|buffer| buffer.slices(arena)));
        writer.write(&header_bytes(offload, used as u16)[..layout.header as usize]);
        match source {
            CopySource::Burst { burst, frame, edited } => writer.frame(burst, *frame, *edited),
            CopySource::Segment(Segment { headers, payload, .. }) => {
                writer.write(headers);
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

/// Header of a frame that uses `buffers` buffers.
pub(crate) fn header_bytes(offload: NetHeader, buffers: u16) -> [u8; HEADER_LEN as usize] {
    NetHeader { num_buffers: buffers.into(), ..offload }.to_bytes()
}

/// Number of staged buffers that `need` bytes use; stages more if necessary.
fn claim_buffers(queue: &mut DeviceQueue, need: u32, mergeable: bool) -> Result<usize, ClaimError> {
    if !mergeable {
        queue.stage(1);
        let buffer = queue.buffers().0.first().ok_or(ClaimError::Empty)?;
        return if buffer.len >= need { Ok(1) } else { Err(ClaimError::TooSmall) };
    }
    let mut room = 0;
    let mut used = 0;
    while room < need {
        if used == BURST {
            return Err(ClaimError::TooSmall); // buffers so small that a burst of them is not enough
        }
        queue.stage(used + 1);
        let Some(buffer) = queue.buffers().0.get(used) else {
            // More buffers are posted, but in too many pieces to be held together.
            let in_crumbs = queue.has_backlog() && queue.fault().is_none();
            return Err(if in_crumbs { ClaimError::TooSmall } else { ClaimError::Empty });
        };
        room += buffer.len;
        used += 1;
    }
    Ok(used)
}

/// Fills slices one after the other; excess bytes are dropped.
pub(crate) struct SliceWriter<'a, I> {
    slices: I,
    current: GuestSlice<'a>,
}

impl<'a, I: Iterator<Item = GuestSlice<'a>>> SliceWriter<'a, I> {
    pub(crate) fn new(slices: I) -> Self {
        SliceWriter { slices, current: GuestSlice::EMPTY }
    }

    /// Slice for the next bytes; empty only when all slices are full.
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

    /// Writes a frame of the burst: edited header, rest of the snapshot, and the remaining bytes as
    /// they are now.
    pub(crate) fn frame(&mut self, burst: &Burst<'_>, frame: usize, edited: HeaderEdit) {
        let source = &burst.frames[frame];
        self.write(&edited.bytes[..edited.len as usize]);
        let snapshot = burst.snapshots.get(frame).map_or(&[][..], HeaderSnapshot::bytes);
        let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
        let behind = snapshot.get(edited.replaces as usize..).unwrap_or(&[]);
        self.write(behind);
        let mut skip = edited.replaces + behind.len() as u32;
        for slice in source.slices(burst.arena) {
            self.copy(slice.skip(skip));
            skip = skip.saturating_sub(slice.len());
        }
    }
}

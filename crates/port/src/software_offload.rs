//! Offloads in software: checksums and segmentation for receivers that do not accept them.
//!
//! The frame is copied into memory of the lane, where no guest can change it during the checksum.
//! Then [`wire::segment`] cuts it and fills in the checksums.

use wire::segment::{Segment, Segments};
use wire::virtio_net::{GSO_NONE, complete_checksum};

use crate::burst::{Burst, Delivered, HeaderEdit, HeaderSnapshot, NetHeader, VlanEdit};

/// Scratch memory of the lane; empty until it is needed.
#[derive(Debug, Default)]
pub(crate) struct OffloadScratch(Vec<u8>);

impl OffloadScratch {
    /// Edits a frame, completes its offload, and passes the resulting frames to `send` one by one.
    /// After the first refusal the remaining frames are counted with the same reason. Returns the
    /// sum.
    #[cold]
    pub(crate) fn deliver(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        mut send: impl FnMut(&Segment<'_>) -> Delivered,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        let done = self.cut(burst, frame, edit, |segment| {
            let more = send(segment);
            delivered.add(more);
            more.frames > 0
        });
        match done {
            None => delivered.too_small += 1, // the requested offload does not fit the frame
            Some(behind) if delivered.over_limit > 0 => delivered.over_limit += behind as u32,
            Some(behind) if delivered.too_small > 0 => delivered.too_small += behind as u32,
            Some(behind) => delivered.no_buffer += behind as u32,
        }
        delivered
    }

    /// Calls `each` with the resulting frames until it returns `false`. Returns the number of
    /// remaining frames, or `None` if the offload cannot be completed.
    fn cut(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        mut each: impl FnMut(&Segment<'_>) -> bool,
    ) -> Option<usize> {
        let offload = self.take(burst, frame, edit)?;
        if offload.gso_type == GSO_NONE {
            complete_checksum(&mut self.0, &offload).ok()?;
            each(&Segment { headers: &self.0, payload: &[] });
            return Some(0);
        }
        let mut segments = Segments::new(&self.0, &offload).ok()?;
        while let Some(segment) = segments.next() {
            if !each(&segment) {
                break;
            }
        }
        Some(segments.len())
    }

    /// Copies the edited frame here; returns its offload.
    fn take(&mut self, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Option<NetHeader> {
        let edited = HeaderEdit::new(edit, &burst.headers[frame], burst.frames[frame].len);
        self.0.clear();
        append(burst, frame, &edited, &mut self.0);
        edited.offload(burst.offload(frame))
    }
}

/// Appends a frame of the burst to `bytes`: edited header, rest of the snapshot, and the remaining
/// bytes as they are now.
pub(crate) fn append(burst: &Burst<'_>, frame: usize, edited: &HeaderEdit, bytes: &mut Vec<u8>) {
    continue_frame(burst, frame, edited, bytes.len(), u32::MAX, bytes);
}

/// Continues a frame that begins at `begin` in `bytes`, until there are at least `most` of its
/// bytes or all.
pub(crate) fn continue_frame(
    burst: &Burst<'_>,
    frame: usize,
    edited: &HeaderEdit,
    begin: usize,
    most: u32,
    bytes: &mut Vec<u8>,
) {
    let source = &burst.frames[frame];
    if bytes.len() == begin {
        bytes.extend_from_slice(&edited.bytes[..edited.len as usize]);
        let snapshot = burst.snapshots.get(frame).map_or(&[][..], HeaderSnapshot::bytes);
        let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
        bytes.extend_from_slice(snapshot.get(edited.replaces as usize..).unwrap_or(&[]));
    }
    let known = bytes.len() - begin;
    let end = edited.len_of(source.len).min(most) as usize;
    if end > known {
        bytes.resize(begin + end, 0);
        let at = known as u32 - edited.len + edited.replaces;
        source.read_bytes(burst.arena, at, &mut bytes[begin + known..]);
    }
}

//! Frames without anything left to do, made of one that has.
//!
//! Where a receiver does not make checksums, or takes no segments in one piece, what the sender
//! left to be done is done here: the frame is copied into memory of the lane's, where no guest can
//! change it under the sums, and then cut and summed by [`wire::segment`].

use wire::checksum;
use wire::segment::{Segment, Segments};
use wire::virtio_net::GSO_NONE;

use crate::burst::{Burst, DeepHead, Front, VlanEdit};
use crate::{Delivered, Offload};

/// The lane's memory for it; empty until it is needed.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    /// Hands the plain frames that a frame comes to, `edit` made, to `send` one by one, until one
    /// is refused: what is behind that meets the same, and is counted so. Says what became of all.
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
            None => delivered.too_small += 1, // what is said to be left does not fit the frame
            Some(behind) if delivered.over_limit > 0 => delivered.over_limit += behind as u32,
            Some(behind) if delivered.too_small > 0 => delivered.too_small += behind as u32,
            Some(behind) => delivered.no_buffer += behind as u32,
        }
        delivered
    }

    /// Calls `each` with the plain frames until it says no; how many are behind that one, or `None`
    /// if nothing can be made of the frame.
    fn cut(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        mut each: impl FnMut(&Segment<'_>) -> bool,
    ) -> Option<usize> {
        let offload = self.take(burst, frame, edit)?;
        if offload.gso_type == GSO_NONE {
            checksum::complete(&mut self.0, &offload).ok()?;
            each(&Segment { head: &self.0, payload: &[] });
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

    /// Copies the edited frame here; what is left to do on it then.
    fn take(&mut self, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Option<Offload> {
        let front = Front::new(edit, &burst.heads[frame], burst.frames[frame].len);
        self.0.clear();
        append(burst, frame, &front, &mut self.0);
        front.offload(burst.offload(frame))
    }
}

/// Copies a frame of the burst behind `bytes`: its edited front, what else was snapshot, and the
/// rest as it is now.
pub(crate) fn append(burst: &Burst<'_>, frame: usize, front: &Front, bytes: &mut Vec<u8>) {
    let source = &burst.frames[frame];
    let begin = bytes.len();
    bytes.extend_from_slice(&front.bytes[..front.len as usize]);
    let snapshot = burst.deep.get(frame).map_or(&[][..], DeepHead::bytes);
    let snapshot = &snapshot[..snapshot.len().min(source.len as usize)];
    let behind = snapshot.get(front.replaces as usize..).unwrap_or(&[]);
    bytes.extend_from_slice(behind);
    let known = bytes.len();
    bytes.resize(begin + front.len_of(source.len) as usize, 0);
    source.read_bytes(burst.arena, front.replaces + behind.len() as u32, &mut bytes[known..]);
}

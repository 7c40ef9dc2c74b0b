//! Frames without anything left to do, made of one that has.
//!
//! Where a receiver does not make checksums, or takes no segments in one piece, what the sender left
//! to be done is done here: the frame is copied into memory of the lane's, where no guest can change
//! it under the sums, and then cut and summed by [`wire::segment`].

use std::ops::ControlFlow;

use wire::checksum;
use wire::segment::{Segment, Segments};
use wire::virtio_net::GSO_NONE;

use crate::Offload;
use crate::burst::{Burst, DeepHead, Front, VlanEdit};

/// The lane's memory for it; empty until it is needed.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<u8>);

/// Nothing can be made of the frame: what it says is left to do does not fit what it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfit;

impl Scratch {
    /// Calls `each` with the plain frames that a frame comes to, `edit` made, until one breaks; says
    /// how many there are in all, and how many `each` took.
    pub(crate) fn resolve(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        mut each: impl FnMut(&Segment<'_>) -> ControlFlow<()>,
    ) -> Result<(usize, usize), Unfit> {
        let offload = self.take(burst, frame, edit)?;
        if offload.gso_type == GSO_NONE {
            checksum::complete(&mut self.0, &offload).map_err(|_| Unfit)?;
            let whole = Segment { head: &self.0, payload: &[] };
            return Ok((1, usize::from(each(&whole).is_continue())));
        }
        let mut segments = Segments::new(&self.0, &offload).map_err(|_| Unfit)?;
        let all = segments.len();
        let mut taken = 0;
        while let Some(segment) = segments.next() {
            if each(&segment).is_break() {
                break;
            }
            taken += 1;
        }
        Ok((all, taken))
    }

    /// Copies the edited frame here; what is left to do on it then.
    fn take(&mut self, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Result<Offload, Unfit> {
        let source = &burst.frames[frame];
        let front = Front::new(edit, &burst.heads[frame], source.len);
        self.0.clear();
        append(burst, frame, &front, &mut self.0);
        front.offload(burst.offload(frame)).ok_or(Unfit)
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

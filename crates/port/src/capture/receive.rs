//! Receive half of a capture: the lane's side.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;

use wire::segment::Segment;

use super::ring::{Producer, Record, RingSlices};
use super::{CaptureState, now_ns};
use crate::burst::{Burst, Delivered, HeaderEdit, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::deliver::SliceWriter;
use crate::half::{Notification, Receive};
use crate::software_offload::OffloadScratch;

/// Receive half of a capture.
#[derive(Debug)]
pub(super) struct CaptureReceive {
    input: RingInput,
    shared: Arc<CaptureState>,
    writer: Thread,
}

/// End of the lane in the ring.
#[derive(Debug)]
struct RingInput {
    producer: Producer,
    snap_len: u32,
    /// Frames dropped since the last record.
    missed: u64,
}

impl RingInput {
    /// Writes the record of a frame of `len` bytes, and then the frame with `write`.
    fn take<'a>(
        &'a mut self,
        len: u32,
        time_ns: u64,
        write: impl FnOnce(&mut SliceWriter<'a, RingSlices<'a>>),
    ) -> Delivered {
        let captured = len.min(self.snap_len);
        let Some(room) = self.producer.claim(Record::LEN + captured) else {
            return Delivered { no_buffer: 1, ..Delivered::default() };
        };
        let record = Record { time_ns, captured, len, missed: std::mem::take(&mut self.missed) };
        let mut writer = SliceWriter::new(room);
        writer.write(&record.to_bytes());
        write(&mut writer);
        Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() }
    }
}

impl CaptureReceive {
    pub(super) fn new(
        producer: Producer,
        snap_len: u32,
        shared: Arc<CaptureState>,
        writer: Thread,
    ) -> CaptureReceive {
        let input = RingInput { producer, snap_len, missed: 0 };
        CaptureReceive { input, shared, writer }
    }

    /// Copies a frame, or the frames that its software offload makes.
    fn take(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        time_ns: u64,
        scratch: &mut OffloadScratch,
    ) -> Delivered {
        let input = &mut self.input;
        if burst.offload(frame).is_plain() {
            let edited = HeaderEdit::new(edit, &burst.headers[frame], burst.frames[frame].len);
            let len = edited.len_of(burst.frames[frame].len);
            return input.take(len, time_ns, |writer| writer.frame(burst, frame, edited));
        }
        scratch.deliver(burst, frame, edit, |Segment { headers, payload, .. }| {
            let len = (headers.len() + payload.len()) as u32;
            input.take(len, time_ns, |writer| {
                writer.write(headers);
                writer.write(payload);
            })
        })
    }
}

impl Receive for CaptureReceive {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        if self.shared.closed.load(Ordering::Relaxed) {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        let time_ns = now_ns();
        for index in indices {
            let (frame, scratch) = (usize::from(*index), &mut buffers.scratch);
            let more = self.take(burst, frame, edit, time_ns, scratch);
            delivered.add(more);
            self.input.missed += u64::from(more.no_buffer);
        }
        delivered
    }

    /// No notification: the writer polls, so the lane makes no system call.
    fn publish(&mut self) -> Notification {
        self.input.producer.publish();
        Notification::Unneeded
    }
}

impl Drop for CaptureReceive {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

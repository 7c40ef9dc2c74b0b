//! The receive half: what a lane does for a capture.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::{SystemTime, UNIX_EPOCH};

use wire::segment::Segment;

use super::Shared;
use super::ring::{Producer, Record, Room};
use crate::burst::{Burst, BurstBuffers, Front, VlanEdit};
use crate::deliver::Writer;
use crate::plain::Scratch;
use crate::{Delivered, Receive};

/// The receive half.
#[derive(Debug)]
pub(super) struct Half {
    input: Input,
    scratch: Scratch,
    shared: Arc<Shared>,
    writer: Thread,
}

/// The lane's end of the ring.
#[derive(Debug)]
struct Input {
    producer: Producer,
    snap_len: u32,
    /// Frames for which there was no room since the last for which there was.
    missed: u64,
}

impl Input {
    /// Takes a frame of `len` bytes, which are written behind its record.
    fn take<'a>(
        &'a mut self,
        len: u32,
        time_ns: u64,
        write: impl FnOnce(&mut Writer<'a, Room<'a>>),
    ) -> Delivered {
        let captured = len.min(self.snap_len);
        let Some(room) = self.producer.claim(Record::LEN + captured) else {
            return Delivered { no_buffer: 1, ..Delivered::default() };
        };
        let record = Record { time_ns, captured, len, missed: std::mem::take(&mut self.missed) };
        let mut writer = Writer::new(room);
        writer.write(&record.to_bytes());
        write(&mut writer);
        Delivered { frames: 1, bytes: u64::from(len), ..Delivered::default() }
    }
}

impl Half {
    pub(super) fn new(
        producer: Producer,
        snap_len: u32,
        shared: Arc<Shared>,
        writer: Thread,
    ) -> Half {
        let input = Input { producer, snap_len, missed: 0 };
        Half { input, scratch: Scratch::default(), shared, writer }
    }

    /// Copies a frame, or those that it comes to when nothing is left to do on it.
    fn take(&mut self, burst: &Burst<'_>, frame: usize, edit: VlanEdit, time_ns: u64) -> Delivered {
        let Half { input, scratch, .. } = self;
        if burst.offload(frame).is_plain() {
            let front = Front::new(edit, &burst.heads[frame], burst.frames[frame].len);
            let len = front.len_of(burst.frames[frame].len);
            return input.take(len, time_ns, |writer| writer.frame(burst, frame, front));
        }
        scratch.deliver(burst, frame, edit, |Segment { head, payload, .. }| {
            let len = (head.len() + payload.len()) as u32;
            input.take(len, time_ns, |writer| {
                writer.write(head);
                writer.write(payload);
            })
        })
    }
}

impl Receive for Half {
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        if self.shared.closed.load(Ordering::Relaxed) {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        let time_ns = now_ns();
        for index in indices {
            let more = self.take(burst, usize::from(*index), edit, time_ns);
            delivered.add(more);
            self.input.missed += u64::from(more.no_buffer);
        }
        delivered
    }

    /// Nobody is notified: the writer looks by itself, so that the lane need not call the kernel.
    fn publish(&mut self) -> bool {
        self.input.producer.publish();
        false
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

/// Since the epoch; 0 if the clock is before it.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

//! Halves of a traced frame: one frame of an operator enters, and delivered frames are recorded.
//!
//! # Model
//! A trace forwards a frame with the code of the lanes, between ports of its own. [`TracedFrame`]
//! is the transmit half: the frame in memory of our own, validated by the rules of the half that it
//! stands for. [`TraceReceive`] is the receive half of each port: it records frames with their
//! edits in a [`DeliveryLog`], in order.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use guestmem::{FramePool, MapError, Pages};

use crate::burst::{Burst, Delivered, HeaderEdit, NetHeader, Polled, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::half::{Notification, Readiness, Receive, Transmit};
use crate::kernel::RxBuffer;
use crate::software_offload::append;
use crate::validate::{FrameRules, Malformed};

/// Transmit half with one frame, for one poll.
#[derive(Debug)]
pub struct TracedFrame {
    rx_buffer: RxBuffer,
    len: u32,
}

impl TracedFrame {
    /// Copies a frame of at most 65535 bytes and two tags; further bytes are cut off.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn new(frame: &[u8], rules: FrameRules) -> Result<TracedFrame, MapError> {
        let len = frame.len().min(FrameRules::LARGEST.frame_bytes_max as usize);
        let bytes = (len as u64).next_multiple_of(4096).max(4096);
        let pool = FramePool::create("shunt-trace", bytes, Pages::Ordinary)?;
        let rx_buffer = RxBuffer::of(pool, rules);
        rx_buffer.room(0, len as u32).write_bytes(&frame[..len]);
        Ok(TracedFrame { rx_buffer, len: len as u32 })
    }
}

impl Transmit for TracedFrame {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        self.rx_buffer.clear();
        buffers.begin();
        self.rx_buffer.take(0, self.len, NetHeader::PLAIN);
        let mut polled = self.rx_buffer.validate(buffers);
        if self.frame_rules().frame_bytes_max == 0 {
            // A disabled ring: no other reason counts.
            buffers.malformed = 1;
            buffers.reasons.fill(Malformed::Disabled);
            (polled.runts, polled.oversize, polled.disabled) = (0, 0, 1);
        }
        polled
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        self.rx_buffer.burst(buffers)
    }

    fn complete(&mut self) -> Notification {
        Notification::Unneeded
    }

    fn enable_notification(&mut self) -> Readiness {
        Readiness::Empty
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame_rules(&self) -> FrameRules {
        self.rx_buffer.rules()
    }
}

/// A frame as it was delivered to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedDelivery {
    /// Number of the port, as given to [`TraceReceive::new`].
    pub port: usize,
    /// Edit of its tags, all stages together.
    pub edit: VlanEdit,
    /// The frame after the edit.
    pub frame: Vec<u8>,
}

/// Deliveries to all ports of a trace. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct DeliveryLog(Arc<Mutex<Vec<TracedDelivery>>>);

impl DeliveryLog {
    /// Takes all deliveries, in their order.
    pub fn take(&self) -> Vec<TracedDelivery> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Receive half that records frames.
#[derive(Debug)]
pub struct TraceReceive {
    port: usize,
    parks: bool,
    log: DeliveryLog,
}

impl TraceReceive {
    /// Records the frames of port `port`. With `parks` they do not count as delivered, as in
    /// [`parked`](crate::parked).
    pub fn new(port: usize, parks: bool, log: DeliveryLog) -> TraceReceive {
        TraceReceive { port, parks, log }
    }
}

impl Receive for TraceReceive {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        _: &mut BurstBuffers,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        for index in indices {
            let index = usize::from(*index);
            let edited = HeaderEdit::new(edit, &burst.headers[index], burst.frames[index].len);
            let mut frame = Vec::new();
            append(burst, index, &edited, &mut frame);
            if !self.parks {
                delivered.frames += 1;
                delivered.bytes += frame.len() as u64;
            }
            let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
            log.push(TracedDelivery { port: self.port, edit, frame });
        }
        delivered
    }

    fn publish(&mut self) -> Notification {
        Notification::Unneeded
    }
}

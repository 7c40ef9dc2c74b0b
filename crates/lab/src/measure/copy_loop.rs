//! The bare loop: pairs of guests, one copy from ring to ring.
//!
//! # Model
//! A turn serves one pair: it stages the transmit ring of each guest and the receive ring of the
//! other, looks each destination address up in a table of 256 entries, copies each frame with its
//! header, and publishes both rings once a burst. Only rings and lengths are checked.
//!
//! # Limits
//! - A frame leaves by the other port of its pair, even if the table does not have its address
//!   ([`Counters::unknown`]): a table entry holds the last address with its hash.
//! - A frame is received in one buffer, with mergeable buffers too; a longer one is dropped.
//! - A chain of several descriptors is copied twice, through memory of the loop's own
//!   ([`Counters::chained`]).

use std::sync::Arc;

use host::tsc;
use serde::{Deserialize, Serialize};
use vhost_user::ForeignFd;
use virtq::{BURST, DeviceQueue};
use wire::Mac;

/// Bytes of the virtio-net header before each frame (virtio 1.2, section 5.1.6).
pub const HEADER: u32 = 12;
/// Offset of the header's `num_buffers`.
pub const NUM_BUFFERS: u32 = 10;
/// Minimum bytes of a header and a frame: the table's key is read as 16 bytes.
const FRAME_MIN: u32 = HEADER + 16;

/// Device side of a running ring.
#[derive(Debug)]
pub struct Ring {
    /// The ring.
    pub queue: DeviceQueue,
    /// Eventfd that interrupts the guest; `None`: the guest polls.
    pub call: Option<Arc<ForeignFd>>,
}

impl Ring {
    /// Publishes used buffers, and interrupts the guest if it asks for that.
    #[inline(always)]
    pub fn publish(&mut self) {
        if self.queue.publish() {
            self.interrupt();
        }
    }

    /// Interrupts the guest.
    #[cold]
    pub fn interrupt(&self) {
        if let Some(call) = &self.call {
            // The only failure of an eventfd is a full counter: an interrupt is then pending.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }
}

/// Rings of one guest; `None`: the ring is stopped.
#[derive(Debug, Default)]
pub struct Rings {
    /// The guest's transmit ring.
    pub tx: Option<Ring>,
    /// The guest's receive ring.
    pub rx: Option<Ring>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames delivered.
    pub frames: u64,
    /// Bursts in which a frame was delivered or dropped.
    pub bursts: u64,
    /// Frames dropped: too short, or longer than the receive buffer.
    pub dropped: u64,
    /// Frames delivered whose destination is not in the table.
    pub unknown: u64,
    /// Frames delivered from or to a chain of several descriptors.
    pub chained: u64,
    /// Time-stamp cycles of turns that moved a frame.
    pub busy_cycles: u64,
    /// All other time-stamp cycles.
    pub idle_cycles: u64,
}

/// The loop's table, delay and counters.
#[derive(Debug)]
pub struct CopyLoop {
    table: [u64; 256],
    delay_cycles: u64,
    /// Counters since the start.
    pub counters: Counters,
}

impl CopyLoop {
    /// A loop between guests of these addresses, which spins `delay_cycles` for each frame.
    pub fn new(addresses: impl IntoIterator<Item = Mac>, delay_cycles: u64) -> CopyLoop {
        let mut table = [0u64; 256];
        for Mac(mac) in addresses {
            let mut header = [0; 16];
            header[..6].copy_from_slice(&mac);
            let key = key(header);
            table[slot(key)] = key;
        }
        CopyLoop { table, delay_cycles, counters: Counters::default() }
    }

    /// Makes one turn over both directions of a pair; `begin` is the time-stamp counter at its
    /// start. Returns the counter at its end.
    #[inline(always)]
    pub fn turn(&mut self, a: &mut Rings, b: &mut Rings, begin: u64) -> u64 {
        let moved = self.forward(&mut a.tx, &mut b.rx) | self.forward(&mut b.tx, &mut a.rx);
        let end = tsc::now();
        let cycles = match moved {
            true => &mut self.counters.busy_cycles,
            false => &mut self.counters.idle_cycles,
        };
        *cycles += end.wrapping_sub(begin);
        end
    }

    /// Moves up to a burst of frames; returns `true` if there were any.
    #[inline(always)]
    fn forward(&mut self, tx: &mut Option<Ring>, rx: &mut Option<Ring>) -> bool {
        let (Some(tx), Some(rx)) = (tx, rx) else { return false };
        let n = tx.queue.stage(BURST);
        if n == 0 {
            return false;
        }
        let n = rx.queue.stage(BURST).min(n);
        if n == 0 {
            return false;
        }
        if !self.copy_burst(&mut tx.queue, &mut rx.queue, n) {
            self.copy_chains(&mut tx.queue, &mut rx.queue, n);
        }
        rx.publish();
        tx.publish();
        self.counters.bursts += 1;
        true
    }

    /// Copies the first `n` staged frames if each is in one piece and fits its buffer; otherwise
    /// does nothing and returns `false`.
    #[inline(always)]
    fn copy_burst(&mut self, tx: &mut DeviceQueue, rx: &mut DeviceQueue, n: usize) -> bool {
        let (frames, targets) = (&tx.buffers().0[..n], &rx.buffers().0[..n]);
        let mut known = 0;
        for (frame, target) in frames.iter().zip(targets) {
            let is_whole = frame.rest_len | target.rest_len == 0;
            if !is_whole || frame.len > target.len || frame.len < FRAME_MIN {
                return false;
            }
            let key = key(frame.first.skip(HEADER).read_header());
            known += u64::from(self.table[slot(key)] == key);
        }
        let mut lens = [0; BURST];
        for ((frame, target), len) in frames.iter().zip(targets).zip(&mut lens[..n]) {
            target.first.copy_from(frame.first, frame.len);
            target.first.write(NUM_BUFFERS, 1u16.to_le_bytes());
            *len = frame.len;
        }
        self.delay(n);
        rx.add_used_batch(&lens[..n]);
        tx.add_used_batch(&[0; BURST][..n]);
        self.counters.frames += n as u64;
        self.counters.unknown += n as u64 - known;
        true
    }

    /// Copies the first `n` staged frames, in any number of pieces; drops those that do not fit.
    #[cold]
    fn copy_chains(&mut self, tx: &mut DeviceQueue, rx: &mut DeviceQueue, n: usize) {
        let mut bytes = Vec::new();
        for _ in 0..n {
            let ((frames, frame_rest), (targets, target_rest)) = (tx.buffers(), rx.buffers());
            let (Some(frame), Some(target)) = (frames.first(), targets.first()) else { break };
            let len = frame.len;
            if len < FRAME_MIN || len > target.len {
                self.counters.dropped += 1;
                tx.add_used(0);
                continue;
            }
            bytes.resize(len as usize, 0);
            frame.read_bytes(frame_rest, 0, &mut bytes);
            bytes[NUM_BUFFERS as usize..HEADER as usize].copy_from_slice(&1u16.to_le_bytes());
            let mut header = [0; 16];
            header.copy_from_slice(&bytes[HEADER as usize..][..16]);
            let key = key(header);
            let mut done = 0;
            for slice in target.slices(target_rest) {
                done += slice.write_bytes(&bytes[done..]) as usize;
            }
            self.counters.chained += u64::from(frame.rest_len | target.rest_len != 0);
            self.counters.unknown += u64::from(self.table[slot(key)] != key);
            self.counters.frames += 1;
            rx.add_used(len);
            tx.add_used(0);
        }
        self.delay(n);
    }

    /// Spins for the delay of `n` frames at once, so that short delays are exact.
    #[inline(always)]
    fn delay(&self, n: usize) {
        if self.delay_cycles == 0 {
            return;
        }
        let (begin, cycles) = (tsc::now(), self.delay_cycles.saturating_mul(n as u64));
        while tsc::now().wrapping_sub(begin) < cycles {
            std::hint::spin_loop();
        }
    }
}

fn key(header: [u8; 16]) -> u64 {
    u128::from_le_bytes(header) as u64 & 0xffff_ffff_ffff
}

fn slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

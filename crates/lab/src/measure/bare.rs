//! The bare loop between two guests of this process: the least that a copy from ring to ring costs.
//!
//! The guests share one thread and give their buffers back as soon as they are used; one switch
//! thread runs [`copy_loop`]: one destination, no drops. A bound for the daemon, not a design.

pub mod copy_loop;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use copy_loop::{CopyLoop, HEADER, Ring, Rings};
use guestmem::{GuestMemory, Pages, SharedFile};
use host::tsc;
use virtq::{Content, DeviceQueue, DriverQueue, Features, Segment, Start};
use wire::Mac;

/// Entries of every ring, and bytes of every buffer.
const RING: u16 = 1024;
const BUFFER: u64 = 2048;
/// From one buffer to the next: not a power of two, or all would compete for the same cache sets.
const STRIDE: u64 = 2112;
/// Where the first begins: frames behind their headers are then aligned to cache lines.
const FIRST: u64 = 64 - HEADER as u64;
/// Frames in flight each way.
const IN_FLIGHT: u16 = 512;
const BASE: u64 = 1 << 32;

/// What was measured.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Bare {
    /// Frames that were copied.
    pub frames: u64,
    /// Busy time-stamp cycles for each.
    pub cycles_per_frame: f64,
    /// Millions of frames a second.
    pub mpps: f64,
    /// Frames in a burst, on average.
    pub burst_mean: f64,
}

/// Where the two threads run.
#[derive(Clone, Copy, Debug)]
pub struct Pinning {
    /// CPU of the switch.
    pub switch: usize,
    /// CPU of the guests.
    pub guests: usize,
}

/// Runs the loop with frames of `frame_bytes` (with FCS, which is not in memory).
pub fn run(
    frame_bytes: u32,
    warmup: Duration,
    time: Duration,
    pages: Pages,
    pinning: Pinning,
) -> Result<Bare> {
    let frame = frame_bytes.checked_sub(4).context("a frame has at least its FCS of 4 bytes")?;
    let mut guests = [Guest::new(pages)?, Guest::new(pages)?];
    let mut ends = [guests[0].device()?, guests[1].device()?];
    for (guest, peer) in [(0, 1u8), (1, 0u8)] {
        guests[guest].fill(frame, peer)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let recycler = std::thread::Builder::new().name("guests".into()).spawn(move || {
        let pinned = host::cpu::pin_this_thread(pinning.guests);
        while !stopped.load(Ordering::Relaxed) {
            for guest in &mut guests {
                guest.step();
            }
        }
        pinned
    })?;
    let measured = std::thread::Builder::new().name("switch".into()).spawn(move || {
        host::cpu::pin_this_thread(pinning.switch)?;
        switch(&mut ends, warmup);
        Ok::<Bare, host::cpu::PinError>(switch(&mut ends, time))
    })?;
    let bare = measured.join().expect("the switch's thread does not panic");
    stop.store(true, Ordering::Relaxed);
    recycler.join().expect("the guests' thread does not panic")?;
    Ok(bare?)
}

struct Guest {
    memory: Arc<GuestMemory>,
    tx: DriverQueue,
    rx: DriverQueue,
}

impl Guest {
    fn new(pages: Pages) -> Result<Guest> {
        let rings = 2 * DriverQueue::bytes(RING);
        let size = (rings + 2 * u64::from(RING) * STRIDE + FIRST).next_multiple_of(2 << 20);
        let file = SharedFile::create("bare", size, pages)?;
        let memory = virtq::guest_memory(&file, BASE)?;
        let tx = DriverQueue::new(memory.clone(), BASE, RING, Features::empty())?;
        let at = BASE + DriverQueue::bytes(RING);
        let rx = DriverQueue::new(memory.clone(), at, RING, Features::empty())?;
        Ok(Guest { memory, tx, rx })
    }

    fn device(&self) -> Result<Rings> {
        let ring = |queue: &DriverQueue, content| {
            let (memory, addresses) = (self.memory.clone(), queue.addresses());
            let (features, start) = (Features::empty(), Start::default());
            let queue = DeviceQueue::new(memory, &addresses, RING, features, content, start)?;
            Ok::<_, virtq::SetupError>(Some(Ring { queue, call: None }))
        };
        let tx = ring(&self.tx, Content::Readable { header: 0, keep: false })?;
        Ok(Rings { tx, rx: ring(&self.rx, Content::Writable)? })
    }

    /// Posts frames for `peer`, and all receive buffers.
    fn fill(&mut self, frame: u32, peer: u8) -> Result<()> {
        let buffers = BASE + 2 * DriverQueue::bytes(RING) + FIRST;
        for i in 0..u64::from(RING) {
            let addr = buffers + i * STRIDE;
            let buffer = self.memory.slice(addr, BUFFER as u32).context("buffers are inside")?;
            buffer.write(HEADER, [2, 0, 0, 0, 0, peer, 2, 0, 0, 0, 0, 1 - peer, 8, 0]);
            if i < u64::from(IN_FLIGHT) {
                self.tx.post(Segment { addr, len: HEADER + frame, writable: false });
            }
            let addr = addr + u64::from(RING) * STRIDE;
            self.rx.post(Segment { addr, len: BUFFER as u32, writable: true });
        }
        self.tx.publish();
        self.rx.publish();
        Ok(())
    }

    fn step(&mut self) {
        for queue in [&mut self.tx, &mut self.rx] {
            if queue.recycle() > 0 {
                queue.publish();
            }
        }
    }
}

fn switch([a, b]: &mut [Rings; 2], time: Duration) -> Bare {
    let addresses = [0, 1].map(|guest| Mac([2, 0, 0, 0, 0, guest]));
    let mut bare = CopyLoop::new(addresses, 0);
    let until = tsc::duration_to_cycles(time);
    let start = tsc::now();
    let mut now = start;
    while now.wrapping_sub(start) < until {
        now = bare.turn(a, b, now);
    }
    let seconds = now.wrapping_sub(start) as f64 / tsc::hz();
    let copy_loop::Counters { frames, bursts, busy_cycles, unknown, .. } = bare.counters;
    assert_eq!(unknown, 0, "every frame is for one of the two guests");
    Bare {
        frames,
        cycles_per_frame: busy_cycles as f64 / frames as f64,
        mpps: frames as f64 / seconds / 1e6,
        burst_mean: frames as f64 / bursts as f64,
    }
}

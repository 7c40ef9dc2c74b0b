//! The bare loop: what one copy from ring to ring costs with nothing around it.
//!
//! Two guests on one thread give their buffers back as soon as they are used; one switch thread
//! stages both rings, looks the destination address up in a table of 256 entries, copies each
//! frame with its header, and publishes both rings once a burst. No other checks than those of the
//! rings, one destination, no drops, no counters: a bound for the daemon, not a design.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use guestmem::{GuestMemory, Pages, SharedFile};
use host::tsc;
use virtq::{BURST, Content, DeviceQueue, DriverQueue, Features, Segment, Start};

/// Entries of every ring, and bytes of every buffer.
const RING: u16 = 1024;
const BUFFER: u64 = 2048;
/// From one buffer to the next: not a power of two, or all would compete for the same cache sets.
const STRIDE: u64 = 2112;
/// Where the first begins: frames behind their headers are then aligned to cache lines.
const FIRST: u64 = 64 - HEADER as u64;
/// Frames in flight each way.
const IN_FLIGHT: u16 = 512;
/// Bytes of the virtio-net header before each frame.
const HEADER: u32 = 12;
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

/// The switch's view of a guest.
struct End {
    tx: DeviceQueue,
    rx: DeviceQueue,
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

    fn device(&self) -> Result<End> {
        let end = |queue: &DriverQueue, content| {
            let memory = self.memory.clone();
            DeviceQueue::new(
                memory,
                &queue.addresses(),
                RING,
                Features::empty(),
                content,
                Start::default(),
            )
        };
        let tx = end(&self.tx, Content::Readable { header: 0, keep: false })?;
        Ok(End { tx, rx: end(&self.rx, Content::Writable)? })
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

fn switch(ends: &mut [End; 2], time: Duration) -> Bare {
    let mut table = [0u64; 256];
    for peer in 0..2u8 {
        let key = key([2, 0, 0, 0, 0, peer, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        table[slot(key)] = key;
    }
    let until = tsc::duration_to_cycles(time);
    let start = tsc::now();
    let (mut frames, mut busy, mut bursts) = (0, 0, 0u64);
    let mut begin = start;
    while begin.wrapping_sub(start) < until {
        let [a, b] = &mut *ends;
        let n = forward(&mut a.tx, &mut b.rx, &table) + forward(&mut b.tx, &mut a.rx, &table);
        let end = tsc::now();
        if n > 0 {
            frames += n as u64;
            busy += end.wrapping_sub(begin);
            bursts += 2;
        }
        begin = end;
    }
    let seconds = begin.wrapping_sub(start) as f64 / tsc::hz();
    Bare {
        frames,
        cycles_per_frame: busy as f64 / frames as f64,
        mpps: frames as f64 / seconds / 1e6,
        burst_mean: frames as f64 / bursts as f64,
    }
}

fn key(head: [u8; 16]) -> u64 {
    u128::from_le_bytes(head) as u64 & 0xffff_ffff_ffff
}

fn slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

fn forward(tx: &mut DeviceQueue, rx: &mut DeviceQueue, table: &[u64; 256]) -> usize {
    let n = tx.stage(BURST);
    if n == 0 {
        return 0;
    }
    let n = rx.stage(n).min(n);
    if n == 0 {
        return 0;
    }
    let mut known = 0;
    for frame in &tx.buffers().0[..n] {
        let key = key(frame.first.skip(HEADER).read_head());
        known += usize::from(table[slot(key)] == key);
    }
    assert_eq!(known, n, "every frame is for one of the two guests");
    let mut lens = [0; BURST];
    for ((frame, target), len) in tx.buffers().0.iter().zip(rx.buffers().0).zip(&mut lens[..n]) {
        target.first.copy_from(frame.first, frame.len);
        target.first.write(10, 1u16.to_le_bytes());
        *len = frame.len;
    }
    rx.use_each(&lens[..n]);
    tx.use_each(&[0; BURST][..n]);
    rx.publish();
    tx.publish();
    n
}

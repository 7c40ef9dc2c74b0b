//! Frames parked for a guest that is paused while it migrates to another host.
//!
//! # Model
//! [`ParkedFrames`] is a list of frames in memory of our own. While no ring of the guest runs, its
//! [parking half](ParkedFrames::parking_half) takes the delivered frames. When a ring runs, the
//! ring is put [behind](ParkedFrames::draining_half) the list: parked frames are delivered first,
//! as far as the guest has buffers, and new frames queue up. So the order is kept. Frames parked on
//! the source host come [first](ParkedFrames::put_first).
//!
//! [`Receive::drain_parked`] delivers parked frames off the hot path. A lane drains at most two
//! bursts with each delivery. It drains none while the guest had no buffers at the last attempt:
//! then it only parks new frames.
//!
//! A parked frame is complete: its checksum and segmentation are done, whatever its receiver
//! accepts. It is counted when it is delivered, not when it is parked.
//!
//! # Limits
//! [`FRAMES_MAX`] frames of [`BYTES_MAX`] bytes together; further frames are dropped as for want of
//! a buffer. Frames are delivered from an arena of [`ARENA`] bytes, allocated before a lane needs
//! it. Only frames of migrating guests pass here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guestmem::{Buffer, Pages, SharedFile};

use crate::burst::{BURST, Burst, Delivered, HeaderBytes, HeaderEdit, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::half::{GuestRing, Notification, Receive};
use crate::software_offload::{OffloadScratch, append};

/// Maximum number of parked frames.
pub const FRAMES_MAX: usize = 8192;
/// Maximum bytes of parked frames.
pub const BYTES_MAX: usize = 8 << 20;
/// Bytes of the arena for one delivery; no frame is longer.
const ARENA: usize = 128 << 10;
/// Bursts that a lane drains with each delivery.
const DRAIN_BURSTS_MAX: usize = 2;

/// Frames parked for a guest. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct ParkedFrames(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    list: Mutex<List>,
    /// Set while the list is not empty: a hint that saves its lock.
    waiting: AtomicBool,
    /// Set if the guest had no buffer at the last attempt.
    full: AtomicBool,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    /// Frames from the source host, older than all others.
    first: VecDeque<Vec<u8>>,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Memory from which frames are delivered.
    arena: Option<FrameArena>,
}

impl List {
    fn len(&self) -> usize {
        self.first.len() + self.frames.len()
    }

    fn has_room(&self, bytes: usize) -> bool {
        bytes <= ARENA && self.len() < FRAMES_MAX && self.bytes + bytes <= BYTES_MAX
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let frame = self.first.pop_front().or_else(|| self.frames.pop_front())?;
        self.bytes -= frame.len();
        Some(frame)
    }
}

impl ParkedFrames {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of parked frames.
    pub fn frames(&self) -> usize {
        self.list().len()
    }

    /// Returns `true` if frames are parked; takes no lock.
    pub fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire)
    }

    /// Number of frames lost for want of room.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Takes the number of lost frames and resets it.
    pub fn take_lost(&self) -> u64 {
        self.0.lost.swap(0, Ordering::Relaxed)
    }

    /// Takes all frames, oldest first, and the number of leading frames that came from the source
    /// host.
    pub fn take(&self) -> (Vec<Vec<u8>>, usize) {
        let mut list = self.list();
        self.0.waiting.store(false, Ordering::Release);
        let first = list.first.len();
        (std::iter::from_fn(|| list.pop()).collect(), first)
    }

    /// Adds frames from the source host: older than all others, behind those added before.
    pub fn put_first(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let mut list = self.list();
        for frame in frames {
            self.add(&mut list, frame, |list| &mut list.first);
        }
    }

    /// Receive half for the time while no ring of the guest runs.
    pub fn parking_half(&self) -> Box<dyn Receive> {
        Box::new(ParkingReceive { parked: self.clone() })
    }

    /// Puts `ring` behind the parked frames, which are delivered first.
    pub fn draining_half(&self, ring: Box<dyn Receive>) -> Box<dyn Receive> {
        self.prepare();
        self.0.full.store(false, Ordering::Relaxed);
        Box::new(DrainingReceive { parked: self.clone(), ring })
    }

    /// Parks one frame; returns `false` if there is no room.
    fn park(&self, frame: Vec<u8>) -> bool {
        self.add(&mut self.list(), frame, |list| &mut list.frames)
    }

    /// Adds a frame to one of the list's queues; returns `false` if there is no room.
    fn add(
        &self,
        list: &mut List,
        frame: Vec<u8>,
        to: impl FnOnce(&mut List) -> &mut VecDeque<Vec<u8>>,
    ) -> bool {
        let has_room = list.has_room(frame.len());
        if has_room {
            list.bytes += frame.len();
            to(list).push_back(frame);
            self.0.waiting.store(true, Ordering::Release);
        } else {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Parks the chosen frames of a burst, with checksums and segmentation done.
    fn park_all(
        &self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        scratch: &mut OffloadScratch,
    ) -> Delivered {
        let parked = |is: bool| Delivered { no_buffer: u32::from(!is), ..Delivered::default() };
        let mut delivered = Delivered::default();
        for index in indices {
            let frame = usize::from(*index);
            if burst.offload(frame).is_plain() {
                let edited = HeaderEdit::new(edit, &burst.headers[frame], burst.frames[frame].len);
                let mut bytes = Vec::new();
                append(burst, frame, &edited, &mut bytes);
                delivered.add(parked(self.park(bytes)));
            } else {
                let more = scratch.deliver(burst, frame, edit, |segment| {
                    let room = self.park([segment.headers, segment.payload].concat());
                    // The scratch continues only while frames count as delivered; taken back below.
                    Delivered { frames: u32::from(room), ..parked(room) }
                });
                delivered.add(Delivered { frames: 0, ..more });
            }
        }
        delivered
    }

    /// Allocates the arena, off the hot path.
    fn prepare(&self) {
        let mut list = self.list();
        if list.arena.is_none() {
            list.arena = FrameArena::new();
        }
    }

    /// Delivers up to a burst to a ring. After a failed attempt it tries a single frame.
    fn drain_parked(&self, ring: &mut dyn Receive, buffers: &mut BurstBuffers) -> Delivered {
        let mut list = self.list();
        let List { first, frames, arena, .. } = &*list;
        let Some(arena) = arena else { return Delivered::default() };
        let most = if self.is_full() { 1 } else { BURST };
        let mut bytes = 0;
        let fits = |frame: &&Vec<u8>| {
            bytes += frame.len();
            bytes <= ARENA
        };
        let batch: Vec<&Vec<u8>> = first.iter().chain(frames).take(most).take_while(fits).collect();
        let Some(delivered) = deliver(ring, &arena.0, &batch, buffers) else {
            return Delivered::default();
        };
        let done = batch.len() - delivered.no_buffer as usize;
        (0..done).for_each(|_| drop(list.pop()));
        self.0.full.store(delivered.no_buffer > 0, Ordering::Relaxed);
        self.0.waiting.store(list.len() > 0, Ordering::Release);
        // Frames without a buffer stay parked.
        Delivered { no_buffer: 0, ..delivered }
    }

    /// Returns `true` if the guest had no buffer at the last attempt.
    fn is_full(&self) -> bool {
        self.0.full.load(Ordering::Relaxed)
    }
}

/// Memory of our own from which frames are delivered.
#[derive(Debug)]
pub struct FrameArena(SharedFile);

impl FrameArena {
    /// Allocates an arena and all of its pages; `None` if the kernel has no memory left.
    pub fn new() -> Option<FrameArena> {
        let file = SharedFile::create("shunt-kept", ARENA as u64, Pages::Ordinary).ok()?;
        file.mapping().slice(0, ARENA)?.write_bytes(&vec![0; ARENA]);
        Some(FrameArena(file))
    }

    /// Delivers the leading frames, up to a burst, to a ring; returns their number and result.
    pub fn deliver(
        &self,
        ring: &mut dyn Receive,
        frames: &[Vec<u8>],
        buffers: &mut BurstBuffers,
    ) -> (usize, Delivered) {
        let mut bytes = 0;
        let fits = |frame: &&Vec<u8>| {
            bytes += frame.len();
            bytes <= ARENA
        };
        let batch: Vec<&Vec<u8>> = frames.iter().take(BURST).take_while(fits).collect();
        let delivered = deliver(ring, &self.0, &batch, buffers).unwrap_or_default();
        (batch.len(), delivered)
    }
}

/// Delivers frames of our own; `None` if they do not fit into the arena.
fn deliver(
    ring: &mut dyn Receive,
    arena: &SharedFile,
    frames: &[&Vec<u8>],
    buffers: &mut BurstBuffers,
) -> Option<Delivered> {
    let mut headers: Vec<HeaderBytes> = Vec::new();
    let mut pieces = Vec::new();
    let mut at = 0;
    for (id, frame) in frames.iter().enumerate() {
        let slice = arena.mapping().slice(at, frame.len())?;
        slice.write_bytes(frame);
        let mut header = [0; 16];
        let known = frame.len().min(header.len());
        header[..known].copy_from_slice(&frame[..known]);
        headers.push(header);
        pieces.push(Buffer::single(slice, id as u16));
        at += frame.len() as u64;
    }
    let burst = Burst::plain(&headers, &pieces);
    let indices: Vec<u8> = (0..frames.len() as u8).collect();
    Some(ring.deliver(&burst, &indices, VlanEdit::None, buffers))
}

/// Receive half while no ring runs.
struct ParkingReceive {
    parked: ParkedFrames,
}

impl Receive for ParkingReceive {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        self.parked.park_all(burst, indices, edit, &mut buffers.scratch)
    }

    fn publish(&mut self) -> Notification {
        Notification::Unneeded
    }
}

/// Ring behind parked frames.
struct DrainingReceive {
    parked: ParkedFrames,
    ring: Box<dyn Receive>,
}

impl Receive for DrainingReceive {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        if !self.parked.is_waiting() {
            return self.ring.deliver(burst, indices, edit, buffers);
        }
        let mut delivered = Delivered::default();
        for _ in 0..DRAIN_BURSTS_MAX {
            if self.parked.is_full() || !self.parked.is_waiting() {
                break;
            }
            let more = self.parked.drain_parked(&mut *self.ring, buffers);
            delivered.add(more);
            if more.fault.is_some() {
                return Delivered { fault: more.fault, ..delivered };
            }
        }
        let more = match self.parked.is_waiting() {
            true => self.parked.park_all(burst, indices, edit, &mut buffers.scratch),
            false => self.ring.deliver(burst, indices, edit, buffers),
        };
        delivered.add(more);
        delivered.fault = more.fault;
        delivered
    }

    fn publish(&mut self) -> Notification {
        self.ring.publish()
    }

    fn drain_parked(&mut self, buffers: &mut BurstBuffers) -> Delivered {
        if !self.parked.is_waiting() {
            return Delivered::default();
        }
        self.parked.prepare();
        self.parked.drain_parked(&mut *self.ring, buffers)
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        self.ring.guest_ring()
    }
}

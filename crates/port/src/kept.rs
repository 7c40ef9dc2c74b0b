//! Frames kept for a guest that stands still while it is moved to another host.
//!
//! # Model
//! A [`Kept`] is a list of frames in memory of our own. While no ring of the guest runs, its
//! [`half`](Kept::half) takes what is delivered to it; when one does, the ring is put
//! [`behind`](Kept::behind) the list: what is kept is handed on first, as far as the guest has
//! buffers, and what is new waits its turn, so that order is kept. Frames that were kept on another
//! host come [first](Kept::put_first).
//!
//! Whoever has the time hands on ([`Receive::hand_on`]). A lane does so only in passing, two bursts
//! a delivery, and not at all for a guest that had no buffers the last time somebody looked: then
//! it only keeps what comes.
//!
//! A frame that is kept is whole: nothing is left to do on it, whatever its receiver takes. It is
//! counted when it is handed on, not when it is kept.
//!
//! # Limits
//! [`FRAMES_MAX`] frames of [`BYTES_MAX`] bytes together; what is beyond is dropped as for want of
//! a buffer. Frames are handed on from [`ARENA`] bytes, which are there before a lane meets them.
//! Nothing here is on the way of a frame but for guests that are being moved.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guestmem::{Buffer, Pages, SharedFile};
use vhost_user::ForeignFd;
use virtq::Position;

use crate::burst::{BURST, Burst, BurstBuffers, Front, Head, VlanEdit};
use crate::plain::{Scratch, append};
use crate::{Delivered, Receive};

/// The most frames that are kept.
pub const FRAMES_MAX: usize = 8192;
/// The most bytes that are kept.
pub const BYTES_MAX: usize = 8 << 20;
/// Bytes that are handed on at once; no frame has more.
const ARENA: usize = 128 << 10;
/// Bursts that a lane hands on with each delivery.
const IN_PASSING: usize = 2;

/// Frames that wait for a guest. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    list: Mutex<List>,
    /// Whether there is something in the list: a hint that saves its lock.
    waiting: AtomicBool,
    /// Whether the guest had no buffer the last time.
    full: AtomicBool,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    /// From another host, and older than all others.
    first: VecDeque<Vec<u8>>,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// What they are handed on from.
    arena: Option<Arena>,
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

impl Kept {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many frames wait.
    pub fn frames(&self) -> usize {
        self.list().len()
    }

    /// Whether any does, without its lock.
    pub fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire)
    }

    /// How many there was no room for.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// That number, which begins anew.
    pub fn take_lost(&self) -> u64 {
        self.0.lost.swap(0, Ordering::Relaxed)
    }

    /// Takes all of them, the oldest first, and says how many of these, the first ones, came from
    /// another host.
    pub fn take(&self) -> (Vec<Vec<u8>>, usize) {
        let mut list = self.list();
        self.0.waiting.store(false, Ordering::Release);
        let first = list.first.len();
        (std::iter::from_fn(|| list.pop()).collect(), first)
    }

    /// Adds frames that are older than all that came here, behind those added so before.
    pub fn put_first(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let mut list = self.list();
        for frame in frames {
            self.add(&mut list, frame, |list| &mut list.first);
        }
    }

    /// What receives while no ring of the guest runs.
    pub fn half(&self) -> Box<dyn Receive> {
        Box::new(Half { kept: self.clone(), scratch: Scratch::default() })
    }

    /// The guest's ring, with what is kept before everything else.
    pub fn behind(&self, ring: Box<dyn Receive>) -> Box<dyn Receive> {
        self.prepare();
        self.0.full.store(false, Ordering::Relaxed);
        Box::new(Behind { kept: self.clone(), scratch: Scratch::default(), ring })
    }

    /// Keeps one frame; false if there is no room.
    fn keep(&self, frame: Vec<u8>) -> bool {
        self.add(&mut self.list(), frame, |list| &mut list.frames)
    }

    /// Adds a frame to one of the queues of the list; false if there is no room.
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

    /// Keeps the chosen frames of a burst, made whole.
    fn keep_all(
        &self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        scratch: &mut Scratch,
    ) -> Delivered {
        let kept = |is: bool| Delivered { no_buffer: u32::from(!is), ..Delivered::default() };
        let mut delivered = Delivered::default();
        for index in indices {
            let frame = usize::from(*index);
            if burst.offload(frame).is_plain() {
                let front = Front::new(edit, &burst.heads[frame], burst.frames[frame].len);
                let mut bytes = Vec::new();
                append(burst, frame, &front, &mut bytes);
                delivered.add(kept(self.keep(bytes)));
            } else {
                let more = scratch.deliver(burst, frame, edit, |segment| {
                    let room = self.keep([segment.head, segment.payload].concat());
                    // It goes on for as long as frames are delivered; this is taken back below.
                    Delivered { frames: u32::from(room), ..kept(room) }
                });
                delivered.add(Delivered { frames: 0, ..more });
            }
        }
        delivered
    }

    /// Sees that there is memory to hand frames on from; not on the way of a frame.
    fn prepare(&self) {
        let mut list = self.list();
        if list.arena.is_none() {
            list.arena = Arena::new();
        }
    }

    /// Hands on to a ring what it has room for, a burst at the most; of one that had none the last
    /// time a single frame, to see.
    fn hand_on(&self, ring: &mut dyn Receive) -> Delivered {
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
        let Some(delivered) = deliver(ring, &arena.0, &batch) else { return Delivered::default() };
        let done = batch.len() - delivered.no_buffer as usize;
        (0..done).for_each(|_| drop(list.pop()));
        self.0.full.store(delivered.no_buffer > 0, Ordering::Relaxed);
        self.0.waiting.store(list.len() > 0, Ordering::Release);
        // What found no buffer waits on.
        Delivered { no_buffer: 0, ..delivered }
    }

    /// Whether the guest had no buffer the last time.
    fn is_full(&self) -> bool {
        self.0.full.load(Ordering::Relaxed)
    }
}

/// Memory of ours that frames are handed on from.
#[derive(Debug)]
pub struct Arena(SharedFile);

impl Arena {
    /// An arena of which all pages are there; `None` if the kernel has no memory left.
    pub fn new() -> Option<Arena> {
        let file = SharedFile::create("shunt-kept", ARENA as u64, Pages::Ordinary).ok()?;
        file.mapping().slice(0, ARENA)?.write_bytes(&vec![0; ARENA]);
        Some(Arena(file))
    }

    /// Delivers the first of these frames to a ring, a burst at the most; says of how many it said
    /// what became of them.
    pub fn deliver(&self, ring: &mut dyn Receive, frames: &[Vec<u8>]) -> (usize, Delivered) {
        let mut bytes = 0;
        let fits = |frame: &&Vec<u8>| {
            bytes += frame.len();
            bytes <= ARENA
        };
        let batch: Vec<&Vec<u8>> = frames.iter().take(BURST).take_while(fits).collect();
        let delivered = deliver(ring, &self.0, &batch).unwrap_or_default();
        (batch.len(), delivered)
    }
}

/// Delivers frames of our own; `None` if they do not fit.
fn deliver(ring: &mut dyn Receive, arena: &SharedFile, frames: &[&Vec<u8>]) -> Option<Delivered> {
    let mut heads: Vec<Head> = Vec::new();
    let mut buffers = Vec::new();
    let mut at = 0;
    for (id, frame) in frames.iter().enumerate() {
        let slice = arena.mapping().slice(at, frame.len())?;
        slice.write_bytes(frame);
        let mut head = [0; 16];
        let known = frame.len().min(head.len());
        head[..known].copy_from_slice(&frame[..known]);
        heads.push(head);
        buffers.push(Buffer::single(slice, id as u16));
        at += frame.len() as u64;
    }
    let burst = Burst {
        heads: &heads,
        deep: &[],
        frames: &buffers,
        arena: &[],
        offloads: &[],
        malformed: 0,
    };
    let indices: Vec<u8> = (0..frames.len() as u8).collect();
    Some(ring.deliver(&burst, &indices, VlanEdit::None))
}

/// What receives while no ring runs.
struct Half {
    kept: Kept,
    scratch: Scratch,
}

impl Receive for Half {
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        self.kept.keep_all(burst, indices, edit, &mut self.scratch)
    }

    fn publish(&mut self) -> bool {
        false
    }
}

/// A ring before which frames wait, or did.
struct Behind {
    kept: Kept,
    scratch: Scratch,
    ring: Box<dyn Receive>,
}

impl Receive for Behind {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.ring.swap(area);
    }

    fn touches_guest(&self) -> bool {
        self.ring.touches_guest()
    }

    fn prefetch(&self, frames: usize) {
        self.ring.prefetch(frames);
    }

    fn stage(&mut self, frames: usize) {
        self.ring.stage(frames);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        if !self.kept.is_waiting() {
            return self.ring.deliver(burst, indices, edit);
        }
        let mut delivered = Delivered::default();
        for _ in 0..IN_PASSING {
            if self.kept.is_full() || !self.kept.is_waiting() {
                break;
            }
            let more = self.kept.hand_on(&mut *self.ring);
            delivered.add(more);
            if more.fault.is_some() {
                return Delivered { fault: more.fault, ..delivered };
            }
        }
        let more = match self.kept.is_waiting() {
            true => self.kept.keep_all(burst, indices, edit, &mut self.scratch),
            false => self.ring.deliver(burst, indices, edit),
        };
        delivered.add(more);
        delivered.fault = more.fault;
        delivered
    }

    fn hand_on(&mut self) -> Delivered {
        if !self.kept.is_waiting() {
            return Delivered::default();
        }
        self.kept.prepare();
        self.kept.hand_on(&mut *self.ring)
    }

    fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    fn show(&mut self) -> bool {
        self.ring.show()
    }

    fn notify(&self) -> bool {
        self.ring.notify()
    }

    fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        self.ring.set_call(call);
    }

    fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        self.ring.set_error(error);
    }

    fn raise_error(&self) {
        self.ring.raise_error();
    }

    fn stop(&mut self) -> Position {
        self.ring.stop()
    }
}

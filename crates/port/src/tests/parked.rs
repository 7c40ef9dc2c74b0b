//! Cost of parked frames for a lane that delivers to a guest without buffers.

use std::sync::{Arc, Mutex};

use guestmem::{Buffer, Pages, SharedFile};

use crate::parked::{FRAMES_MAX, ParkedFrames};
use crate::{Burst, BurstBuffers, Delivered, Notification, Receive, VlanEdit};

/// A ring with a number of buffers, and the frames offered to it at each call.
#[derive(Clone, Default)]
struct Ring(Arc<Mutex<(usize, Vec<usize>)>>);

impl Ring {
    fn post(&self, buffers: usize) {
        self.0.lock().unwrap().0 += buffers;
    }

    /// Takes the number of frames offered at each call.
    fn asked(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }
}

impl Receive for Ring {
    fn deliver(
        &mut self,
        _: &Burst<'_>,
        indices: &[u8],
        _: VlanEdit,
        _: &mut BurstBuffers,
    ) -> Delivered {
        let (buffers, asked) = &mut *self.0.lock().unwrap();
        asked.push(indices.len());
        let done = indices.len().min(*buffers);
        *buffers -= done;
        let no_buffer = (indices.len() - done) as u32;
        Delivered { frames: done as u32, no_buffer, ..Delivered::default() }
    }

    fn publish(&mut self) -> Notification {
        Notification::Unneeded
    }
}

/// As a lane does: one frame.
fn deliver(ring: &mut dyn Receive) -> Delivered {
    let file = SharedFile::create("frame", 60, Pages::Ordinary).unwrap();
    let frames = [Buffer::single(file.mapping().slice(0, 60).unwrap(), 0)];
    let burst = Burst::plain(&[[0; 16]], &frames);
    ring.deliver(&burst, &[0], VlanEdit::None, &mut BurstBuffers::default())
}

fn waiting(frames: usize, bytes: usize) -> (ParkedFrames, Ring, Box<dyn Receive>) {
    let (parked, ring) = (ParkedFrames::default(), Ring::default());
    parked.put_first(vec![vec![0; bytes]; frames]);
    let draining_half = parked.draining_half(Box::new(ring.clone()));
    (parked, ring, draining_half)
}

#[test]
fn a_guest_without_buffers_is_asked_once_and_then_left_to_who_has_the_time() {
    let (parked, ring, mut draining_half) = waiting(100, 60);
    for _ in 0..50 {
        assert_eq!(deliver(&mut *draining_half), Delivered::default(), "it waits with the others");
    }
    assert_eq!(ring.asked(), [64], "by all of them together");
    assert_eq!(parked.frames(), 150);
    // A single frame shows if it has buffers.
    assert_eq!(draining_half.drain_parked(&mut BurstBuffers::default()).frames, 0);
    assert_eq!(ring.asked(), [1]);
    ring.post(1000);
    assert_eq!(
        [
            draining_half.drain_parked(&mut BurstBuffers::default()).frames,
            draining_half.drain_parked(&mut BurstBuffers::default()).frames
        ],
        [1, 64]
    );
    assert_eq!(deliver(&mut *draining_half).frames, 85 + 1);
    assert_eq!((ring.asked(), parked.is_waiting()), (vec![1, 64, 64, 21, 1], false));
    assert_eq!(draining_half.drain_parked(&mut BurstBuffers::default()), Delivered::default());
    assert_eq!(deliver(&mut *draining_half).frames, 1);
}

#[test]
fn a_lane_hands_on_little_at_a_time_and_never_more_than_fits() {
    let (parked, ring, mut draining_half) = waiting(FRAMES_MAX - 1, 60);
    ring.post(FRAMES_MAX);
    assert_eq!(deliver(&mut *draining_half).frames, 128);
    assert_eq!(ring.asked(), [64, 64]);
    assert_eq!(parked.frames(), FRAMES_MAX - 128);

    let (parked, ring, mut draining_half) = waiting(5, 60_000);
    ring.post(10);
    assert_eq!(draining_half.drain_parked(&mut BurstBuffers::default()).frames, 2);
    parked.put_first([vec![0; 200_000]]);
    assert_eq!((parked.lost(), ring.asked()), (1, vec![2]));
}

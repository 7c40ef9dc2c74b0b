//! What frames that wait cost whoever delivers to a guest that does not take them.

use std::sync::{Arc, Mutex};

use guestmem::{Buffer, Pages, SharedFile};

use crate::kept::{FRAMES_MAX, Kept};
use crate::{Burst, BurstBuffers, Delivered, Receive, VlanEdit};

/// A ring with so many buffers, and how many frames it was asked to take each time.
#[derive(Clone, Default)]
struct Ring(Arc<Mutex<(usize, Vec<usize>)>>);

impl Ring {
    fn post(&self, buffers: usize) {
        self.0.lock().unwrap().0 += buffers;
    }

    /// How many frames it was asked to take, each time since this was asked.
    fn asked(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }
}

impl Receive for Ring {
    fn swap(&mut self, _area: &mut BurstBuffers) {}

    fn deliver(&mut self, _burst: &Burst<'_>, indices: &[u8], _edit: VlanEdit) -> Delivered {
        let (buffers, asked) = &mut *self.0.lock().unwrap();
        asked.push(indices.len());
        let done = indices.len().min(*buffers);
        *buffers -= done;
        let no_buffer = (indices.len() - done) as u32;
        Delivered { frames: done as u32, no_buffer, ..Delivered::default() }
    }

    fn publish(&mut self) -> bool {
        false
    }
}

/// As a lane does: one frame.
fn deliver(ring: &mut dyn Receive) -> Delivered {
    let file = SharedFile::create("frame", 60, Pages::Ordinary).unwrap();
    let frames = [Buffer::single(file.mapping().slice(0, 60).unwrap(), 0)];
    let burst = Burst {
        heads: &[[0; 16]],
        deep: &[],
        frames: &frames,
        arena: &[],
        offloads: &[],
        malformed: 0,
    };
    ring.deliver(&burst, &[0], VlanEdit::None)
}

fn waiting(frames: usize, bytes: usize) -> (Kept, Ring, Box<dyn Receive>) {
    let (kept, ring) = (Kept::default(), Ring::default());
    kept.put_first(vec![vec![0; bytes]; frames]);
    let behind = kept.behind(Box::new(ring.clone()));
    (kept, ring, behind)
}

#[test]
fn a_guest_without_buffers_is_asked_once_and_then_left_to_who_has_the_time() {
    let (kept, ring, mut behind) = waiting(100, 60);
    for _ in 0..50 {
        assert_eq!(deliver(&mut *behind), Delivered::default(), "it waits with the others");
    }
    assert_eq!(ring.asked(), [64], "by all of them together");
    assert_eq!(kept.frames(), 150);
    // A single frame shows whether it has.
    assert_eq!(behind.hand_on().frames, 0);
    assert_eq!(ring.asked(), [1]);
    ring.post(1000);
    assert_eq!([behind.hand_on().frames, behind.hand_on().frames], [1, 64]);
    assert_eq!(deliver(&mut *behind).frames, 85 + 1);
    assert_eq!((ring.asked(), kept.is_waiting()), (vec![1, 64, 64, 21, 1], false));
    assert_eq!(behind.hand_on(), Delivered::default());
    assert_eq!(deliver(&mut *behind).frames, 1);
}

#[test]
fn a_lane_hands_on_little_at_a_time_and_never_more_than_fits() {
    let (kept, ring, mut behind) = waiting(FRAMES_MAX - 1, 60);
    ring.post(FRAMES_MAX);
    assert_eq!(deliver(&mut *behind).frames, 128);
    assert_eq!(ring.asked(), [64, 64]);
    assert_eq!(kept.frames(), FRAMES_MAX - 128);

    let (kept, ring, mut behind) = waiting(5, 60_000);
    ring.post(10);
    assert_eq!(behind.hand_on().frames, 2);
    kept.put_first([vec![0; 200_000]]);
    assert_eq!((kept.lost(), ring.asked()), (1, vec![2]));
}

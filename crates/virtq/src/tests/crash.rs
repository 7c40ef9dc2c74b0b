//! Crash of a ring's owner at any store of a publication, and recovery by the next owner.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use guestmem::{Mapping, Pages, SharedFile};
use proptest::prelude::*;

use super::kit::{BASE, READABLE, memory};
use crate::{
    BURST, Content, DeviceQueue, DriverQueue, Features, InflightRecord, Segment, Start, Used,
};

thread_local! {
    /// Stores that this thread's owner has yet to live for.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Crashes if it is due.
pub(crate) fn point() {
    let left = LEFT.get();
    if left == 0 {
        resume_unwind(Box::new("the owner of the ring dies here"));
    }
    if left != u32::MAX {
        LEFT.set(left - 1);
    }
}

/// Does something that lives for so many stores; `None` if it died.
fn living_for<T>(stores: u32, act: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(stores);
    let done = catch_unwind(AssertUnwindSafe(act)).ok();
    LEFT.set(u32::MAX);
    done
}

const SIZE: u16 = 7;

/// Memory for records.
fn mapping() -> Arc<Mapping> {
    let file = SharedFile::create("inflight", 4096, Pages::Ordinary).unwrap();
    Arc::new(Mapping::new(file.fd(), 4096, 0).unwrap())
}

/// A driver, and the device's owners one after the other.
struct World {
    driver: DriverQueue,
    features: Features,
    content: Content,
    inflight: InflightRecord,
    posted: VecDeque<u16>,
    crashes: u32,
}

impl World {
    fn new(features: Features, content: Content) -> World {
        let memory = memory(1 << 20);
        let size = if features.contains(Features::PACKED) { SIZE } else { 8 };
        let driver = DriverQueue::new(memory, BASE, size, features).unwrap();
        let inflight = InflightRecord::new(mapping(), 64, size).unwrap();
        World { driver, features, content, inflight, posted: VecDeque::new(), crashes: 0 }
    }

    /// Fills the ring with buffers of one to three descriptors.
    fn post(&mut self) {
        let writable = self.content == Content::Writable;
        let piece = Segment { addr: BASE + 0x8000, len: 64, writable };
        for pieces in [1, 2, 1, 3, 1] {
            let Some(id) = self.driver.post_chain(&vec![piece; pieces]) else { break };
            self.posted.push_back(id);
        }
        self.driver.publish();
    }

    /// The next owner, to which the front-end gives the first position. It may crash too.
    fn owner(&mut self, stores: u32) -> DeviceQueue {
        let (memory, at) = (self.driver.memory().clone(), self.driver.addresses());
        let (size, features, content) = (self.driver.size(), self.features, self.content);
        let base = self.driver.first_position();
        let new = || {
            let start = Start { inflight: Some(self.inflight.clone()), ..Start::at(base) };
            DeviceQueue::new(memory.clone(), &at, size, features, content, start).unwrap()
        };
        living_for(stores, new).unwrap_or_else(|| {
            self.crashes += 1;
            new()
        })
    }

    /// Uses the next `n` buffers, with a length that names the turn, and publishes them unless it
    /// crashes.
    fn work(&mut self, device: &mut DeviceQueue, n: usize, (turn, stores): (u32, u32)) -> bool {
        device.stage(BURST);
        let n = n.min(device.buffers().0.len());
        let len = if self.content == Content::Writable { turn } else { 0 };
        (0..n).for_each(|_| device.add_used(len));
        let shown = living_for(stores, || device.publish()).is_some();
        self.crashes += u32::from(!shown);
        shown
    }

    /// Reaps the used buffers: the oldest, each once.
    fn reap(&mut self) -> Vec<u32> {
        let mut used = [Used::default(); 8];
        let n = self.driver.reap(&mut used);
        assert_eq!(self.driver.strays(), 0);
        for used in &used[..n] {
            assert_eq!(Some(used.id), self.posted.pop_front());
        }
        used[..n].iter().map(|used| used.len).collect()
    }
}

/// Every kind of ring that a record is for.
fn kinds() -> impl Iterator<Item = (Features, Content)> {
    let packed = [Features::empty(), Features::PACKED, Features::PACKED | Features::IN_ORDER];
    packed
        .into_iter()
        .flat_map(|features| [READABLE, Content::Writable].map(|content| (features, content)))
}

#[test]
fn an_owner_may_die_at_any_store_and_so_may_its_successor() {
    let mut crashes = 0;
    for (features, content) in kinds() {
        for (stores, again) in (0..14).flat_map(|stores| (0..6).map(move |again| (stores, again))) {
            let mut world = World::new(features, content);
            for turn in 1..8 {
                world.post();
                let mut device = world.owner(u32::MAX);
                let shown = world.work(&mut device, 3, (turn, stores));
                let waiting = world.driver.used_len();
                assert!([0, 3].contains(&waiting), "all of a burst or nothing: {waiting}");
                assert!(!shown || waiting == 3);
                drop(device);
                let mut next = world.owner(again);
                let seen = world.reap();
                assert!([0, 3].contains(&seen.len()));
                // Work of the crashed owner shows the lengths that it gave.
                let len = if content == Content::Writable { turn } else { 0 };
                assert_eq!(seen, vec![len; seen.len()]);
                // The next owner uses the remaining buffers.
                while world.work(&mut next, BURST, (turn + 100, u32::MAX)) {
                    if world.reap().is_empty() {
                        break;
                    }
                }
                assert!(world.posted.is_empty(), "{features:?}: lost {:?}", world.posted);
                assert_eq!(world.driver.room(), usize::from(world.driver.size()));
            }
            crashes += world.crashes;
        }
    }
    assert!(crashes > 1000, "too few crashes: {crashes}");
}

#[test]
fn a_publication_that_was_begun_is_carried_out() {
    let mut world = World::new(Features::PACKED, Content::Writable);
    world.post();
    let mut device = world.owner(u32::MAX);
    // Three stores of the publication, one of the record, two of descriptors: all but the first.
    assert!(!world.work(&mut device, 3, (55, 6)));
    assert_eq!(world.driver.used_len(), 0);
    drop(device);
    let next = world.owner(u32::MAX);
    assert_eq!(world.reap(), [55, 55, 55]);
    assert_eq!(next.position(), 0x8004_8004);
}

#[test]
fn a_record_that_was_cleared_says_nothing() {
    let mut world = World::new(Features::PACKED, READABLE);
    world.post();
    let mut device = world.owner(u32::MAX);
    assert!(world.work(&mut device, 3, (1, u32::MAX)));
    assert_eq!(world.owner(u32::MAX).position(), 0x8004_8004);
    world.inflight.clear();
    assert_eq!(world.owner(u32::MAX).position(), world.driver.first_position());
}

#[test]
fn a_ring_set_up_again_ignores_the_old_record() {
    for (features, asks) in kinds()
        .filter(|(features, _)| features.contains(Features::PACKED))
        .flat_map(|(features, _)| [features, features | Features::EVENT_IDX])
        .flat_map(|features| [(features, false), (features, true)])
    {
        let mut world = World::new(features, Content::Writable);
        world.post();
        let mut device = world.owner(u32::MAX);
        assert!(world.work(&mut device, 3, (1, u32::MAX)));
        if asks {
            device.enable_notification();
        }
        drop(device);
        // The same driver: the record is valid, with or without sleep of its owner.
        assert_eq!(world.owner(u32::MAX).position(), 0x8004_8004, "{features:?}");

        let memory = world.driver.memory().clone();
        world.driver = DriverQueue::new(memory, BASE, SIZE, features).unwrap();
        world.posted.clear();
        world.post();
        let mut next = world.owner(u32::MAX);
        assert_eq!(next.position(), world.driver.first_position(), "{features:?}");
        assert!(world.work(&mut next, 2, (7, u32::MAX)));
        assert_eq!(world.reap(), [7, 7]);
    }
}

#[test]
fn records_stand_beside_each_other_inside_their_memory() {
    assert_eq!([1, 8, 9, 256].map(InflightRecord::bytes), [128, 128, 192, 64 + 2048]);
    assert!(InflightRecord::new(mapping(), 4096 - 128, 8).is_some());
    assert!(InflightRecord::new(mapping(), 4096 - 120, 8).is_none());
    assert!(InflightRecord::new(mapping(), 4, 8).is_none());
    assert!(InflightRecord::new(mapping(), u64::MAX - 7, 8).is_none());
}

proptest! {
    #[test]
    fn a_record_that_lies_does_no_harm(
        head in any::<u64>(),
        valid: bool,
        old in 0..16u16,
        new in 0..16u16,
        count in 0..10u16,
        log in prop::collection::vec((0..64u32, any::<u16>(), 0..20u16), 8),
        flags in prop::collection::vec(any::<u16>(), 7),
    ) {
        let mut world = World::new(Features::PACKED, READABLE);
        drop(world.owner(u32::MAX)); // a ring that had no owner yet has no record
        let memory = world.driver.memory().clone();
        for (i, flags) in flags.iter().enumerate() {
            memory.slice(BASE + 16 * i as u64 + 14, 2).unwrap().write(0, flags.to_le_bytes());
        }
        let mapping = mapping();
        let all = mapping.slice(0, 4096).unwrap();
        let word = match valid {
            true => 1 << 63 | u64::from(old) | u64::from(new) << 16 | u64::from(count) << 32,
            false => head,
        };
        all.write(0, word.to_le_bytes());
        for (i, (len, id, place)) in log.iter().enumerate() {
            let word = u64::from(*len) | u64::from(*id) << 32 | u64::from(*place) << 48;
            all.write(64 + 8 * i as u32, word.to_le_bytes());
        }
        let inflight = InflightRecord::new(mapping, 0, SIZE).unwrap();
        let start = Start { inflight: Some(inflight), ..Start::at(0x8000_8000) };
        // A device was here before.
        memory.user_slice(world.driver.addresses().used, 1).unwrap().write(0, [1]);
        let at = world.driver.addresses();
        let mut device =
            DeviceQueue::new(memory, &at, SIZE, Features::PACKED, READABLE, start).unwrap();
        let index = device.position() & 0x7fff;
        prop_assert!(index < u32::from(SIZE));
        device.stage(BURST);
        device.add_used_all();
        device.publish();
    }
}

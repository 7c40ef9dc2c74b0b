//! Tests against an independent implementation, `virtio-queue`. Its mock of a driver writes rings
//! for our device's side, and its device's side works on rings of our driver's side. Both map the
//! same files.
//!
//! The mock's own `MockSplitQueue` places the used ring half-way into the available ring (it takes
//! entries for bytes). So only the first half of its entries can be used; tests that need more
//! place the mock's parts themselves.

mod shared;

use proptest::prelude::*;
use virtio_queue::desc::split::VirtqUsedElem;
use virtio_queue::mock::MockSplitQueue;
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use self::shared::{Chain, MockRing, NEXT, REGIONS, Shared, USER, WRITE, oracle, raw};
use super::kit::READABLE;
use crate::{Addresses, BURST, Content, DriverQueue, Features, Segment, Used};

fn pieces(most: usize) -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec(((0x8000..0xf_0000u64), 1..5000u32), 0..most)
}

proptest! {
    #[test]
    fn chains_are_staged_as_the_oracle_walks_them(
        chains in prop::collection::vec((pieces(4), pieces(9)), 1..100),
        writable: bool,
        wants in prop::collection::vec((1..=BURST, 0..3u32), 1..200),
    ) {
        let (shared, twin) = (Shared::new(), Shared::new());
        let (mut ring, mut twin_ring) = (MockRing::new(&shared, 512), MockRing::new(&twin, 512));
        let flags = if writable { WRITE } else { 0 };
        for (direct, indirect) in &chains {
            if direct.is_empty() && indirect.is_empty() {
                continue;
            }
            ring.add(direct, indirect, flags);
            twin_ring.add(direct, indirect, flags);
        }
        let content = if writable { Content::Writable } else { READABLE };
        let mut device = shared.device(&ring.at, 512, content);
        let mut theirs = oracle(&twin_ring.at, 512);
        prop_assert!(theirs.is_valid(&twin.theirs));
        let expected = twin.popped(&mut theirs);

        // Stage, use and publish in portions.
        let mut done = 0;
        for (want, uses) in wants.into_iter().chain(std::iter::repeat((BURST, 2))) {
            let staged = device.stage(want);
            prop_assert_eq!(device.fault(), None);
            prop_assert_eq!(&shared.staged(&device)[..], &expected[done..done + staged]);
            if staged == 0 {
                break;
            }
            for _ in 0..staged.min(uses as usize) {
                let len = if writable { done as u32 * 3 } else { 0 };
                theirs.add_used(&twin.theirs, expected[done].head, len).unwrap();
                device.add_used(len);
                done += 1;
            }
            device.publish();
            prop_assert_eq!(ring.used.idx().load(), done as u16);
        }
        prop_assert_eq!(done, expected.len());

        // Used entries, as the mock sees them, and byte for byte.
        for (i, chain) in expected.iter().enumerate() {
            let used: VirtqUsedElem = ring.used.ring().ref_at(i).unwrap().load();
            let len = if writable { i as u32 * 3 } else { 0 };
            prop_assert_eq!((used.id(), used.len()), (u32::from(chain.head), len));
        }
        let used = ring.at.used - USER + 2;
        prop_assert_eq!(shared.bytes(used, 2 + 8 * 512), twin.bytes(used, 2 + 8 * 512));
    }

    #[test]
    fn the_oracle_takes_posted_buffers_and_the_driver_reaps_them(
        order in 3..=8u32,
        event_idx: bool,
        rounds in prop::collection::vec((prop::collection::vec((pieces(5), any::<bool>()), 0..12), 0..20usize, any::<bool>(), any::<bool>()), 1..40),
    ) {
        let shared = Shared::new();
        let size = 1u16 << order;
        let mut features = Features::INDIRECT;
        features.set(Features::EVENT_IDX, event_idx);
        let mut driver = DriverQueue::new(shared.ours.clone(), USER + 0x1000, size, features).unwrap();
        let mut theirs = oracle(&driver.addresses(), size);
        theirs.set_event_idx(event_idx);
        prop_assert!(theirs.is_valid(&shared.theirs));
        let mut in_flight = std::collections::VecDeque::new();
        for (posts, uses, device_sleeps, driver_sleeps) in rounds {
            // The device's own view of its suppression, before the driver publishes.
            let asleep = device_sleeps && !theirs.enable_notification(&shared.theirs).unwrap();
            if !device_sleeps {
                theirs.disable_notification(&shared.theirs).unwrap();
            }
            let mut posted = Vec::new();
            for (i, (ranges, indirect)) in posts.iter().enumerate() {
                let segments: Vec<_> = ranges
                    .iter()
                    .map(|&(addr, len)| Segment { addr, len, writable: i % 2 == 1 })
                    .collect();
                let head = if *indirect {
                    let table = REGIONS[1].0 + in_flight.len() as u64 * 80 + i as u64 * 80;
                    driver.post_indirect(&segments, table)
                } else {
                    driver.post_chain(&segments)
                };
                if let Some(head) = head {
                    posted.push(Chain { head, ranges: ranges.clone() });
                }
            }
            let kick = driver.publish();
            if posted.is_empty() || asleep || !event_idx {
                prop_assert_eq!(kick, !posted.is_empty() && (asleep || device_sleeps));
            }
            prop_assert_eq!(&shared.popped(&mut theirs), &posted);
            in_flight.extend(posted);

            let driver_asleep = driver_sleeps && !driver.enable_notification();
            if !driver_sleeps {
                driver.disable_notification();
            }
            let uses = uses.min(in_flight.len());
            let mut expected = Vec::new();
            for (i, chain) in in_flight.drain(..uses).enumerate() {
                theirs.add_used(&shared.theirs, chain.head, i as u32 * 7).unwrap();
                expected.push(Used { id: chain.head, len: i as u32 * 7 });
            }
            let call = theirs.needs_notification(&shared.theirs).unwrap();
            if event_idx {
                // Without it, this oracle ignores the driver's suppression.
                prop_assert_eq!(call, driver_asleep && uses > 0);
            }
            let mut used = [Used::default(); 32];
            let n = driver.reap(&mut used);
            prop_assert_eq!(&used[..n], &expected[..]);
        }
    }
}

#[test]
fn the_mocks_own_queue_is_staged() {
    let shared = Shared::new();
    let start = 0x1_0000;
    let mut mock = MockSplitQueue::create(&shared.theirs, GuestAddress(start), 256);
    mock.add_chain(1).unwrap();
    mock.add_indirect_chain(7).unwrap();
    let at = Addresses {
        desc: USER + mock.desc_table_addr().0,
        avail: USER + mock.avail_addr().0,
        used: USER + mock.used_addr().0,
    };
    // The mock's chains all begin at descriptor 0, so they are checked one by one.
    let mut device = shared.device(&at, 256, READABLE);
    assert_eq!(device.stage(BURST), 2);
    let ranges = vec![(0x1000, 0x1000); 7];
    let both = Chain { head: 0, ranges };
    assert_eq!(shared.staged(&device), [both.clone(), both]);
    device.add_used_all();
    device.publish();
    assert_eq!(mock.used().idx().load(), 2);

    let flags = [NEXT, NEXT, 0, 0, NEXT, 0];
    let descs: Vec<_> = (0u16..6)
        .map(|i| {
            raw(
                (0x2_0000 + u64::from(i) * 0x800, 100 + u32::from(i)),
                flags[usize::from(i)],
                101 + i,
            )
        })
        .collect();
    mock.add_desc_chains(&descs, 100).unwrap();
    assert_eq!(device.stage(BURST), 3, "{:?}", device.fault());
    let mut theirs: Queue = mock.create_queue().unwrap();
    theirs.set_next_avail(2);
    assert_eq!(shared.staged(&device), shared.popped(&mut theirs));
    for len in [3, 4, 5] {
        device.add_used(len);
    }
    assert_eq!(mock.used().idx().load(), 2, "not yet published");
    device.publish();
    assert_eq!(mock.used().idx().load(), 5);
    let used = |i: usize| mock.used().ring().ref_at(i).unwrap().load();
    let seen = [2, 3, 4].map(|i| (used(i).id(), used(i).len()));
    assert_eq!(seen, [(100, 3), (103, 4), (104, 5)]);
}

//! Writes to a guest's memory are logged exactly. The front-end compares all of its memory with the
//! log before and after each step. Covered: both sides, both kinds of rings, mergeable buffers,
//! indirect tables, event index, in-order, offloads, switching the log on and off, and new owners
//! of the rings. Nothing else may be logged.

mod side;

use std::collections::BTreeSet;

use proptest::prelude::*;
use virtq::{Content, Features};

use super::{guests::Layout, lent::Lent, offload};
use crate::virtio_net::{self, HEADER_LEN, ReceiveRing, RingEvents, TransmitRing};
use crate::{GuestRing, OffloadSet, VlanEdit};
use side::{Logs, RING, Side, unlogged};

#[derive(Clone, Debug)]
enum Step {
    Send(usize, Layout),
    /// The same, of a TCP segment that is to be cut, with so many bytes of payload.
    Leave(usize, Layout),
    Post(u32, Layout),
    /// Takes a burst, delivers those of its frames that the mask names, and gives it back.
    Carry(u64, VlanEdit, bool),
    Arm,
    Disarm,
    /// Next log: of the sender, else of the receiver.
    Switch(bool, Logs),
    Reap,
}

fn layout() -> impl Strategy<Value = Layout> {
    let cuts = prop::collection::vec(prop_oneof![1..40u32, 200..1500u32], 0..4);
    (cuts, any::<bool>()).prop_map(|(cuts, indirect)| Layout { cuts, indirect })
}

fn offloads() -> impl Strategy<Value = Offloads> {
    let all = OffloadSet::all();
    let cut = Offloads { left: all, taken: OffloadSet::empty() };
    prop::sample::select(vec![NOTHING_LEFT, cut, Offloads { left: all, taken: all }])
}

fn logs() -> impl Strategy<Value = Logs> {
    let all = [Logs::Nothing, Logs::Ring, Logs::All, Logs::All, Logs::All, Logs::AllUnsaid];
    prop::sample::select(all.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let edit = prop_oneof![
        4 => Just(VlanEdit::None),
        1 => any::<[u8; 4]>().prop_map(VlanEdit::Push),
    ];
    prop_oneof![
        6 => (14..2600usize, layout()).prop_map(|(len, layout)| Step::Send(len, layout)),
        3 => (1..2700usize, layout()).prop_map(|(len, layout)| Step::Leave(len, layout)),
        8 => (20..2800u32, layout()).prop_map(|(len, layout)| Step::Post(len, layout)),
        6 => (any::<u64>(), edit, any::<bool>())
            .prop_map(|(mask, edit, snapshots)| Step::Carry(mask, edit, snapshots)),
        1 => Just(Step::Arm),
        1 => Just(Step::Disarm),
        2 => (any::<bool>(), logs()).prop_map(|(from, logs)| Step::Switch(from, logs)),
        2 => Just(Step::Reap),
    ]
}

/// Offloads negotiated by the sender, and those that the receiver accepts.
#[derive(Clone, Copy, Debug)]
struct Offloads {
    left: OffloadSet,
    taken: OffloadSet,
}

const NOTHING_LEFT: Offloads = Offloads { left: OffloadSet::empty(), taken: OffloadSet::empty() };

struct World {
    from: Side,
    to: Side,
    transmit: Lent<Box<TransmitRing>>,
    receive: Lent<Box<ReceiveRing>>,
    mergeable: bool,
    offloads: Offloads,
    /// Makes each frame another one, so that writing it changes what it is written over.
    count: usize,
}

impl World {
    fn new(features: Features, mergeable: bool, offloads: Offloads) -> World {
        let (from, to) = (Side::new(features), Side::new(features));
        let (transmit, receive) = (from.driver.first_position(), to.driver.first_position());
        let transmit = sending(&from, transmit, offloads);
        let receive = receiving(&to, receive, mergeable, offloads);
        World { from, to, transmit, receive, mergeable, offloads, count: 0 }
    }

    fn take(&mut self, step: &Step) {
        if let Step::Send(..) | Step::Leave(..) | Step::Post(..) | Step::Reap = step {
            return self.guest(step);
        }
        let before = (self.from.pages(), self.to.pages());
        match step {
            Step::Arm => {
                self.transmit.enable_notification();
            }
            Step::Disarm => self.transmit.half.disable_notification(),
            Step::Carry(mask, edit, snapshots) => self.carry(*mask, *edit, *snapshots),
            Step::Switch(true, logs) => {
                self.from.logs = *logs;
                self.transmit = sending(&self.from, self.transmit.half.stop(), self.offloads);
            }
            Step::Switch(false, logs) => {
                self.to.logs = *logs;
                let (base, offloads) = (self.receive.half.stop(), self.offloads);
                self.receive = receiving(&self.to, base, self.mergeable, offloads);
            }
            Step::Send(..) | Step::Leave(..) | Step::Post(..) | Step::Reap => {}
        }
        self.from.check(&before.0, false);
        self.to.check(&before.1, true);
    }

    /// Steps of the guests, which are not logged.
    fn guest(&mut self, step: &Step) {
        self.count += 1;
        match step {
            Step::Send(len, layout) => {
                let mut bytes = vec![0; HEADER_LEN as usize];
                bytes.extend(super::guests::frame(self.count, *len));
                self.from.post(&bytes, layout, false);
            }
            Step::Leave(payload, layout) => {
                let (mut frame, _) = offload::tcp(*payload);
                frame[6..8].copy_from_slice(&(self.count as u16).to_be_bytes());
                let left = offload::left(offload::GSO, offload::MSS as u16);
                self.from.post(&[left.to_bytes().as_slice(), &frame].concat(), layout, false);
            }
            Step::Post(len, layout) => {
                let old = vec![self.count as u8 ^ 0x5a; *len as usize];
                self.to.post(&old, layout, true);
            }
            _ => {
                self.from.reap();
                self.to.reap();
            }
        }
    }

    fn carry(&mut self, mask: u64, edit: VlanEdit, snapshots: bool) {
        let polled = self.transmit.poll();
        assert_eq!(polled.fault, None);
        if snapshots {
            self.transmit.snapshot_headers();
        }
        let indices: Vec<u8> = (0..polled.frames as u8).filter(|i| mask >> i & 1 == 1).collect();
        let delivered = self.receive.deliver(&self.transmit.burst(), &indices, edit);
        assert_eq!(delivered.fault, None);
        self.receive.publish();
        self.transmit.complete();
    }
}

fn sending(side: &Side, base: virtq::Position, offloads: Offloads) -> Lent<Box<TransmitRing>> {
    let left = offloads.left;
    let content = Content::Readable { header: HEADER_LEN, keep: !left.is_empty() };
    let queue = side.device(content, base);
    Lent::new(Box::new(TransmitRing::new(queue, RingEvents::default(), 9018, left)))
}

fn receiving(
    side: &Side,
    base: virtq::Position,
    mergeable: bool,
    offloads: Offloads,
) -> Lent<Box<ReceiveRing>> {
    let layout = virtio_net::ReceiveLayout { header: HEADER_LEN, mergeable };
    let queue = side.device(Content::Writable, base);
    Lent::new(Box::new(ReceiveRing::new(queue, RingEvents::default(), layout, offloads.taken)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn all_that_is_written_is_logged(
        features in (0u8..8).prop_map(|bits| {
            let mut features = Features::INDIRECT;
            features.set(Features::PACKED, bits & 1 != 0);
            features.set(Features::EVENT_IDX, bits & 2 != 0);
            features.set(Features::IN_ORDER, bits & 4 != 0);
            features
        }),
        mergeable in any::<bool>(),
        offloads in offloads(),
        first in logs(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(features, mergeable, offloads);
        world.take(&Step::Switch(true, first));
        world.take(&Step::Switch(false, first));
        for step in &steps {
            world.take(step);
        }
    }
}

/// Frames of a burst; more than used entries on the first page of a split ring's used ring.
const BURST: usize = 23;

/// The ring's end is crossed.
#[test]
fn what_is_written_around_a_rings_end_is_logged() {
    let layout = Layout { cuts: Vec::new(), indirect: false };
    for features in [Features::EVENT_IDX, Features::EVENT_IDX | Features::PACKED] {
        let mut world = World::new(features, true, NOTHING_LEFT);
        world.take(&Step::Switch(true, Logs::All));
        world.take(&Step::Switch(false, Logs::All));
        for round in 0..3 * usize::from(RING) / BURST {
            for _ in 0..BURST {
                world.take(&Step::Post(1600, layout.clone()));
                world.take(&Step::Send(60 + round, layout.clone()));
            }
            world.take(&Step::Carry(u64::MAX, VlanEdit::None, round % 5 == 0));
            world.take(&Step::Reap);
        }
    }
}

/// The comparison finds a page that is missing from the log, and only where it should be there.
#[test]
fn a_page_that_is_not_logged_is_found() {
    let changed = BTreeSet::from([0x100, 0x101, 0x40001]);
    for missing in [0x101, 0x40001] {
        let mut logged = changed.clone();
        logged.remove(&missing);
        assert_eq!(unlogged(&changed, &logged, Logs::All), [missing]);
        let of_ring = if missing == 0x101 { vec![missing] } else { Vec::new() };
        assert_eq!(unlogged(&changed, &logged, Logs::Ring), of_ring);
        assert_eq!(unlogged(&changed, &logged, Logs::Nothing), [0u64; 0]);
    }
}

//! Both sides together, against a model: whatever they do in whatever order, every buffer arrives
//! once, in order, with its bytes; and a side that asked to be notified is, when it must be.

mod suppression;
mod world;

use proptest::prelude::*;

use self::world::World;
use crate::{Content, Features};

/// Bytes that each buffer may have.
const SLOT: u64 = 128;
/// Bytes of its indirect table.
const TABLE: u64 = 64;

#[derive(Clone, Debug)]
enum Op {
    Post { times: usize, lens: Vec<u32>, indirect: bool },
    DriverPublish,
    DriverArm,
    DriverDisarm,
    Reap(usize),
    Recycle,
    StagingBuffers(usize),
    Use { times: usize, len: u32 },
    UseAll,
    DevicePublish,
    DeviceArm,
    DeviceDisarm,
    HandOver,
}

fn op() -> impl Strategy<Value = Op> {
    let lens = prop::collection::vec(0..=SLOT as u32 / 4, 1..=4);
    prop_oneof![
        4 => (1..100usize, lens, any::<bool>())
            .prop_map(|(times, lens, indirect)| Op::Post { times, lens, indirect }),
        3 => Just(Op::DriverPublish),
        1 => Just(Op::DriverArm),
        1 => Just(Op::DriverDisarm),
        3 => (0..100usize).prop_map(Op::Reap),
        1 => Just(Op::Recycle),
        4 => (0..100usize).prop_map(Op::StagingBuffers),
        4 => (1..70usize, 0..=SLOT as u32).prop_map(|(times, len)| Op::Use { times, len }),
        1 => Just(Op::UseAll),
        3 => Just(Op::DevicePublish),
        1 => Just(Op::DeviceArm),
        1 => Just(Op::DeviceDisarm),
        1 => Just(Op::HandOver),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        Just(Content::Writable),
        prop_oneof![Just(0), Just(10), Just(12)]
            .prop_map(|header| Content::Readable { header, keep: true }),
    ]
}

/// Of either kind; a packed ring need not be a power of two.
fn ring() -> impl Strategy<Value = (u16, Features)> {
    let bits = 0..=Features::all().bits();
    (bits, 0..=10u32, 1..=1024u16).prop_map(|(bits, order, any)| {
        let features = Features::from_bits_truncate(bits);
        let packed = features.contains(Features::PACKED) && any % 4 != 0;
        (if packed { any } else { 1 << order }, features)
    })
}

proptest! {
    #[test]
    fn every_buffer_arrives_once_and_in_order(
        (size, features) in ring(),
        content in content(),
        start in prop_oneof![3 => Just(0), 1 => 65_000..=65_535u16],
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(size, features, content);
        world.advance(start);
        ops.iter().for_each(|op| world.run(op));
        world.drain();
    }
}

#[test]
fn small_rings_get_past_the_end_of_the_index() {
    const SPLIT: Features = Features::all().difference(Features::PACKED);
    for size in [1, 2, 4, 8, 16, 32, 64, 128] {
        for features in [Features::empty(), SPLIT, Features::PACKED, Features::all()] {
            let mut world =
                World::new(size, features, Content::Readable { header: 12, keep: false });
            world.advance(65_530);
            for _ in 0..100 {
                for op in [
                    Op::Post { times: 3, lens: vec![5, 30], indirect: true },
                    Op::DriverPublish,
                    Op::DeviceArm,
                    Op::StagingBuffers(2),
                    Op::UseAll,
                    Op::DriverArm,
                    Op::DevicePublish,
                    Op::Reap(2),
                ] {
                    world.run(&op);
                }
            }
            world.drain();
        }
    }
}

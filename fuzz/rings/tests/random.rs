//! The fuzz targets on stable Rust, with a fixed number of pseudo-random inputs. What the inputs
//! reached is asserted too: a target whose inputs stay shallow finds nothing.

use fuzz_rings::{Seen, device_ring, driver_ring, logged_rings, port_rings};
use virtq::Fault;

/// Inputs of up to this many bytes: some hundred acts.
const BYTES_MAX: u64 = 6000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// An input: anything, or the first part of `kept` followed by anything.
    fn input(&mut self, kept: &[u8]) -> Vec<u8> {
        let len = self.next() % BYTES_MAX;
        let mut bytes: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        if self.next().is_multiple_of(2) && !kept.is_empty() {
            let prefix = self.next() as usize % kept.len();
            bytes.splice(..0, kept[..prefix].iter().copied());
            bytes.truncate(BYTES_MAX as usize);
        }
        bytes
    }
}

/// Runs a target on so many inputs. The input that got deepest is kept, as the beginning of others.
fn run(target: fn(&[u8]) -> Seen, inputs: u32, seed: u64) -> Seen {
    let mut random = Random(seed);
    let mut sum = Seen::default();
    let (mut kept, mut deepest) = (Vec::new(), 0);
    for i in 0..inputs {
        let input = random.input(&kept);
        let seen = target(&input);
        // From time to time another one, or all would look alike.
        if seen.done > deepest || i % 100 == 0 {
            (kept, deepest) = (input, seen.done);
        }
        sum.add(&seen);
    }
    println!("{inputs} inputs: {sum:?}");
    sum
}

fn assert_all_faults(seen: &Seen) {
    for fault in Fault::ALL {
        // No file is truncated here.
        if fault != Fault::Truncated {
            assert!(seen.faults[fault as usize] > 0, "{} was never provoked", fault.name());
        }
    }
}

#[test]
fn device_ring_holds() {
    let seen = run(device_ring, 4000, 1);
    assert!(seen.buffers > 100_000 && seen.in_pieces > 10_000 && seen.done > 50_000, "{seen:?}");
    assert_all_faults(&seen);
}

#[test]
fn port_rings_hold() {
    let seen = run(port_rings, 4000, 2);
    assert!(seen.buffers > 50_000 && seen.in_pieces > 10_000, "{seen:?}");
    assert!(seen.done > 10_000 && seen.refused > 10_000, "{seen:?}");
    assert_all_faults(&seen);
}

#[test]
fn logged_rings_hold() {
    let seen = run(logged_rings, 1000, 4);
    assert!(seen.buffers > 10_000 && seen.done > 2_000 && seen.logged > 2_000, "{seen:?}");
}

#[test]
fn driver_ring_holds() {
    let seen = run(driver_ring, 4000, 3);
    assert!(seen.buffers > 100_000 && seen.in_pieces > 10_000 && seen.done > 50_000, "{seen:?}");
    assert!(seen.refused > 10_000, "{seen:?}");
}

#[test]
fn inputs_of_one_byte_repeated_hold() {
    for byte in 0..=255 {
        for target in [device_ring, port_rings, driver_ring, logged_rings] {
            target(&[byte; 500]);
        }
    }
}

#[test]
fn no_input_holds() {
    for target in [device_ring, port_rings, driver_ring, logged_rings] {
        let seen = target(&[]);
        assert_eq!((seen.buffers, seen.done, seen.refused), (0, 0, 0));
    }
}

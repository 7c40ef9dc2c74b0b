//! The hash table from (MAC, VLAN) to port.
//!
//! Model: open addressing with linear probing; a power of two of slots, at most a quarter in use.
//! The hash multiplies by an odd number and keeps the top bits. The table never changes, so the
//! builder searches for a multiplier that puts nearly every key in its first slot. A look-up is
//! then a multiplication and one load, without a branch. The rare displaced key is searched for
//! afterwards, see [`MacMap::get`].
//!
//! Keys and values are separate: a burst reads 8 bytes a frame of the keys and 2 of the values.
//! 4096 MACs take 160 KiB, which fits in an L2 cache.
//!
//! Limits: keys have 60 bits, so all ones mark an empty slot. The displacement of a key is bounded
//! for every configuration; guests choose only the keys that are looked up. Building takes some
//! milliseconds for thousands of MACs.

use crate::{DropReason, Verdict};

/// Empty slot; no key has its top four bits set.
const EMPTY: u64 = u64::MAX;
/// Value of an empty slot, never used.
const NONE: Verdict = Verdict::drop(DropReason::NoFunction);
/// Maximum slots that a look-up reads.
const PROBES_MAX: usize = 8;
/// Slots for each key, before rounding up.
const SLOTS_PER_KEY: usize = 4;
/// Slots of the smallest table, 10 KiB: up to some 64 keys find one without displacement.
const SLOTS_MIN: usize = 1024;
/// Multipliers tried for each size.
const TRIES: u64 = 16;
/// Maximum doublings of the table to reach [`PROBES_MAX`].
const DOUBLINGS_MAX: u32 = 3;

/// The key of a (MAC, VLAN).
#[inline]
pub(crate) const fn key(mac_key: u64, vid: u16) -> u64 {
    mac_key | (vid as u64) << 48
}

/// Contents of a key's first slot.
#[derive(Clone, Copy)]
pub(crate) struct First {
    /// Value, valid only if `found`.
    pub(crate) value: Verdict,
    /// Set if the key is here.
    pub(crate) found: bool,
    /// Set if another key is here, so that the search may go on.
    pub(crate) taken: bool,
}

/// The table; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct MacMap {
    /// More slots than the hash reaches, so that no probe wraps around; the last ones are rarely
    /// used.
    keys: Box<[u64]>,
    values: Box<[Verdict]>,
    multiplier: u64,
    shift: u32,
    /// Slots that the longest look-up reads.
    probes: usize,
}

impl MacMap {
    /// Builds the table; the keys must be distinct.
    pub(crate) fn build(entries: &[(u64, Verdict)]) -> Self {
        let slots = (entries.len() * SLOTS_PER_KEY).next_power_of_two().max(SLOTS_MIN);
        let bits = slots.ilog2();
        let mut best: Option<Self> = None;
        let mut fewest = usize::MAX;
        for bits in bits..=bits + DOUBLINGS_MAX {
            for seed in 0..TRIES {
                let (table, displaced) = Self::place(entries, bits, multiplier(seed));
                // A bounded search matters more than a short average.
                let cost = displaced + table.probes.saturating_sub(PROBES_MAX) * entries.len();
                if cost < fewest {
                    fewest = cost;
                    best = Some(table);
                }
                if cost == 0 {
                    break;
                }
            }
            if best.as_ref().is_some_and(|table| table.probes <= PROBES_MAX) {
                break;
            }
        }
        // The loops run at least once, and every cost is below `usize::MAX`.
        best.unwrap_or_else(|| Self::place(entries, bits, multiplier(0)).0)
    }

    /// Fills a table, and counts the keys that are not in their first slot.
    fn place(entries: &[(u64, Verdict)], bits: u32, multiplier: u64) -> (Self, usize) {
        let len = (1 << bits) + entries.len().max(PROBES_MAX);
        let mut map = Self {
            keys: vec![EMPTY; len].into(),
            values: vec![NONE; len].into(),
            multiplier,
            shift: u64::BITS - bits,
            probes: 1,
        };
        let mut displaced = 0;
        for &(key, value) in entries {
            let first = map.slot(key);
            // There is an empty slot: beyond the hash's reach lie as many as there are entries.
            let mut slot = first;
            while map.keys[slot] != EMPTY {
                slot += 1;
            }
            map.keys[slot] = key;
            map.values[slot] = value;
            map.probes = map.probes.max(slot - first + 1);
            displaced += usize::from(slot != first);
        }
        (map, displaced)
    }

    /// The table ready for look-ups in a loop.
    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        let values = &self.values[..self.keys.len()];
        View { keys: &self.keys, values, multiplier: self.multiplier, shift: self.shift }
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        slot(key, self.multiplier, self.shift)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: u64) -> Option<Verdict> {
        let first = self.view().first(key);
        if first.taken { self.rest(key) } else { first.found.then_some(first.value) }
    }

    /// Searches the slots after the first, for a key whose first slot was taken by another.
    fn rest(&self, key: u64) -> Option<Verdict> {
        let first = self.slot(key);
        for slot in first + 1..first + self.probes {
            match self.keys.get(slot) {
                Some(there) if *there == key => return self.values.get(slot).copied(),
                Some(there) if *there == EMPTY => return None,
                _ => (),
            }
        }
        None
    }
}

#[inline]
fn slot(key: u64, multiplier: u64, shift: u32) -> usize {
    (key.wrapping_mul(multiplier) >> shift) as usize
}

/// A [`MacMap`] taken apart, so that a loop keeps its parts in registers.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    keys: &'a [u64],
    /// As long as `keys`, which the compiler sees where this is made: one check serves both.
    values: &'a [Verdict],
    multiplier: u64,
    shift: u32,
}

impl View<'_> {
    /// Reads the first slot of a key, without a branch that depends on what is there.
    #[inline(always)]
    pub(crate) fn first(&self, key: u64) -> First {
        let slot = slot(key, self.multiplier, self.shift);
        // In bounds always: the hash reaches no further than the table.
        let (there, value) = (self.keys[slot], self.values[slot]);
        First { value, found: there == key, taken: (there != key) & (there != EMPTY) }
    }
}

/// Odd numbers without pattern: splitmix64 (Steele, Lea and Flood 2014).
fn multiplier(seed: u64) -> u64 {
    let mut z = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) | 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::PortId;

    fn value(n: u64) -> Verdict {
        Verdict::port(PortId(n as u16 & 0xff))
    }

    /// MACs counted up in their last bytes, as configurations have them.
    fn counted(n: u64, vid: u16) -> Vec<(u64, Verdict)> {
        (0..n).map(|i| (key(2 | (i & 0xff) << 40 | (i >> 8) << 32, vid), value(i))).collect()
    }

    #[test]
    fn counted_macs_are_found_in_few_probes() {
        for n in [0, 1, 2, 64, 255, 1024, 4096, 8192] {
            let entries = counted(n, 0);
            let map = MacMap::build(&entries);
            assert!(map.probes <= PROBES_MAX, "{n}: {} probes", map.probes);
            assert!(entries.iter().all(|&(key, value)| map.get(key) == Some(value)));
            assert!(counted(n, 1).iter().all(|&(key, _)| map.get(key).is_none()));
            let n = n as usize;
            let slots_max = (2 * SLOTS_PER_KEY * n).max(SLOTS_MIN);
            assert!(map.keys.len() <= slots_max + n.max(PROBES_MAX));
        }
    }

    #[test]
    fn one_mac_in_every_vlan() {
        let entries: Vec<_> =
            (0..4095).map(|vid| (key(0x0200_0000_0002, vid), value(vid.into()))).collect();
        let map = MacMap::build(&entries);
        assert!(map.probes <= PROBES_MAX);
        assert!(entries.iter().all(|&(key, value)| map.get(key) == Some(value)));
    }

    proptest! {
        #[test]
        fn agrees_with_hash_map(
            keys: Vec<u64>, others: Vec<u64>, bits in 0u32..20,
        ) {
            // Few distinct bits make many near misses; 60 bits are what a key has.
            let narrow = |key: u64| key << (40 - bits) & ((1 << 60) - 1);
            let entries: HashMap<u64, Verdict> =
                keys.into_iter().map(|key| (narrow(key), value(key))).collect();
            let list: Vec<_> = entries.iter().map(|(key, value)| (*key, *value)).collect();
            let map = MacMap::build(&list);
            prop_assert!(map.probes <= PROBES_MAX);
            for key in entries.keys().copied().chain(others.into_iter().map(narrow)) {
                prop_assert_eq!(map.get(key), entries.get(&key).copied());
            }
        }

        #[test]
        fn a_bad_multiplier_costs_time_only(n in 1u64..200) {
            // A multiplier of 1 puts all of these into one slot.
            let entries: Vec<_> = (0..n).map(|key| (key, value(key))).collect();
            let (map, displaced) = MacMap::place(&entries, 8, 1);
            prop_assert_eq!((displaced, map.probes), (n as usize - 1, n as usize));
            for (key, value) in entries {
                prop_assert_eq!(map.get(key), Some(value));
            }
            prop_assert_eq!(map.get(n), None);
        }
    }
}

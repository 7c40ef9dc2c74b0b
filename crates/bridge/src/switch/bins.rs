//! Hash table from (MAC, VLAN) to port, with concurrent readers and one writer.
//!
//! Model: bins of four words, half a cache line, as many bins as entries. A word is a whole entry,
//! so a reader always sees a valid entry, without locks or memory ordering. An entry fits into a
//! word because the hash is a permutation of the 60 bits of a key: the bin number is not stored
//! ("quotienting", Knuth, The Art of Computer Programming 3, 6.4, exercise 13).
//!
//! An entry whose bin is full goes to one of the next three; two bits hold its distance.
//! [`View::first`] reads the first bin without a branch; the others are read only on a miss. At one
//! entry for four words, four in a thousand are not in their first bin.
//!
//! Limits: up to [`CAPACITY_MAX`] entries. The caller ensures a single writer; only
//! [`Bins::refresh`] may run at any time. The multipliers come from a seed, so guests cannot know
//! which addresses share a bin.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::PortId;

/// Minimum capacity: below, a word would be too narrow for its key.
pub(crate) const CAPACITY_MIN: usize = 1024;
/// Maximum capacity.
pub(crate) const CAPACITY_MAX: usize = 65536;

/// Words of a bin.
const WAYS: usize = 4;
/// Number of bins that an entry may be in.
const REACH: u64 = 4;
/// Bits of a key: a MAC and a VLAN id.
const KEY_BITS: u32 = 60;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

// From the lowest bit: port, age, distance from the first bin, the rest of the hash.
const PORT_MASK: u64 = (1 << 10) - 1;
const AGE_SHIFT: u32 = 10;
/// Both bits of an entry's age: just seen.
const FRESH: u64 = 3 << AGE_SHIFT;
const DISTANCE_SHIFT: u32 = 12;
const REST_SHIFT: u32 = 14;
/// Answers of [`View::first`] below this are hits: port and age.
pub(crate) const FOUND: u64 = 1 << DISTANCE_SHIFT;
/// Empty word: its port is invalid.
const EMPTY: u64 = u64::MAX;

/// The key of a (MAC, VLAN).
#[inline(always)]
pub(crate) const fn key(mac_key: u64, vid: u16) -> u64 {
    mac_key | (vid as u64) << 48
}

/// Answer of [`View::first`] for an entry of this port that was just seen.
#[inline]
pub(crate) const fn fresh(port: PortId) -> u64 {
    FRESH | port.0 as u64 & PORT_MASK
}

/// The port in an answer of [`View::first`], or in a word.
#[inline(always)]
pub(crate) const fn port_of(answer: u64) -> PortId {
    PortId((answer & PORT_MASK) as u16)
}

#[derive(Debug)]
#[repr(align(32))]
struct Bin([AtomicU64; WAYS]);

/// A permutation of 60 bits.
#[derive(Clone, Copy, Debug)]
struct Hash {
    first: u64,
    second: u64,
}

impl Hash {
    fn new(seed: u64) -> Self {
        Self { first: splitmix(seed) | 1, second: splitmix(seed.wrapping_add(1)) | 1 }
    }

    /// The first step spreads addresses that differ in their last byte, which is high in a key;
    /// some seeds would put them into few bins.
    #[inline(always)]
    fn mix(self, key: u64) -> u64 {
        let x = key ^ key >> (KEY_BITS / 2);
        let x = x.wrapping_mul(self.first) & KEY_MASK;
        let x = x ^ x >> (KEY_BITS / 2);
        x.wrapping_mul(self.second) & KEY_MASK
    }

    /// The key of a hash.
    fn unmix(self, hash: u64) -> u64 {
        let x = hash.wrapping_mul(inverse(self.second)) & KEY_MASK;
        let x = x ^ x >> (KEY_BITS / 2);
        let x = x.wrapping_mul(inverse(self.first)) & KEY_MASK;
        x ^ x >> (KEY_BITS / 2)
    }
}

/// Inverse of an odd number modulo 2^64: each Newton step doubles the correct bits, from three.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Pseudo-random numbers: splitmix64 (Steele, Lea and Flood 2014).
fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A found entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    bin: usize,
    way: usize,
    word: u64,
}

impl Found {
    pub(crate) fn port(self) -> PortId {
        port_of(self.word)
    }

    /// 3 if it was just seen, down to 0.
    pub(crate) fn age(self) -> u64 {
        self.word >> AGE_SHIFT & 3
    }
}

/// The table; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Bins {
    bins: Box<[Bin]>,
    hash: Hash,
    /// From a hash to the number of its bin.
    shift: u32,
}

impl Bins {
    /// An empty table for so many entries, rounded up to a power of two within the limits.
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        let count = capacity.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
        let bins = (0..count).map(|_| Bin([const { AtomicU64::new(EMPTY) }; WAYS])).collect();
        Self { bins, hash: Hash::new(seed), shift: KEY_BITS - count.ilog2() }
    }

    /// A copy; each entry is copied whole.
    pub(crate) fn copy(&self) -> Self {
        let word = |word: &AtomicU64| word.load(Relaxed).into();
        let bins = self.bins.iter().map(|Bin(words)| Bin(words.each_ref().map(word)));
        Self { bins: bins.collect(), hash: self.hash, shift: self.shift }
    }

    /// Capacity in entries.
    pub(crate) fn capacity(&self) -> usize {
        self.bins.len()
    }

    /// The table ready for look-ups in a loop.
    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View { bins: &self.bins, hash: self.hash, shift: self.shift }
    }

    /// First bin of a key, and its word without distance, age and port.
    fn home(&self, key: u64) -> (usize, u64) {
        let mixed = self.hash.mix(key);
        ((mixed >> self.shift) as usize, (mixed & ((1 << self.shift) - 1)) << REST_SHIFT)
    }

    /// Bins that an entry of this first bin may be in, with the distance as in a word.
    fn near(&self, home: usize) -> impl Iterator<Item = (usize, u64)> {
        let last = self.bins.len() - 1;
        (0..REACH).map(move |d| ((home + d as usize) & last, d << DISTANCE_SHIFT))
    }

    /// Searches all possible bins.
    pub(crate) fn find(&self, key: u64) -> Option<Found> {
        let (home, rest) = self.home(key);
        for (bin, distance) in self.near(home) {
            for (way, slot) in self.bins[bin].0.iter().enumerate() {
                let word = slot.load(Relaxed);
                if (word ^ (rest | distance)) < FOUND && word != EMPTY {
                    return Some(Found { bin, way, word });
                }
            }
        }
        None
    }

    /// Resets the age of an entry, if it is still there.
    pub(crate) fn refresh(&self, found: Found) {
        let slot = &self.bins[found.bin].0[found.way];
        // If a writer won the race, there is nothing to refresh.
        let _ = slot.compare_exchange(found.word, found.word | FRESH, Relaxed, Relaxed);
    }

    /// Adds a missing entry; returns `false` if there is no room. One writer at a time.
    pub(crate) fn insert(&self, key: u64, port: PortId) -> bool {
        self.insert_within(REACH as usize, key, port)
    }

    /// As [`insert`](Self::insert), into its first bin only.
    pub(crate) fn insert_home(&self, key: u64, port: PortId) -> bool {
        self.insert_within(1, key, port)
    }

    fn insert_within(&self, reach: usize, key: u64, port: PortId) -> bool {
        let (home, rest) = self.home(key);
        for (bin, distance) in self.near(home).take(reach) {
            for slot in &self.bins[bin].0 {
                if slot.load(Relaxed) == EMPTY {
                    slot.store(rest | distance | fresh(port), Relaxed);
                    return true;
                }
            }
        }
        false
    }

    /// Changes an entry's port and resets its age. One writer at a time.
    pub(crate) fn set_port(&self, found: Found, port: PortId) {
        let word = found.word & !PORT_MASK | fresh(port);
        self.bins[found.bin].0[found.way].store(word, Relaxed);
    }

    /// Removes an entry. One writer at a time.
    pub(crate) fn remove(&self, found: Found) {
        self.bins[found.bin].0[found.way].store(EMPTY, Relaxed);
    }

    /// Ages an entry by one step, unless it was seen meanwhile. One writer at a time.
    pub(crate) fn grow_older(&self, found: Found) {
        let slot = &self.bins[found.bin].0[found.way];
        let older = found.word - (1 << AGE_SHIFT);
        let _ = slot.compare_exchange(found.word, older, Relaxed, Relaxed);
    }

    /// Every entry, with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Found)> {
        let words = self.bins.iter().enumerate().flat_map(|(bin, slots)| {
            let found = move |(way, slot): (usize, &AtomicU64)| (bin, way, slot.load(Relaxed));
            slots.0.iter().enumerate().map(found)
        });
        words.filter(|(_, _, word)| *word != EMPTY).map(|(bin, way, word)| {
            let distance = (word >> DISTANCE_SHIFT) as usize % REACH as usize;
            let home = bin.wrapping_sub(distance) & (self.bins.len() - 1);
            let mixed = (home as u64) << self.shift | word >> REST_SHIFT;
            (self.hash.unmix(mixed), Found { bin, way, word })
        })
    }
}

/// Parts of [`Bins`], which a loop keeps in registers.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bins: &'a [Bin],
    hash: Hash,
    shift: u32,
}

impl View<'_> {
    /// Reads the first bin of a key, without a branch that depends on what is there: the entry's
    /// port and age, or a number from [`FOUND`] up if it is not here.
    #[inline(always)]
    pub(crate) fn first(&self, key: u64) -> u64 {
        let mixed = self.hash.mix(key);
        let wanted = (mixed & ((1 << self.shift) - 1)) << REST_SHIFT;
        // In bounds always: a hash has 60 bits. An empty word differs in its distance at least.
        let Bin([a, b, c, d]) = &self.bins[(mixed >> self.shift) as usize];
        let differs = |slot: &AtomicU64| slot.load(Relaxed) ^ wanted;
        differs(a).min(differs(b)).min(differs(c).min(differs(d)))
    }
}

#[cfg(test)]
mod tests;

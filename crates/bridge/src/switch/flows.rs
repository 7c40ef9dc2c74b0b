//! Flow cache: results of guards and ACL for the flows of one source.
//!
//! Model: a cache from a frame's key to the outcome, with two entries in a set; the older one is
//! replaced. Only key bits that some rule examines count, so one entry serves all flows that the
//! rules do not distinguish ("megaflows", Pfaff and others, NSDI 2015). Outcomes depend only on the
//! table, so an entry is valid as long as the table; the cache records its table and port. A source
//! owns its cache, so a guest with many flows spoils only its own.
//!
//! Before the cache there is the [last run](LastRun): consecutive frames of one flow need no
//! look-up, and plain ones not even a key.

use crate::matching::Words;
use crate::switch::run::LastRun;
use crate::{DropReason, PortId};

/// Sets of two; 40 KiB in all.
const SET_BITS: u32 = 8;
/// Maximum number of counting rules in an outcome.
const COUNTED_MAX: u8 = 4;

/// Outcome for a flow's frames, and the rules that count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) reason: Option<DropReason>,
    /// Number of counting rules; more than [`COUNTED_MAX`] are not recorded.
    len: u8,
    /// 16 bits for each, the first lowest. A number, as an array would not stay in registers.
    rules: u64,
}

impl Outcome {
    pub(crate) const fn pass() -> Self {
        Self { reason: None, len: 0, rules: 0 }
    }

    pub(crate) const fn drop(reason: DropReason) -> Self {
        Self { reason: Some(reason), ..Self::pass() }
    }

    /// Records a rule by the number of its counter.
    pub(crate) fn count(&mut self, rule: usize) {
        if self.len < COUNTED_MAX {
            self.rules |= (rule as u64 & 0xffff) << (16 * self.len);
        }
        self.len = self.len.saturating_add(1);
    }

    /// Counter numbers of the counting rules; `None` if there are too many.
    #[inline]
    pub(crate) fn counted(&self) -> Option<impl Iterator<Item = usize> + use<>> {
        let rules = self.rules;
        let number = move |n: u8| (rules >> (16 * n)) as usize & 0xffff;
        (self.len <= COUNTED_MAX).then(|| (0..self.len).map(number))
    }
}

type Entry = (Words, Outcome);

/// Results of one source's flows; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Flows {
    pub(crate) cache: Cache,
    pub(crate) last: LastRun,
    /// Table and port of the entries; table 0 is none.
    of: (u64, PortId),
}

/// The cache; empty before the first use.
#[derive(Clone, Debug)]
pub(crate) struct Cache(Box<[[Entry; 2]]>);

/// Contents of an empty slot: no frame has a key with these bits.
const NOTHING: Entry = ([u64::MAX; 8], Outcome::pass());

impl Default for Flows {
    fn default() -> Self {
        Self::new()
    }
}

impl Flows {
    /// Knows nothing; the cache is allocated at the first use.
    pub fn new() -> Self {
        Self { cache: Cache(Box::default()), last: LastRun::NONE, of: (0, PortId::UPLINK) }
    }

    /// Begins a burst from a port of the table with this number.
    #[inline]
    pub(crate) fn begin(&mut self, table: u64, port: PortId) {
        if self.of != (table, port) {
            self.of = (table, port);
            self.last = LastRun::NONE;
            self.cache.clear();
        }
    }
}

impl Cache {
    #[cold]
    fn clear(&mut self) {
        if self.0.is_empty() {
            self.0 = vec![[NOTHING; 2]; 1 << SET_BITS].into();
        } else {
            self.0.fill([NOTHING; 2]);
        }
    }

    /// Outcome of a masked key: cached, or else from `find`.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, words: &Words, find: impl FnOnce() -> Outcome) -> Outcome {
        let Some(set) = self.0.get_mut(slot(words)) else { return find() };
        for (there, outcome) in &*set {
            if same(there, words) {
                return *outcome;
            }
        }
        let outcome = find();
        set[1] = set[0];
        set[0] = (*words, outcome);
        outcome
    }
}

/// Compares two keys without a branch for each word.
#[inline(always)]
pub(crate) fn same(a: &Words, b: &Words) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[inline(always)]
fn slot(words: &Words) -> usize {
    // Pseudo-random odd numbers. A guest whose flows collide slows only itself.
    const BY: [u64; 8] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd6e8_feb8_6659_fd93,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
        0x5899_65cc_7537_4cc3,
    ];
    // The folded product of two words depends on all bits of both.
    let pair = |n: usize| {
        let product = u128::from(words[n] ^ BY[n]) * u128::from(words[n + 1] ^ BY[n + 1]);
        product as u64 ^ (product >> 64) as u64
    };
    let mixed = pair(0) ^ pair(2) ^ pair(4) ^ pair(6);
    (mixed.wrapping_mul(BY[0]) >> (u64::BITS - SET_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Words {
        [n, 0, 0, 0, 0, 0, 0, 0]
    }

    fn outcome(n: usize) -> Outcome {
        let mut outcome = Outcome::pass();
        outcome.count(n);
        outcome
    }

    #[test]
    fn what_is_known_is_not_asked_again() {
        let mut flows = Flows::new();
        flows.begin(1, PortId(1));
        assert_eq!(flows.cache.look_up(&key(0), || outcome(3)), outcome(3));
        assert_eq!(flows.cache.look_up(&key(0), || unreachable!()), outcome(3));
        assert_eq!(flows.cache.look_up(&key(1), || outcome(4)), outcome(4));
        for of in [(1, PortId(2)), (2, PortId(2)), (1, PortId(1))] {
            flows.begin(of.0, of.1);
            assert_eq!(flows.cache.look_up(&key(0), || outcome(5)), outcome(5));
            flows.begin(of.0, of.1);
            assert_eq!(flows.cache.look_up(&key(0), || unreachable!()), outcome(5));
        }
    }

    #[test]
    fn more_flows_than_room_are_answered_right() {
        let mut flows = Flows::new();
        flows.begin(1, PortId(1));
        let mut asked = 0;
        for n in (0..3000).chain(0..3000) {
            let found = flows.cache.look_up(&key(n), || {
                asked += 1;
                outcome(n as usize)
            });
            assert_eq!(found, outcome(n as usize));
        }
        assert!(asked > 4000);
        // A few dozen flows stay.
        let mut asked = [0; 2];
        for asked in &mut asked {
            for n in 0..40 {
                flows.cache.look_up(&key(n), || {
                    *asked += 1;
                    outcome(n as usize)
                });
            }
        }
        assert!(asked[0] > 30 && asked[1] <= 4, "{asked:?}");
    }

    #[test]
    fn many_counting_rules_are_not_remembered() {
        let mut outcome = Outcome::pass();
        for n in 0..usize::from(COUNTED_MAX) {
            outcome.count(65_535 - n);
            let counted = outcome.counted().unwrap();
            assert!(counted.eq((0..=n).map(|n| 65_535 - n)));
        }
        (0..300).for_each(|n| outcome.count(n));
        assert!(outcome.counted().is_none());
    }
}

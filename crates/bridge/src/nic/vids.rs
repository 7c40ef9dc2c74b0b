//! A set of VLAN ids.

use std::fmt;

use wire::Vid;

/// Words that hold a bit for each of 4096 ids.
const WORDS: usize = 64;

/// A set of VLAN ids: a trunk's list. To ask it is one load; empty, it takes no memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Vids {
    /// None at all, or [`WORDS`] with at least one bit set.
    bits: Box<[u64]>,
}

impl Vids {
    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns `true` if an id is in the set; 0 and 4095 never are.
    #[inline]
    pub fn contains(&self, vid: u16) -> bool {
        let word = self.bits.get(usize::from(vid) / 64);
        word.is_some_and(|word| word >> (vid % 64) & 1 == 1)
    }

    /// The ids in rising order.
    pub fn iter(&self) -> impl Iterator<Item = Vid> + '_ {
        let set = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u16 * 64 + bit)
        };
        self.bits.iter().enumerate().flat_map(set).filter_map(|vid| Vid::new(vid).ok())
    }
}

impl FromIterator<Vid> for Vids {
    fn from_iter<I: IntoIterator<Item = Vid>>(vids: I) -> Self {
        let mut bits: Box<[u64]> = Box::default();
        for vid in vids.into_iter().map(Vid::get) {
            if bits.is_empty() {
                bits = vec![0; WORDS].into_boxed_slice();
            }
            bits[usize::from(vid) / 64] |= 1 << (vid % 64);
        }
        Self { bits }
    }
}

impl fmt::Debug for Vids {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter().map(Vid::get)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(ids in prop::collection::btree_set(1..=Vid::MAX, 0..20), other: u16) {
            let vids: Vids = ids.iter().map(|vid| Vid::new(*vid).unwrap()).collect();
            prop_assert_eq!(vids.len(), ids.len());
            prop_assert_eq!(vids.is_empty(), ids.is_empty());
            prop_assert_eq!(vids.contains(other), ids.contains(&other));
            prop_assert_eq!(vids.iter().map(Vid::get).collect::<BTreeSet<_>>(), ids);
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        let vids: Vids = [1, Vid::MAX].map(|vid| Vid::new(vid).unwrap()).into_iter().collect();
        assert!(vids.contains(1) && vids.contains(Vid::MAX));
        for vid in [0, 2, 4093, 4095, 4096, u16::MAX] {
            assert!(!vids.contains(vid), "{vid}");
        }
        assert_eq!(Vids::from_iter([]), Vids::default());
        assert_eq!(format!("{vids:?}"), "{1, 4094}");
    }
}

//! One field of a list's rules: from a value to the set of rules that it matches.
//!
//! Model: the rules' ranges cut the values into intervals, within which all values match the same
//! rules. An interval is found by bisection, or, for a field of eight bits, in a table; equal sets
//! are stored once.

use std::collections::HashMap;

/// Sets of rules, each of so many words, rule 0 in bit 0 of the first.
#[derive(Clone, Debug)]
struct Sets {
    words: usize,
    bits: Box<[u64]>,
}

impl Sets {
    #[inline]
    fn get(&self, set: u16) -> &[u64] {
        let start = usize::from(set) * self.words;
        &self.bits[start..start + self.words]
    }
}

/// Collects sets without duplicates.
struct Gather {
    words: usize,
    bits: Vec<u64>,
    known: HashMap<Vec<u64>, u16>,
}

impl Gather {
    fn new(words: usize) -> Self {
        Self { words, bits: Vec::new(), known: HashMap::new() }
    }

    /// The number of a set. There are at most two for each rule, and one.
    fn add(&mut self, set: &[u64]) -> u16 {
        if let Some(number) = self.known.get(set) {
            return *number;
        }
        let number = self.known.len() as u16;
        self.bits.extend_from_slice(set);
        self.known.insert(set.to_vec(), number);
        number
    }

    fn finish(self) -> Sets {
        Sets { words: self.words, bits: self.bits.into() }
    }
}

/// A field whose values are compared with ranges.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<T> {
    /// Start of the second and every later interval, ascending.
    starts: Box<[T]>,
    /// The set of each interval; one more than `starts`.
    set_of: Box<[u16]>,
    sets: Sets,
}

impl<T: Copy + Ord> Ranges<T> {
    /// Builds from the range of each rule, ends included, `None` for any value; `next` is the
    /// successor function. `None` if no rule names the field, which is then skipped.
    pub(crate) fn build(ranges: &[Option<(T, T)>], next: impl Fn(T) -> Option<T>) -> Option<Self> {
        if ranges.iter().all(Option::is_none) {
            return None;
        }
        let words = ranges.len().div_ceil(64);
        let mut set = vec![0; words];
        // Each rule's bit changes where its range begins, and behind its end.
        let mut changes: Vec<(T, usize)> = Vec::new();
        for (rule, range) in ranges.iter().enumerate() {
            match range {
                None => set[rule / 64] |= 1 << (rule % 64),
                Some((start, end)) => {
                    changes.push((*start, rule));
                    changes.extend(next(*end).map(|behind| (behind, rule)));
                }
            }
        }
        changes.sort_unstable();
        let mut sets = Gather::new(words);
        let (mut starts, mut set_of) = (Vec::new(), vec![sets.add(&set)]);
        for here in changes.chunk_by(|a, b| a.0 == b.0) {
            here.iter().for_each(|(_, rule)| set[rule / 64] ^= 1 << (rule % 64));
            starts.push(here[0].0);
            set_of.push(sets.add(&set));
        }
        Some(Self { starts: starts.into(), set_of: set_of.into(), sets: sets.finish() })
    }

    /// The rules that a value matches.
    #[inline]
    pub(crate) fn get(&self, value: T) -> &[u64] {
        let interval = self.starts.partition_point(|start| *start <= value);
        self.sets.get(self.set_of[interval])
    }
}

/// A field of eight bits, compared in any way.
#[derive(Clone, Debug)]
pub(crate) struct Byte {
    set_of: Box<[u16; 256]>,
    sets: Sets,
}

impl Byte {
    /// Builds from a (mask, value) for each rule; `None` if no rule examines any bit.
    pub(crate) fn build(masks: &[(u8, u8)]) -> Option<Self> {
        if masks.iter().all(|(mask, _)| *mask == 0) {
            return None;
        }
        let words = masks.len().div_ceil(64);
        let mut sets = Gather::new(words);
        let set_of = std::array::from_fn(|byte| {
            let mut set = vec![0; words];
            for (rule, (mask, value)) in masks.iter().enumerate() {
                set[rule / 64] |= u64::from(byte as u8 & mask == *value) << (rule % 64);
            }
            sets.add(&set)
        });
        Some(Self { set_of: Box::new(set_of), sets: sets.finish() })
    }

    /// The rules that a value matches.
    #[inline]
    pub(crate) fn get(&self, value: u8) -> &[u64] {
        self.sets.get(self.set_of[usize::from(value)])
    }
}

//! Pseudo-random number generator (xorshift64*, Vigna 2016): the same seed gives the same numbers
//! on every machine. Not for secrets.

/// State of the generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Generator with this seed.
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero; neighbouring seeds must not give neighbouring numbers.
        let state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Random(state | 1)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high bits are better; the bias of the multiplication is negligible.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Number in `least..=most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// `true` once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_with_their_seed_and_cover_their_range() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.between(3, 12)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        for seed in [0, 1, u64::MAX, 0x61c8_8646_80b5_83eb] {
            let seen = numbers(seed);
            assert!((3..=12).all(|n| seen.contains(&n)), "seed {seed:#x} is stuck: {seen:?}");
            assert!(seen.iter().all(|n| (3..=12).contains(n)));
        }
    }
}

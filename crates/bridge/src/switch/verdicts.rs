//! Verdicts of a burst at the switch: those of any bridge, and the copies for mirrors.

use std::ops::{Deref, DerefMut};

use crate::{BURST, DropReason, Summary, Verdict, Verdicts};

/// The verdicts of a burst at the switch. Made once, used for every burst.
#[derive(Clone, Debug)]
pub struct SwitchVerdicts {
    verdicts: Verdicts,
    /// Drop verdicts of the frames in the set that the source checks return.
    refused: [Verdict; BURST],
    /// By frame: the mirrors that get a copy, mirror 0 in bit 0.
    pub(crate) mirrors: [u32; BURST],
    pub(crate) mirrored: bool,
}

impl SwitchVerdicts {
    /// No verdicts yet.
    pub const fn new() -> Self {
        Self {
            verdicts: Verdicts::new(),
            refused: [Verdict::FLOOD; BURST],
            mirrors: [0; BURST],
            mirrored: false,
        }
    }

    /// For each frame of the burst the mirrors that get a copy, mirror 0 in bit 0; an empty slice
    /// if no frame of the burst is mirrored.
    #[inline]
    pub fn mirrors(&self) -> &[u32] {
        if self.mirrored { &self.mirrors[..self.len.min(BURST)] } else { &[] }
    }

    /// Gives all frames the same verdict.
    #[inline]
    pub(crate) fn fill_all(&mut self, verdict: Verdict) -> Summary {
        let len = self.len;
        self.fill(len, verdict)
    }

    /// Gives the first frames one verdict and the rest another.
    pub(crate) fn split(&mut self, at: usize, first: Verdict, rest: Verdict) -> Summary {
        if at >= self.len {
            return self.fill_all(first);
        }
        self.fill_all(rest);
        self.of[..at].fill(first);
        self.summary()
    }

    #[inline]
    pub(crate) fn refuse(&mut self, index: usize, reason: DropReason) {
        self.refused[index % BURST] = Verdict::drop(reason);
    }

    /// Puts the verdicts of a set of refused frames in place.
    #[inline]
    pub(crate) fn take_refused(&mut self, mut set: u64) {
        while set != 0 {
            let index = set.trailing_zeros() as usize;
            set &= set - 1;
            self.of[index % BURST] = self.refused[index % BURST];
        }
    }

    #[inline]
    pub(crate) fn summary(&self) -> Summary {
        match self.as_slice() {
            [] => Summary::Empty,
            // Different frames may still have the same verdict.
            [first, rest @ ..] if rest.iter().all(|verdict| verdict == first) => {
                Summary::Uniform(*first)
            }
            _ => Summary::Mixed,
        }
    }
}

impl Default for SwitchVerdicts {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for SwitchVerdicts {
    type Target = Verdicts;

    #[inline]
    fn deref(&self) -> &Verdicts {
        &self.verdicts
    }
}

impl DerefMut for SwitchVerdicts {
    #[inline]
    fn deref_mut(&mut self) -> &mut Verdicts {
        &mut self.verdicts
    }
}

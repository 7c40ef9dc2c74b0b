//! Search for the longest burst without loss: RFC 2544, section 26.4, as updated by RFC 9004.
//!
//! # Model
//! The length doubles from [`BurstLimits::first`] until a burst loses frames, then the interval is
//! halved. A length counts as lossy after [`LOSSES`] trials in a row with loss, since a shared
//! machine loses frames at any length now and then.
//!
//! # Limits
//! A device as fast as the generator has no longest burst. [`Longest::lossy`] is `None` then, and
//! the length is the longest one tried: a lower bound.

/// Trials with loss in a row that make a length lossy.
pub const LOSSES: usize = 2;

/// Limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLimits {
    /// Length tried first.
    pub first: u64,
    /// Longest length tried.
    pub max: u64,
    /// Maximum distance of the shortest lossy length from the result, relative to that length.
    pub width: f64,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Longest burst without loss, in frames; 0 if each one lost.
    pub frames: u64,
    /// Shortest lossy length; `None` if there is none.
    pub lossy: Option<u64>,
    /// Number of bursts sent.
    pub trials: usize,
}

/// Runs the search; `trial` sends a burst of this many frames, and returns `true` without loss.
///
/// # Errors
/// The first error of a trial.
pub fn longest<E>(
    limits: BurstLimits,
    mut trial: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Longest, E> {
    let mut trials = 0;
    let mut passes = |frames: u64| {
        for _ in 0..LOSSES {
            trials += 1;
            if trial(frames)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut frames, mut lossy) = (0, None);
    let mut next = limits.first.clamp(1, limits.max.max(1));
    loop {
        match passes(next)? {
            true => frames = next,
            false => lossy = Some(next),
        }
        next = match lossy {
            None if frames >= limits.max => break,
            None => frames.saturating_mul(2).min(limits.max),
            Some(lossy) if lossy - frames <= ((limits.width * lossy as f64) as u64).max(1) => break,
            Some(lossy) => frames + (lossy - frames) / 2,
        };
    }
    Ok(Longest { frames, lossy, trials })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::statistics::random::Random;

    const LIMITS: BurstLimits = BurstLimits { first: 256, max: 1_000_000, width: 0.01 };

    /// Device that serves `served` frames in the time of one, and has room for `room`.
    fn device(room: u64, served: f64) -> impl FnMut(u64) -> Result<bool, Infallible> {
        move |frames| Ok(frames as f64 * (1.0 - served) <= room as f64)
    }

    #[test]
    fn the_room_of_a_device_is_found() {
        // A burst fits if its unserved part fits: room / (1 - served).
        for (room, served, longest_frames) in
            [(1_024, 0.0, 1_024), (1_024, 0.5, 2_048), (5_000, 0.9, 50_000), (3, 0.0, 3)]
        {
            let found = longest(LIMITS, device(room, served)).unwrap();
            let lossy = found.lossy.unwrap();
            assert!(found.frames <= longest_frames && longest_frames < lossy, "{found:?}");
            let width = (lossy as f64 * LIMITS.width).max(1.0);
            assert!((lossy - found.frames) as f64 <= width, "{found:?}");
            assert!(found.trials < 40, "{found:?}");
        }
    }

    #[test]
    fn a_device_that_keeps_up_has_a_lower_limit_only() {
        let found = longest(LIMITS, device(0, 1.0)).unwrap();
        assert_eq!((found.frames, found.lossy), (1_000_000, None));
        let found = longest(BurstLimits { max: 100, ..LIMITS }, device(0, 1.0)).unwrap();
        assert_eq!((found.frames, found.lossy, found.trials), (100, None, 1));
    }

    #[test]
    fn a_device_that_always_loses_has_none() {
        let found = longest(LIMITS, |_| Ok::<_, Infallible>(false)).unwrap();
        assert_eq!((found.frames, found.lossy), (0, Some(1)));
    }

    #[test]
    fn a_loss_now_and_then_is_not_the_devices() {
        let mut random = Random::new(1);
        let mut noisy = device(10_000, 0.0);
        let mut good = 0;
        for _ in 0..100 {
            let trial = |frames| Ok::<_, Infallible>(noisy(frames)? && !random.one_in(20));
            good += usize::from(longest(LIMITS, trial).unwrap().frames > 9_800);
        }
        // Two losses in a row: one length in 400, of about 13 lengths of a search.
        assert!(good >= 90, "{good} of 100");
    }

    #[test]
    fn an_error_of_a_trial_ends_the_search() {
        assert_eq!(longest(LIMITS, |_| Err("no daemon")), Err("no daemon"));
    }
}

//! How much others may ask for or cause: a bucket of tokens. The clock is the caller's.

use std::time::{Duration, Instant};

/// Tokens that come back with time, up to a number.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    tokens: f64,
    most: f64,
    per_s: f64,
    seen: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(most: u32, per_s: f64, now: Instant) -> TokenBucket {
        TokenBucket { tokens: most.into(), most: most.into(), per_s, seen: now }
    }

    /// How long until something may be had; zero if it may now. What it costs is taken when that is
    /// known, and may go below nothing: whoever had something dear waits longer afterwards.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let gone = now.saturating_duration_since(self.seen);
        self.seen = now.max(self.seen);
        self.tokens = (self.tokens + gone.as_secs_f64() * self.per_s).min(self.most);
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.per_s)
    }

    /// Whether nothing is missing.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.wait(now);
        self.tokens >= self.most
    }

    /// Takes tokens.
    pub(crate) fn take(&mut self, tokens: u32) {
        self.tokens -= f64::from(tokens);
    }

    /// Takes one token if there is one.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        let admits = self.wait(now).is_zero();
        if admits {
            self.take(1);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_comes_back_with_time() {
        let start = Instant::now();
        let mut ration = TokenBucket::new(20, 10.0, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!((0..50).filter(|_| ration.admits(at(0))).count(), 20);
        assert_eq!(ration.wait(at(0)), Duration::from_millis(100));
        assert_eq!((0..50).filter(|_| ration.admits(at(1000))).count(), 10);
        assert_eq!((0..50).filter(|_| ration.admits(at(900_000))).count(), 20, "no more than fit");
    }

    #[test]
    fn something_dear_makes_the_next_wait() {
        let start = Instant::now();
        let mut ration = TokenBucket::new(1, 10.0, start);
        assert!(ration.wait(start).is_zero());
        ration.take(10);
        assert_eq!(ration.wait(start), Duration::from_secs(1));
        // A clock that goes back gives nothing.
        assert!(!ration.admits(start - Duration::from_secs(5)));
        assert!(ration.admits(start + Duration::from_secs(1)));
    }
}

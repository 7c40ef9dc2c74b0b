//! Token bucket: limits requests and events that others cause. The caller has the clock.

use std::time::{Duration, Instant};

/// Tokens, refilled over time up to a maximum.
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

    /// Time until the next admission; zero if now. The caller takes the cost once it is known. The
    /// balance may go negative: an expensive request delays the following ones.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let gone = now.saturating_duration_since(self.seen);
        self.seen = now.max(self.seen);
        self.tokens = (self.tokens + gone.as_secs_f64() * self.per_s).min(self.most);
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.per_s)
    }

    /// `true` if the bucket is full.
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
        let mut bucket = TokenBucket::new(20, 10.0, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!((0..50).filter(|_| bucket.admits(at(0))).count(), 20);
        assert_eq!(bucket.wait(at(0)), Duration::from_millis(100));
        assert_eq!((0..50).filter(|_| bucket.admits(at(1000))).count(), 10);
        assert_eq!((0..50).filter(|_| bucket.admits(at(900_000))).count(), 20, "no more than fit");
    }

    #[test]
    fn something_dear_makes_the_next_wait() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1, 10.0, start);
        assert!(bucket.wait(start).is_zero());
        bucket.take(10);
        assert_eq!(bucket.wait(start), Duration::from_secs(1));
        // A clock that goes back adds nothing.
        assert!(!bucket.admits(start - Duration::from_secs(5)));
        assert!(bucket.admits(start + Duration::from_secs(1)));
    }
}

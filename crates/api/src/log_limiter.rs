//! Limits log lines that guests and clients can cause.

use std::time::{Duration, Instant};

use crate::token_bucket::TokenBucket;

/// Limit of log lines of one source: burst, and rate per second.
const LINES: (u32, f64) = (20, 1.0);

/// Interval for repeating an unchanged line.
const REPEAT: Duration = Duration::from_secs(60);

/// Logs a limited number of lines, and reports how many were dropped.
#[derive(Debug, Default)]
pub struct LogLimiter {
    bucket: Option<TokenBucket>,
    held: u64,
}

impl LogLimiter {
    /// Logs a line for information.
    pub fn info(&mut self, line: &str) {
        if let Some(before) = self.lets_through(Instant::now()) {
            tracing::info!("{line}{before}");
        }
    }

    /// Logs a warning.
    pub fn warn(&mut self, line: &str) {
        if let Some(before) = self.lets_through(Instant::now()) {
            tracing::warn!("{line}{before}");
        }
    }

    /// Logs an error.
    pub fn error(&mut self, line: &str) {
        if let Some(before) = self.lets_through(Instant::now()) {
            tracing::error!("{line}{before}");
        }
    }

    /// Suffix for the line, with the number of dropped ones; `None` drops the line.
    fn lets_through(&mut self, now: Instant) -> Option<String> {
        let bucket = self.bucket.get_or_insert_with(|| TokenBucket::new(LINES.0, LINES.1, now));
        if !bucket.admits(now) {
            self.held += 1;
            return None;
        }
        Some(match std::mem::take(&mut self.held) {
            0 => String::new(),
            held => format!(" ({held} earlier lines were dropped)"),
        })
    }
}

/// Suppresses repeats: a line passes if it differs from the last one, or after a minute.
#[derive(Debug, Default)]
pub struct RepeatFilter {
    last: Option<(String, Instant)>,
}

impl RepeatFilter {
    /// `true` if the line should be logged now.
    pub fn is_new(&mut self, line: &str, now: Instant) -> bool {
        if let Some((last, said)) = &self.last
            && last == line
            && now.duration_since(*said) < REPEAT
        {
            return false;
        }
        self.last = Some((line.to_owned(), now));
        true
    }

    /// Forgets the last line, because its cause is gone.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_lines_at_once_and_one_a_second() {
        let mut limiter = LogLimiter::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let through = |limiter: &mut LogLimiter, ms| {
            let lines: Vec<String> =
                (0..100).filter_map(|_| limiter.lets_through(at(ms))).collect();
            (lines.len(), lines.last().cloned().unwrap_or_default())
        };
        assert_eq!(through(&mut limiter, 0), (20, String::new()));
        assert_eq!(through(&mut limiter, 999), (0, String::new()));
        let told = " (180 earlier lines were dropped)".to_owned();
        assert_eq!(through(&mut limiter, 1001), (1, told));
        assert_eq!(through(&mut limiter, 60_000).0, 20);
    }

    #[test]
    fn the_same_line_is_said_once_a_minute_and_a_change_at_once() {
        let mut repeated = RepeatFilter::default();
        let start = Instant::now();
        let mut news = |line, s| repeated.is_new(line, start + Duration::from_secs(s));
        let said: Vec<u64> = (0..150).filter(|&s| news("refused", s)).collect();
        assert_eq!(said, [0, 60, 120]);
        assert!(news("forbidden", 150) && !news("forbidden", 151));
        assert!(news("refused", 152) && !news("refused", 153));
        repeated.forget();
        assert!(repeated.is_new("refused", start + Duration::from_secs(154)));
    }
}

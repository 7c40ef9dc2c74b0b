//! Log lines that others can cause: as often as they like, and so a limited number each.

use std::time::{Duration, Instant};

use crate::token_bucket::TokenBucket;

/// Log lines that one socket may cause at once, and a second.
const LINES: (u32, f64) = (20, 1.0);

/// How often the same line is said again while nothing changes.
const REPEAT: Duration = Duration::from_secs(60);

/// Lets a limited number of lines through, and says how many it held back.
#[derive(Debug, Default)]
pub struct LogLimiter {
    ration: Option<TokenBucket>,
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

    /// Suffix for a line that may be logged, with the number held back before it; `None` holds it
    /// back.
    fn lets_through(&mut self, now: Instant) -> Option<String> {
        let ration = self.ration.get_or_insert_with(|| TokenBucket::new(LINES.0, LINES.1, now));
        if !ration.admits(now) {
            self.held += 1;
            return None;
        }
        Some(match std::mem::take(&mut self.held) {
            0 => String::new(),
            held => format!(" ({held} lines before this one were held back)"),
        })
    }
}

/// Holds back what was just said: a line is news if it is another one than the last, or a minute
/// has passed.
#[derive(Debug, Default)]
pub struct Repeated {
    last: Option<(String, Instant)>,
}

impl Repeated {
    /// Whether this line is to be said now.
    pub fn is_news(&mut self, line: &str, now: Instant) -> bool {
        if let Some((last, said)) = &self.last
            && last == line
            && now.duration_since(*said) < REPEAT
        {
            return false;
        }
        self.last = Some((line.to_owned(), now));
        true
    }

    /// What was wrong is over: if it comes again, it is news.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_lines_at_once_and_one_a_second() {
        let mut quiet = LogLimiter::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let through = |quiet: &mut LogLimiter, ms| {
            let lines: Vec<String> = (0..100).filter_map(|_| quiet.lets_through(at(ms))).collect();
            (lines.len(), lines.last().cloned().unwrap_or_default())
        };
        assert_eq!(through(&mut quiet, 0), (20, String::new()));
        assert_eq!(through(&mut quiet, 999), (0, String::new()));
        let told = " (180 lines before this one were held back)".to_owned();
        assert_eq!(through(&mut quiet, 1001), (1, told));
        assert_eq!(through(&mut quiet, 60_000).0, 20);
    }

    #[test]
    fn the_same_line_is_said_once_a_minute_and_a_change_at_once() {
        let mut repeated = Repeated::default();
        let start = Instant::now();
        let mut news = |line, s| repeated.is_news(line, start + Duration::from_secs(s));
        let said: Vec<u64> = (0..150).filter(|&s| news("refused", s)).collect();
        assert_eq!(said, [0, 60, 120]);
        assert!(news("forbidden", 150) && !news("forbidden", 151));
        assert!(news("refused", 152) && !news("refused", 153));
        repeated.forget();
        assert!(repeated.is_news("refused", start + Duration::from_secs(154)));
    }
}

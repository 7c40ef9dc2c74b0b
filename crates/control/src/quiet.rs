//! Log lines that others can cause: as often as they like, and so a limited number each.

use std::time::{Duration, Instant};

/// Log lines that one socket may cause a second.
const LINES_A_SECOND: u32 = 10;

/// How often the same line is said again while nothing changes.
const REPEAT: Duration = Duration::from_secs(60);

/// Lets a limited number of lines through a second, and says how many it held back.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    since: Option<Instant>,
    lines: u32,
    held: u64,
}

impl Quiet {
    pub(crate) fn info(&mut self, line: &str) {
        if self.lets_through(Instant::now()) {
            tracing::info!("{line}");
        }
    }

    pub(crate) fn warn(&mut self, line: &str) {
        if self.lets_through(Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    pub(crate) fn error(&mut self, line: &str) {
        if self.lets_through(Instant::now()) {
            tracing::error!("{line}");
        }
    }

    fn lets_through(&mut self, now: Instant) -> bool {
        let over = |since| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(over) {
            if self.held > 0 {
                tracing::warn!("{} lines like the last one were held back", self.held);
            }
            *self = Quiet { since: Some(now), lines: 0, held: 0 };
        }
        self.lines += 1;
        let through = self.lines <= LINES_A_SECOND;
        self.held += u64::from(!through);
        through
    }
}

/// Holds back what was just said: a line is news if it is another one than the last, or a minute has
/// passed.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    last: Option<(String, Instant)>,
}

impl Repeated {
    /// Whether this line is to be said now.
    pub(crate) fn is_news(&mut self, line: &str, now: Instant) -> bool {
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
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_no_more() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let through =
            |quiet: &mut Quiet, ms| (0..100).filter(|_| quiet.lets_through(at(ms))).count();
        assert_eq!(through(&mut quiet, 0), 10);
        assert_eq!(through(&mut quiet, 999), 0);
        assert_eq!(quiet.held, 190);
        assert_eq!(through(&mut quiet, 1000), 10);
        assert_eq!(quiet.held, 90, "the second before was accounted for");
        assert_eq!(through(&mut quiet, 60_000), 10);
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

//! Splits a stream of arbitrary bytes into lines of bounded length.

use std::io::{self, Read};

use super::protocol::LINE_MAX;

/// Input that was not read as lines yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// At most one line and its newline.
    bytes: Vec<u8>,
    /// Number of leading bytes among which there is no newline.
    searched: usize,
    /// `true` while the rest of an overlong line is discarded.
    passing: bool,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Without the newline.
    Whole(Vec<u8>),
    /// An overlong line; the rest of it is discarded.
    TooLong,
}

impl Lines {
    /// Reads once, as much as there is room for; `false` at the end of the stream.
    ///
    /// # Errors
    /// As `read(2)`, without `EAGAIN`.
    pub(super) fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let held = self.bytes.len();
        self.bytes.resize(LINE_MAX + 1, 0);
        let read = if held <= LINE_MAX { stream.read(&mut self.bytes[held..]) } else { Ok(1) };
        let (more, result) = match read {
            Ok(_) if held > LINE_MAX => (0, Ok(true)),
            Ok(0) => (0, Ok(false)),
            Ok(n) => (n, Ok(true)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => (0, Ok(true)),
                _ => (0, Err(error)),
            },
        };
        self.bytes.truncate(held + more);
        result
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Option<Line> {
        loop {
            let newline = self.unsearched().iter().position(|byte| *byte == b'\n');
            let Some(end) = newline.map(|at| self.searched + at) else {
                self.searched = self.bytes.len();
                if self.bytes.len() <= LINE_MAX {
                    return None;
                }
                self.clear();
                if std::mem::replace(&mut self.passing, true) {
                    return None;
                }
                return Some(Line::TooLong);
            };
            let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
            self.searched = 0;
            line.pop();
            // An empty line is no request; it also ends a discarded one.
            if std::mem::take(&mut self.passing) || line.trim_ascii().is_empty() {
                continue;
            }
            return Some(Line::Whole(line));
        }
    }

    /// Discards the buffer, and the rest of a line that has begun.
    pub(super) fn discard(&mut self) {
        self.passing = self.bytes.last().map_or(self.passing, |last| *last != b'\n');
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.searched = 0;
    }

    /// Bytes that no search for a newline has seen.
    fn unsearched(&self) -> &[u8] {
        &self.bytes[self.searched..]
    }

    /// `true` if the buffer is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of lines in the buffer. An overlong line counts as many as fit in its place.
    pub(super) fn waiting(&self) -> usize {
        match self.bytes.len() > LINE_MAX {
            true => LINE_MAX,
            false => self.unsearched().iter().filter(|byte| **byte == b'\n').count(),
        }
    }

    /// `true` if a line is in the buffer.
    pub(super) fn has_line(&self) -> bool {
        self.bytes.len() > LINE_MAX || self.unsearched().contains(&b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `bytes`, read in pieces of `piece` bytes.
    fn lines(mut bytes: &[u8], piece: usize) -> Vec<Line> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        while !bytes.is_empty() {
            let mut now = &bytes[..piece.min(bytes.len())];
            while !now.is_empty() {
                assert!(lines.fill(&mut now).unwrap());
                found.extend(std::iter::from_fn(|| lines.next()));
                assert!(!lines.has_line());
                assert!(lines.bytes.len() <= LINE_MAX + 1);
            }
            bytes = &bytes[piece.min(bytes.len())..];
        }
        found
    }

    #[test]
    fn lines_come_out_whole_however_they_come_in() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        let long = "x".repeat(LINE_MAX);
        let text = format!("\n\na\n  \nbc\n{long}\nd\ne");
        for piece in [1, 2, 3, 1000, LINE_MAX + 5, 100_000] {
            assert_eq!(lines(text.as_bytes(), piece), ["a", "bc", &long, "d"].map(whole));
        }
    }

    #[test]
    fn what_is_discarded_takes_the_line_with_it_that_has_begun() {
        for (before, after, left) in [
            ("a\nb", "c\nd\n", vec!["d"]),
            ("a\nb\n", "c\nd\n", vec!["c", "d"]),
            ("a\nb", "c", vec![]),
            ("", "c\n", vec!["c"]),
        ] {
            let mut lines = Lines::default();
            assert!(before.is_empty() || lines.fill(&mut before.as_bytes()).unwrap());
            lines.discard();
            assert!(lines.is_empty() && !lines.has_line());
            assert!(lines.fill(&mut after.as_bytes()).unwrap());
            let found: Vec<Line> = std::iter::from_fn(|| lines.next()).collect();
            let left: Vec<Line> =
                left.iter().map(|it| Line::Whole(it.as_bytes().to_vec())).collect();
            assert_eq!(found, left, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_passed_over() {
        let text = format!("{}\nb\n", "x".repeat(3 * LINE_MAX));
        for piece in [1, 7, LINE_MAX, 100_000] {
            let found = lines(text.as_bytes(), piece);
            assert_eq!(found, [Line::TooLong, Line::Whole(b"b".to_vec())], "{piece}");
        }
        let mut lines = Lines::default();
        assert!(!lines.fill(&mut &b""[..]).unwrap(), "the end is told");
    }
}

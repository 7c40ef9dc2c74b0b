//! Priorities of log lines for the journal of systemd, so that `journalctl -p warning` finds those
//! on which the operator must act: sd-daemon(3).

use std::io::{self, Write};
use std::os::fd::AsFd;

use daemon::log::Log;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Returns `true` if standard error goes to the journal: `JOURNAL_STREAM` of systemd.exec(5).
pub(crate) fn is_standard_error() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let stat = rustix::fs::fstat(io::stderr().as_fd());
    stat.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Prefix of a line of this level.
pub(crate) fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Log whose lines have their priorities.
#[derive(Debug)]
pub(crate) struct JournalLog(pub(crate) Log);

/// Writer of a line.
#[derive(Debug)]
pub(crate) struct JournalLine {
    log: Log,
    prefix: &'static str,
}

impl MakeWriter<'_> for JournalLog {
    type Writer = JournalLine;

    fn make_writer(&self) -> JournalLine {
        JournalLine { log: self.0.clone(), prefix: prefix(Level::INFO) }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> JournalLine {
        JournalLine { log: self.0.clone(), prefix: prefix(*meta.level()) }
    }
}

/// One line per call, as `tracing_subscriber` writes.
impl Write for JournalLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.log.write_all(&[self.prefix.as_bytes(), line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }
}

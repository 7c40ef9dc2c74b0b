//! Text for standard output: a terminal's width and lines, or plain text.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use model::state::printable;
use report::{Align, TextFormat, wrap};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;

/// Maximum width of sentences on a terminal, in columns.
const SENTENCE_COLUMNS: u16 = 100;

/// A table with this header.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return "none\n".to_owned();
    }
    let columns = header.map(|name| (name, Align::Left));
    of_stdout().table(&columns, rows.into_iter().map(Vec::from).collect())
}

/// A table of figures: words in the first column, numbers in the others.
pub(crate) fn figures<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let align = |i| if i == 0 { Align::Left } else { Align::Right };
    let columns: Vec<_> = (0..N).map(|i| (header[i], align(i))).collect();
    of_stdout().table(&columns, rows.into_iter().map(Vec::from).collect())
}

/// A value as a cell: strings without quotes, booleans as on and off, null as a dash.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::String(text) => printable(text),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Form of tables for standard output: plain in a pipe, in a locale without UTF-8 and with
/// `NO_COLOR` (<https://no-color.org>).
pub(crate) fn of_stdout() -> TextFormat {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    let is_utf8 = locale.contains("utf-8") || locale.contains("utf8");
    if !io::stdout().is_terminal() || !is_utf8 || set("NO_COLOR").is_some() {
        return TextFormat::PLAIN;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let width = size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
    TextFormat { width, ..TextFormat::LINES }
}

/// A sentence as one line; on a terminal wrapped between words.
pub(crate) fn wrapped(sentence: &str) -> String {
    let width = of_stdout().width.map_or(usize::MAX, |width| width.min(SENTENCE_COLUMNS).into());
    wrap(sentence, width).join("\n") + "\n"
}

/// Output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output; free space where it goes, or send it elsewhere")]
pub(crate) struct OutputError(#[from] io::Error);

/// Waits for `time`, or less if the reader of standard output is gone: returns `false` then.
pub(crate) fn wait_for_reader(time: Duration) -> io::Result<bool> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        // Without events it reports errors only: the other end is closed.
        let out = io::stdout();
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            other => return Ok(other? == 0),
        }
    }
}

/// Writes to standard output. A reader that closes early (`shunt stats | head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

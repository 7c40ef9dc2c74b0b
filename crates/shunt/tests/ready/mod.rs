//! Start of a daemon by a test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts `shunt up`, and waits until it says `line` and a line feed: it is ready.
///
/// # Panics
/// It does not start, ends, or says something else.
pub(crate) fn spawn(command: &mut Command, line: &str) -> Child {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("shunt was built for this test");
    let mut said = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
    out.read_line(&mut said).expect("a line, or the end");
    assert_eq!(said, format!("{line}\n"));
    child
}

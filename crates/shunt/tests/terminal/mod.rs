//! Output of commands on a terminal.

use std::fs;
use std::io::Read;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both ends of a new terminal of this width, in columns.
pub(crate) fn open(width: u16) -> [fs::File; 2] {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is ours");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).expect("it is a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name").into_string();
    let end = fs::File::options().read(true).write(true).open(name.expect("UTF-8"));
    [fs::File::from(terminal), end.expect("the other end")]
}

/// Output of a command that succeeds on a terminal of this width, in columns.
pub(crate) fn on_terminal(width: u16, words: &[String], env: &[(&str, &str)]) -> String {
    let [mut from, end] = open(width);
    let mut child = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(words)
        .env_clear()
        .envs(env.iter().copied())
        .stdout(end)
        .spawn()
        .expect("shunt was built for this test");
    // The read fails once the last writer is gone.
    let mut text = Vec::new();
    let _ = from.read_to_end(&mut text);
    assert!(child.wait().expect("it ends").success(), "shunt {words:?}");
    String::from_utf8(text).expect("UTF-8").replace("\r\n", "\n")
}

/// Asserts that a command's lines fit on terminals of 80 and 60 columns; a word may be longer.
pub(crate) fn fits(words: &[String]) {
    for width in [80, 60] {
        let text = on_terminal(width, words, &[("LANG", "C.UTF-8")]);
        assert!(text.lines().count() > 1, "{words:?}: {text}");
        for line in text.lines().filter(|line| line.chars().count() > width.into()) {
            assert!(!line.trim().contains(' '), "{words:?} at {width} columns: {line}\n{text}");
        }
    }
}

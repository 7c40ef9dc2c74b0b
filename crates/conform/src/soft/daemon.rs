//! The daemon of the soft NIC, which can be ended in every way and started again.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::subject::End;

/// How long it may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// How long it may take to end.
const END: Duration = Duration::from_secs(10);

/// A daemon and its directory. Both go when it is dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    program: PathBuf,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Daemon {
    /// Starts an empty daemon, which keeps its state.
    pub(super) fn start(program: &Path) -> Result<Daemon> {
        let dir = tempfile::Builder::new().prefix("shunt-conform-").tempdir();
        let dir = dir.context("cannot make a temporary directory; set TMPDIR to a writable one")?;
        let shown = dir.path().display();
        let text = format!("run_dir = \"{shown}/run\"\nstate_dir = \"{shown}/state\"\n");
        std::fs::write(dir.path().join("shunt.toml"), text).context("cannot write there")?;
        let mut daemon = Daemon { program: program.to_owned(), dir, child: None };
        daemon.resume()?;
        Ok(daemon)
    }

    pub(super) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The directory for sockets of guests that listen: the daemon's own is its owner's.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it again on what the one before has left.
    pub(super) fn resume(&mut self) -> Result<()> {
        let mut child = Command::new(&self.program)
            .args(["up", "--with-parent", "--config"])
            .arg(self.dir.path().join("shunt.toml"))
            .env("SHUNT_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let out = child.stdout.take().map(BufReader::new).context("it was piped")?;
        let mut error = child.stderr.take().context("it was piped")?;
        self.child = Some(child);
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let mut out = out;
            let _ = said.send(out.read_line(&mut line).is_ok_and(|n| n > 0));
        });
        // Somebody must read what it says, or it would stand still one day.
        let (why, words) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = error.read_to_string(&mut text);
            let _ = why.send(text);
        });
        if heard.recv_timeout(READY) == Ok(true) {
            return Ok(());
        }
        self.end(End::Killed)?;
        let words = words.recv_timeout(END).unwrap_or_default();
        bail!("the daemon did not start: {}", words.trim());
    }

    /// Ends it, and waits until it is gone.
    pub(super) fn end(&mut self, how: End) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        match how {
            End::Killed => child.kill()?,
            End::Asked => kill_process(Pid::from_child(&child), Signal::TERM)?,
        }
        let patience = Instant::now() + END;
        while child.try_wait()?.is_none() {
            if Instant::now() > patience {
                child.kill()?;
                child.wait()?;
                bail!("the daemon did not end within {} s of being asked to", END.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.end(End::Killed); // it is not needed any more, however it ends
    }
}

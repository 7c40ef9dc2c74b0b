//! Daemon of the soft NIC, with start, stop and kill.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::subject::ManagerStop;

/// Time limit for the start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A daemon and its directory; both end when dropped.
#[derive(Debug)]
pub(super) struct SoftDaemon {
    program: PathBuf,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl SoftDaemon {
    /// Starts a daemon with persistent, empty state.
    pub(super) fn start(program: &Path) -> Result<SoftDaemon> {
        let dir = tempfile::Builder::new().prefix("shunt-conform-").tempdir();
        let dir = dir.context("cannot make a temporary directory; set TMPDIR to a writable one")?;
        let shown = dir.path().display();
        let text = format!("run_dir = \"{shown}/run\"\nstate_dir = \"{shown}/state\"\n");
        std::fs::write(dir.path().join("shunt.toml"), text).context("cannot write there")?;
        let mut daemon = SoftDaemon { program: program.to_owned(), dir, child: None };
        daemon.resume()?;
        Ok(daemon)
    }

    pub(super) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Directory for sockets on which guests listen: the daemon's own belongs to its owner.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the daemon again on its old state.
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
        // Its output must be read, or the daemon would block on a full pipe.
        let (why, words) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = error.read_to_string(&mut text);
            let _ = why.send(text);
        });
        if heard.recv_timeout(START_TIMEOUT) == Ok(true) {
            return Ok(());
        }
        self.end(ManagerStop::Killed)?;
        let words = words.recv_timeout(STOP_TIMEOUT).unwrap_or_default();
        bail!("the daemon did not start: {}", words.trim());
    }

    /// Stops the daemon, and waits for its exit.
    pub(super) fn end(&mut self, how: ManagerStop) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        match how {
            ManagerStop::Killed => child.kill()?,
            ManagerStop::Graceful => kill_process(Pid::from_child(&child), Signal::TERM)?,
        }
        let patience = Instant::now() + STOP_TIMEOUT;
        while child.try_wait()?.is_none() {
            if Instant::now() > patience {
                child.kill()?;
                child.wait()?;
                bail!("the daemon did not exit within {} s", STOP_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for SoftDaemon {
    fn drop(&mut self) {
        let _ = self.end(ManagerStop::Killed); // it is not needed any more, however it ends
    }
}

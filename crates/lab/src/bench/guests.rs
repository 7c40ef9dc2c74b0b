//! Guest processes of a bench.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use host::{CpuTime, ProcessCpu};
use traffic::{Event, GuestResult, GuestSpec, Task};

use super::interrupt::Registered;

/// A process that hosts guests. It is killed when dropped.
#[derive(Debug)]
pub struct GuestProcess {
    child: Child,
    _registered: Registered,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl GuestProcess {
    /// Starts a process and waits until its guests are attached; `program` is shunt itself.
    pub fn start(program: &Path, spec: &GuestSpec) -> Result<GuestProcess> {
        GuestProcess::start_task(program, &Task::Guests(spec.clone()))
    }

    /// Starts a process with any task and waits until it is ready.
    pub fn start_task(program: &Path, task: &Task) -> Result<GuestProcess> {
        let child = Command::new(program)
            .args(["lab", "guest"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a guest process")?;
        GuestProcess::of(child, task)
    }

    fn of(mut child: Child, task: &Task) -> Result<GuestProcess> {
        let input = child.stdin.take().expect("it was piped");
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let _registered = Registered::new(&child);
        let mut process = GuestProcess { child, _registered, input, output };
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        process.input.write_all(&line).context("the guest process ended early")?;
        match process.hear()? {
            Event::Ready => Ok(process),
            other => bail!("the guest process said {other:?} before it was ready"),
        }
    }

    /// Lets the traffic begin.
    pub fn go(&mut self) -> Result<()> {
        self.tell("go")
    }

    /// Has it note what was since the last mark.
    pub fn mark(&mut self) -> Result<()> {
        self.tell("mark")
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let sent = self.input.write_all(format!("{line}\n").as_bytes());
        sent.context("the guest process ended early")
    }

    /// Waits for what it says next.
    pub fn hear(&mut self) -> Result<Event> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("cannot hear the guest process")? == 0 {
            let status = self.child.wait()?;
            bail!("the guest process ended early: {status}");
        }
        serde_json::from_str(&line).with_context(|| format!("the guest process said {line:?}"))
    }

    /// Waits for the measurement to begin.
    pub fn begin(&mut self) -> Result<()> {
        match self.hear()? {
            Event::Begin => Ok(()),
            other => bail!("the guest process said {other:?} and not that it begins"),
        }
    }

    /// Waits for the measurement to end.
    pub fn end(&mut self) -> Result<()> {
        match self.hear()? {
            Event::End => Ok(()),
            other => bail!("the guest process said {other:?} and not that it ends"),
        }
    }

    /// Waits for the result.
    pub fn result(&mut self) -> Result<GuestResult> {
        match self.hear()? {
            Event::Result(result) => Ok(result),
            other => bail!("the guest process said {other:?} and no result"),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What CPU time it has used.
    pub fn cpu(&self) -> Result<CpuTime> {
        Ok(ProcessCpu::read(self.child.id())?.process)
    }
}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

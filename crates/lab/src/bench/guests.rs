//! Guest processes of a bench.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use host::{CpuTime, ProcessCpu};
use traffic::protocol::numbered::Mark;
use traffic::{Event, GuestResult, GuestSpec, Task};

use super::interrupt::Registered;

/// Process that hosts guests; killed when dropped.
#[derive(Debug)]
pub struct GuestProcess {
    child: Child,
    _registered: Registered,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl GuestProcess {
    /// Starts a process and waits until its guests are attached; `program` is the shunt binary.
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

    /// Starts the traffic.
    pub fn go(&mut self) -> Result<()> {
        self.tell("go")
    }

    /// Tells the process to begin a new span of its account.
    pub fn mark(&mut self) -> Result<()> {
        self.tell("mark")
    }

    /// Ends a span of numbered frames.
    pub fn end_span(&mut self) -> Result<Mark> {
        self.mark()?;
        match self.hear()? {
            Event::Marked(mark) => Ok(mark),
            other => bail!("the guest process said {other:?} and no span"),
        }
    }

    /// Sends a line to the process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let sent = self.input.write_all(format!("{line}\n").as_bytes());
        sent.context("the guest process ended early")
    }

    /// Waits for its next event.
    pub fn hear(&mut self) -> Result<Event> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("cannot read from the guest process")? == 0 {
            let status = self.child.wait()?;
            bail!("the guest process ended early: {status}");
        }
        serde_json::from_str(&line).with_context(|| format!("the guest process said {line:?}"))
    }

    /// Waits for the begin of the measurement.
    pub fn begin(&mut self) -> Result<()> {
        match self.hear()? {
            Event::Begin => Ok(()),
            other => bail!("the guest process said {other:?} and not that it begins"),
        }
    }

    /// Waits for the end of the measurement.
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

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time used by the process.
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

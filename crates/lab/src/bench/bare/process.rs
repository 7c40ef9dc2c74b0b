//! A bare switch as a child process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::BareSpec;
use crate::measure::copy_loop::Counters;

/// Process that runs the bare loop; killed when dropped.
#[derive(Debug)]
pub struct BareProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl BareProcess {
    /// Starts a process and waits until it serves its sockets; `program` is the shunt binary.
    ///
    /// # Errors
    /// The process does not start, or cannot use a socket.
    pub fn start(program: &Path, spec: &BareSpec) -> Result<BareProcess> {
        let BareSpec { guests, connect, cpu, delay_cycles, .. } = spec;
        let mut command = Command::new(program);
        command.args(["lab", "bare", "--with-parent"]);
        for (socket, mac) in guests {
            command.arg("--socket").arg(socket).args(["--mac", &mac.to_string()]);
        }
        command.args(["--delay-cycles", &delay_cycles.to_string()]);
        for (flag, wanted) in [
            ("--connect", *connect),
            ("--no-packed", !spec.packed),
            ("--no-mergeable", !spec.mergeable),
        ] {
            if wanted {
                command.arg(flag);
            }
        }
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the bare loop's process")?;
        let input = child.stdin.take().expect("it was piped");
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut process = BareProcess { child, input, output };
        process.line().context("the bare loop is not ready")?;
        Ok(process)
    }

    /// Reads its counters.
    ///
    /// # Errors
    /// The process has ended.
    pub fn counters(&mut self) -> Result<Counters> {
        self.input.write_all(b"counters\n").context("the bare loop's process has ended")?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("not counters: {line:?}"))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let n = self.output.read_line(&mut line).context("cannot read from the bare loop")?;
        ensure!(n > 0, "the bare loop's process has ended");
        Ok(line)
    }
}

impl Drop for BareProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

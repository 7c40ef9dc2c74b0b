//! Process of a peer: its output, its end, and operations on any process by id.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};

use crate::bench::interrupt;

/// Maximum bytes of output that are kept.
const OUTPUT_MAX: usize = 1 << 20;
/// Longest time for a process to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for a process to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Returns `true` if a program is in the search path, or exists, if it is a path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_absolute() && Path::new(program).exists()
        || std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Longest wait for the last output of an ended process.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Output {
    text: Mutex<String>,
    grown: Condvar,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let mut text = self.lock();
            if text.len() < OUTPUT_MAX {
                text.push_str(&String::from_utf8_lossy(&line));
            }
            line.clear();
            self.grown.notify_all();
        }
    }
}

/// Process of a measured program. Dropping it ends it, even while it is stopped.
#[derive(Debug)]
pub struct Peer {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Arc<Output>,
    /// Threads that collect its output; they end with it.
    collectors: [JoinHandle<()>; 2],
    /// Signal that ends it; `None`: the end of its input ends it.
    end: Option<Signal>,
}

impl Peer {
    /// Starts `args`, the program first, in `dir`; the kernel kills it when this thread ends.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start(
        args: &[String],
        dir: &Path,
        env: &[(&str, &Path)],
        end: Option<Signal>,
    ) -> Result<Peer> {
        let name = args[0].clone();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "stdbuf", "-oL"])
            .args(args)
            .envs(env.iter().copied())
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // a terminal's SIGINT is for the lab, which ends it in order
            .spawn()
            .with_context(|| format!("cannot start setpriv for {name}"))?;
        let output = Arc::<Output>::default();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (of_out, of_err) = (output.clone(), output.clone());
        let collectors = [
            std::thread::spawn(move || out.into_iter().for_each(|out| of_out.collect(out))),
            std::thread::spawn(move || err.into_iter().for_each(|err| of_err.collect(err))),
        ];
        let input = child.stdin.take();
        Ok(Peer { name, child, input, output, collectors, end })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended unexpectedly.
    ///
    /// # Errors
    /// It has; the text contains the end of its output.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                // Its last output may still be in the pipe, which a child of it may hold open.
                let until = Instant::now() + LAST_WORDS;
                let all = |it: &Self| it.collectors.iter().all(JoinHandle::is_finished);
                while !all(self) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                bail!("{} ended: {status}; {}", self.name, self.last_words())
            }
        }
    }

    /// All of its output so far.
    pub fn output(&self) -> String {
        self.output.lock().clone()
    }

    /// Writes a line to its input.
    ///
    /// # Errors
    /// The process has ended.
    pub fn type_line(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        let sent = writeln!(input, "{line}").and_then(|()| input.flush());
        sent.with_context(|| format!("{} ended before {line:?}", self.name))
    }

    /// Clears the output so far.
    pub fn clear_output(&mut self) {
        self.output.lock().clear();
    }

    /// Waits until the output contains `words`, for at most `time`; returns the output.
    ///
    /// # Errors
    /// The process has ended, or the time is over.
    pub fn wait_for(&mut self, words: &str, time: Duration) -> Result<String> {
        let until = Instant::now() + time;
        loop {
            interrupt::check()?;
            self.check_alive()?;
            let text = self.output.lock();
            if text.contains(words) {
                return Ok(text.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(text);
                bail!("{}: no {words:?} within {time:?}; {}", self.name, self.last_words());
            }
            // Bounded, to notice an end of the process.
            let wait = left.min(Duration::from_millis(100));
            drop(self.output.grown.wait_timeout(text, wait));
        }
    }

    /// The end of its output, for errors.
    fn last_words(&self) -> String {
        let text = self.output.lock();
        let lines: Vec<&str> = text.lines().collect();
        format!("its last output:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::CONT);
        self.input = None;
        if let Some(signal) = self.end {
            let _ = kill_process(pid, signal);
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops processes, and waits until none of their threads runs.
///
/// # Errors
/// A process has ended, or does not stop.
pub fn pause(pids: &[u32]) -> Result<()> {
    for pid in pids {
        signal(*pid, Signal::STOP)?;
    }
    let until = Instant::now() + STOP_MAX;
    while !pids.iter().all(|pid| is_stopped(*pid)) {
        if Instant::now() > until {
            bail!("one of the processes {pids:?} did not stop within {STOP_MAX:?}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Resumes stopped processes; no effect on others.
///
/// # Errors
/// A process has ended.
pub fn resume(pids: &[u32]) -> Result<()> {
    pids.iter().try_for_each(|pid| signal(*pid, Signal::CONT))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(pid as i32).context("no process")?;
    kill_process(process, signal).with_context(|| format!("process {pid} has ended"))
}

/// Threads of a process, by id.
fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn is_stopped(pid: u32) -> bool {
    threads(pid).into_iter().all(|tid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
        state.is_none_or(|state| matches!(state, "T" | "t" | "Z" | "X"))
    })
}

/// Raises the priority of all threads of a process (nice -20); `false` without permission.
pub fn prefer(pid: u32) -> bool {
    // If the kernel groups processes by session, a nice value counts only within the session.
    let _ = fs::write(format!("/proc/{pid}/autogroup"), "-20");
    let tids = threads(pid).into_iter().filter_map(|tid| Pid::from_raw(tid as i32));
    tids.map(|tid| setpriority_process(Some(tid), -20).is_ok()).fold(true, |all, one| all & one)
}

/// CPU time and run-queue wait of a process's threads at one moment.
#[derive(Clone, Debug)]
pub struct CpuWait {
    at: Instant,
    /// Nanoseconds of both, by thread.
    threads: BTreeMap<u32, (u64, u64)>,
}

impl CpuWait {
    /// Reads `/proc/PID/task/*/schedstat`.
    pub fn read(pid: u32) -> CpuWait {
        let of = |tid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
            let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok());
            Some((*tid, (numbers.next()??, numbers.next()??)))
        };
        CpuWait { at: Instant::now(), threads: threads(pid).iter().filter_map(of).collect() }
    }

    /// CPU time of all threads.
    pub fn had(&self) -> Duration {
        Duration::from_nanos(self.threads.values().map(|(had, _)| had).sum())
    }

    /// Share of the time since `earlier` in which the busiest thread waited for a CPU used by other
    /// processes: CPU time of the process's own threads is not counted.
    pub fn share_since(&self, earlier: &CpuWait) -> f64 {
        let gains = self.threads.iter().filter_map(|(tid, now)| {
            let before = earlier.threads.get(tid)?;
            Some((now.0.saturating_sub(before.0), now.1.saturating_sub(before.1)))
        });
        let gains: Vec<(u64, u64)> = gains.collect();
        let (had, waited) = gains.iter().copied().max().unwrap_or_default();
        let others_had = gains.iter().map(|(had, _)| had).sum::<u64>() - had;
        let waited = waited.saturating_sub(others_had);
        waited as f64 / (self.at - earlier.at).as_nanos().max(1) as f64
    }
}

/// Real-time priority of this process and its children, until dropped: otherwise a query to a
/// switch that never sleeps would wait for a CPU for much of a slot.
#[derive(Debug)]
pub struct OwnPriority(());

impl OwnPriority {
    /// Raises the priority; `None` without permission.
    pub fn raise() -> Option<OwnPriority> {
        set_own_policy("--fifo", "1").then_some(OwnPriority(()))
    }
}

impl Drop for OwnPriority {
    fn drop(&mut self) {
        set_own_policy("--other", "0");
    }
}

fn set_own_policy(policy: &str, priority: &str) -> bool {
    let own = std::process::id().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--all-tasks", policy, "--pid", priority, &own]);
    let output = chrt.stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(args: &[&str], end: Option<Signal>) -> Peer {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        Peer::start(&args, Path::new("/"), &[], end).unwrap()
    }

    #[test]
    fn a_peer_is_heard_stopped_resumed_and_ended() {
        if !is_installed("setpriv") || !is_installed("stdbuf") {
            return;
        }
        let mut cat = peer(&["cat"], None);
        cat.type_line("one").unwrap();
        assert!(cat.wait_for("one", Duration::from_secs(5)).unwrap().contains("one\n"));
        cat.clear_output();
        pause(&[cat.pid()]).unwrap();
        cat.type_line("two").unwrap();
        assert!(cat.wait_for("two", Duration::from_millis(50)).is_err());
        resume(&[cat.pid()]).unwrap();
        cat.wait_for("two", Duration::from_secs(5)).unwrap();
        pause(&[cat.pid()]).unwrap();
        let begin = Instant::now();
        drop(cat);
        assert!(begin.elapsed() < PATIENCE, "a stopped peer ends in order");
    }

    #[test]
    fn the_end_of_a_peer_is_told_with_its_last_output() {
        if !is_installed("setpriv") || !is_installed("stdbuf") {
            return;
        }
        let mut shell = peer(&["sh", "-c", "echo what went wrong; exit 3"], None);
        let error = shell.wait_for("never", Duration::from_secs(5)).unwrap_err().to_string();
        assert!(error.contains("sh ended") && error.contains("what went wrong"), "{error}");
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("no-such-program") && !is_installed("/bin/no-such-program"));
    }

    #[test]
    fn threads_of_the_same_process_are_no_disturbance() {
        let at = Instant::now();
        let wait = |ms: u64, threads: [(u64, u64); 2]| CpuWait {
            at: at + Duration::from_millis(ms),
            threads: (1..)
                .zip(threads.map(|(had, waited)| (had * 1_000_000, waited * 1_000_000)))
                .collect(),
        };
        let now = wait(100, [(60, 35), (25, 60)]);
        assert_eq!(now.share_since(&wait(0, [(0, 0); 2])), 0.10);
        assert_eq!(wait(100, [(60, 20), (25, 60)]).share_since(&wait(0, [(0, 0); 2])), 0.0);
    }

    #[test]
    fn a_busy_thread_waits_for_no_more_than_the_time() {
        let before = CpuWait::read(std::process::id());
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {}
        let share = CpuWait::read(std::process::id()).share_since(&before);
        assert!((0.0..=1.5).contains(&share), "{share}");
    }
}

//! Daemon of a bench.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::stats::Stats;
use api::{Client, Method, Upgraded};
use host::{CpuTime, ProcessCpu};
use model::config::socket_path;
use model::state::Lanes;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, test_kill_process, waitpid};
use wire::Mac;

use super::interrupt::Registered;

/// One VF. `None` means the daemon's default.
#[derive(Clone, Debug, Default)]
pub struct VfPlan {
    /// MAC address, and further ones.
    pub macs: Vec<Mac>,
    /// Weight.
    pub weight: Option<u32>,
    /// Minimum Tx rate, Mbit/s.
    pub min_tx_mbps: Option<u32>,
    /// Maximum Tx rate, Mbit/s.
    pub max_tx_mbps: Option<u32>,
}

/// NIC of a bench.
#[derive(Clone, Debug, Default)]
pub struct NicPlan {
    /// Its lane.
    pub lanes: Lanes,
    /// `true` for a NIC with an uplink.
    pub uplink: bool,
    /// The VFs.
    pub vfs: Vec<VfPlan>,
}

/// The lane of a NIC that is measured under load: awake where it has a CPU of its own.
pub fn lane_under_load(cpu: Option<usize>) -> Lanes {
    Lanes { sleep: cpu.is_none(), cpus: cpu.into_iter().collect(), ..Lanes::default() }
}

impl NicPlan {
    fn toml(&self, run_dir: &Path) -> Result<String> {
        let mut lanes = toml::Table::try_from(&self.lanes)?;
        if self.lanes.cpus.is_empty() {
            lanes.remove("cpus"); // an empty list is refused
        }
        let run_dir = run_dir.display().to_string();
        let mut text = format!("run_dir = {run_dir:?}\n[lanes]\n{lanes}");
        text += "[[nic]]\nname = \"lab\"\nkind = \"soft\"\n";
        if self.uplink {
            text += "[nic.uplink]\nkind = \"vhost-user\"\nsocket = \"uplink.sock\"\n";
            text += "in_order = true\n";
        }
        for (i, vf) in self.vfs.iter().enumerate() {
            let macs: Vec<String> = vf.macs.iter().map(|mac| format!("\"{mac}\"")).collect();
            let (mac, more) = macs.split_first().expect("every VF has an address");
            text += &format!("[[nic.vf]]\nmac = {mac}\nmacs = [{}]\n", more.join(", "));
            text += &format!("attachment = {{ socket = \"vf{i}.sock\", in_order = true }}\n");
            for (field, value) in [
                ("tx_weight", vf.weight),
                ("min_tx_mbps", vf.min_tx_mbps),
                ("max_tx_mbps", vf.max_tx_mbps),
            ] {
                if let Some(value) = value {
                    text += &format!("{field} = {value}\n");
                }
            }
        }
        Ok(text)
    }
}

/// A running daemon and its directory, both removed on drop.
#[derive(Debug)]
pub struct Bench {
    daemon: Child,
    registered: Registered,
    /// Process that took over in a hot restart, if any.
    successor: Option<Pid>,
    dir: tempfile::TempDir,
    program: PathBuf,
    /// Last bytes of its standard error.
    last_words: Arc<Mutex<String>>,
}

/// Bytes kept of a daemon's standard error.
const LAST_WORDS: usize = 4096;

/// Longest time for the daemon to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest time for the daemon to be ready.
const READY: Duration = Duration::from_secs(20);

impl Bench {
    /// Starts a daemon with this NIC; `program` is the shunt binary.
    pub fn start(program: &Path, nic: &NicPlan) -> Result<Bench> {
        Bench::with_config(program, |run_dir| nic.toml(run_dir))
    }

    /// Starts a daemon with the configuration that `toml` returns for a run directory. VF sockets
    /// must be named `vf0.sock` and so on, the uplink's `uplink.sock`.
    pub fn with_config(
        program: &Path,
        toml: impl FnOnce(&Path) -> Result<String>,
    ) -> Result<Bench> {
        let dir = tempfile::Builder::new().prefix("shunt-lab-").tempdir();
        let dir = dir.context("cannot make a temporary directory; set TMPDIR to a writable one")?;
        let config = dir.path().join("shunt.toml");
        std::fs::write(&config, toml(dir.path())?).context("cannot write a configuration")?;
        let daemon = spawn(program, &config)?;
        let registered = Registered::new(&daemon);
        let (last_words, program) = (Arc::default(), program.to_path_buf());
        let mut bench = Bench { daemon, registered, successor: None, dir, program, last_words };
        bench.begin()?;
        Ok(bench)
    }

    /// Waits until the daemon is ready, and collects its standard error.
    fn begin(&mut self) -> Result<()> {
        let out = BufReader::new(self.daemon.stdout.take().expect("it was piped"));
        self.wait_ready(out)?;
        if let Some(error) = self.daemon.stderr.take() {
            let words = self.last_words.clone();
            std::thread::spawn(move || keep_last_words(error, &words));
        }
        Ok(())
    }

    /// Kills the daemon, and restarts it in the same run directory; returns the seconds until it
    /// was ready.
    ///
    /// # Errors
    /// It does not start.
    pub fn kill_and_restart(&mut self) -> Result<f64> {
        let begin = Instant::now();
        let pid = self.successor.unwrap_or_else(|| Pid::from_child(&self.daemon));
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            .context("the daemon cannot be killed")?;
        self.wait_for_end()?;
        self.daemon = spawn(&self.program, &self.dir.path().join("shunt.toml"))?;
        self.registered = Registered::new(&self.daemon);
        self.begin()?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Waits until the serving process has ended.
    fn wait_for_end(&mut self) -> Result<()> {
        match self.successor.take() {
            None => drop(self.daemon.wait()?),
            Some(pid) => wait(pid, PATIENCE)?,
        }
        Ok(())
    }

    /// Hot-restarts the daemon with a new process of the same program.
    ///
    /// # Errors
    /// The new process fails; the old one continues.
    pub fn upgrade(&mut self) -> Result<Upgraded> {
        // The new process is a grandchild: the lab becomes its parent when its own parent ends, and
        // can wait for it.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("cannot become the parent of orphaned processes")?;
        let client = Client::new(&socket_path(self.dir.path()));
        let reply = client.send(Method::POST, "/v1/upgrade", Some(&serde_json::json!({})), None)?;
        let done: Upgraded = serde_json::from_value(reply.body).context("unexpected answer")?;
        self.wait_for_end()?;
        self.successor = Pid::from_raw(done.pid as i32);
        Ok(done)
    }

    /// Mirrors the frames of the first `count` VFs to files in the run directory.
    ///
    /// # Errors
    /// The daemon rejects a mirror.
    pub fn mirror(&self, count: usize) -> Result<()> {
        let client = Client::new(&socket_path(self.dir.path()));
        for vf in 0..count {
            let file = self.dir.path().join(format!("vf{vf}.pcapng"));
            let patch = serde_json::json!({"mirror": {"direction": "both", "file": file}});
            let adapter = format!("/v1/adapters/lab-vf{vf}");
            client.send(Method::PATCH, &adapter, Some(&patch), None)?;
        }
        Ok(())
    }

    fn wait_ready(&mut self, mut out: impl BufRead + Send + 'static) -> Result<()> {
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = said.send(out.read_line(&mut line).is_ok_and(|n| n > 0));
        });
        if heard.recv_timeout(READY) == Ok(true) {
            return Ok(());
        }
        let _ = self.daemon.kill(); // ends its standard error
        let mut why = String::new();
        if let Some(mut error) = self.daemon.stderr.take() {
            let _ = error.read_to_string(&mut why);
        }
        bail!("the lab's daemon did not start: {}", why.trim());
    }

    /// The shunt binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Run directory of the daemon.
    pub fn run_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        let successor = self.successor.map(|pid| pid.as_raw_nonzero().get() as u32);
        successor.unwrap_or(self.daemon.id())
    }

    /// Socket of a VF.
    pub fn vf_socket(&self, vf: usize) -> PathBuf {
        self.dir.path().join(format!("vf{vf}.sock"))
    }

    /// Socket of the uplink.
    pub fn uplink_socket(&self) -> PathBuf {
        self.dir.path().join("uplink.sock")
    }

    /// Reads the daemon's counters.
    pub fn stats(&self) -> Result<Stats> {
        api::stats::read(self.dir.path())
    }

    /// CPU time used by the daemon.
    pub fn cpu(&self) -> Result<CpuTime> {
        Ok(ProcessCpu::read(self.pid())?.process)
    }

    /// Fails if the daemon has ended unexpectedly.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(pid) = self.successor {
            return match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(None) => Ok(()),
                // Not adopted yet while its parent lives.
                Err(Errno::CHILD) if test_kill_process(pid).is_ok() => Ok(()),
                Ok(Some(_)) | Err(Errno::CHILD) => {
                    bail!("the process that took over ended unexpectedly")
                }
                Err(error) => Err(error.into()),
            };
        }
        match self.daemon.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let words = self.last_words.lock().unwrap_or_else(|poison| poison.into_inner());
                bail!("the daemon ended unexpectedly: {status}; last output: {}", words.trim())
            }
        }
    }
}

/// Waits until an adopted process has ended.
fn wait(pid: Pid, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(Some(_)) => return Ok(()),
            // Its parent has waited for it.
            Err(Errno::CHILD) if test_kill_process(pid).is_err() => return Ok(()),
            // Not adopted yet while its parent lives.
            Ok(None) | Err(Errno::CHILD) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None) | Err(Errno::CHILD) => bail!("the replaced daemon does not end"),
            Err(error) => return Err(error.into()),
        }
    }
}

fn spawn(program: &Path, config: &Path) -> Result<Child> {
    Command::new(program)
        .arg("up")
        .arg("--with-parent")
        .arg("--config")
        .arg(config)
        .env("SHUNT_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

/// Reads the daemon's standard error: a full pipe would block it.
fn keep_last_words(mut error: ChildStderr, words: &Mutex<String>) {
    let mut bytes = [0; 1024];
    while let Ok(n @ 1..) = error.read(&mut bytes) {
        let mut words = words.lock().unwrap_or_else(|poison| poison.into_inner());
        words.push_str(&String::from_utf8_lossy(&bytes[..n]));
        if words.len() > 2 * LAST_WORDS {
            let cut = words.len() - LAST_WORDS;
            let cut = (cut..words.len()).find(|at| words.is_char_boundary(*at));
            words.drain(..cut.unwrap_or(0));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(pid) = self.successor.take() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            if wait(pid, PATIENCE).is_err() {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                let _ = wait(pid, PATIENCE);
            }
            return;
        }
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            if !matches!(self.daemon.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// MAC address of a lab VF: locally administered, numbered by VF and by address.
pub fn mac_text(vf: usize, number: usize) -> Mac {
    let ([a, b], [c, d]) = ((vf as u16).to_be_bytes(), (number as u16).to_be_bytes());
    Mac([0x02, 0x5b, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use model::config::Config;

    use super::*;

    #[test]
    fn a_plan_is_a_configuration_with_its_lanes() {
        for lanes in [Lanes::default(), lane_under_load(Some(1)), lane_under_load(None)] {
            let vfs = vec![VfPlan { macs: vec![mac_text(0, 0)], ..VfPlan::default() }];
            let nic = NicPlan { lanes: lanes.clone(), uplink: true, vfs };
            let text = nic.toml(Path::new("/run/shunt")).unwrap();
            assert_eq!(Config::parse("lab.toml", &text).unwrap().lanes, lanes);
        }
    }
}

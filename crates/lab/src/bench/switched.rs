//! Configuration of a daemon whose guests' adapters are on a switch.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use api::{Client, InForce, Method};
use model::config::socket_path;
use model::state::PathInForce;
use serde_json::{Value, json};
use wire::Mac;

use super::Bench;

/// Attachment of an adapter or uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BenchAttachment {
    /// A vhost-user socket, named after its adapter.
    #[default]
    Socket,
    /// A tap, which is `eth0` in the network namespace of a process.
    Tap {
        /// Process id.
        of: u32,
    },
}

impl BenchAttachment {
    /// Attachment as in the state; `socket` is the path of a socket.
    fn state(self, socket: &Path) -> Value {
        match self {
            BenchAttachment::Socket => {
                json!({ "kind": "vhost-user", "socket": socket.display().to_string() })
            }
            BenchAttachment::Tap { of } => {
                json!({ "kind": "tap", "interface": "eth0", "netns": format!("/proc/{of}/ns/net") })
            }
        }
    }
}

/// An adapter.
#[derive(Clone, Debug)]
pub struct AdapterPlan {
    /// Attachment.
    pub attached: BenchAttachment,
    /// MAC address.
    pub mac: Mac,
    /// Initial path.
    pub path: PathInForce,
}

impl AdapterPlan {
    /// Adapter with this number, as in the state.
    pub fn state(&self, number: usize, run_dir: &Path) -> Value {
        json!({
            "name": adapter_name(number),
            "switch": "sw",
            "attachment": self.attached.state(&adapter_socket(run_dir, number)),
            "mac": self.mac.to_string(),
            "iov_weight": 100,
            "path": self.path,
        })
    }
}

/// A NIC with a switch, and adapters on it.
#[derive(Clone, Debug, Default)]
pub struct SwitchedPlan {
    /// CPU of the lane, if pinned; the lane then never sleeps.
    pub cpu: Option<usize>,
    /// Attachment of the uplink, if there is one.
    pub uplink: Option<BenchAttachment>,
    /// Adapters; number i is named `gI`.
    pub adapters: Vec<AdapterPlan>,
}

/// Name of an adapter.
fn adapter_name(adapter: usize) -> String {
    format!("g{adapter}")
}

/// Socket of an adapter, below the run directory.
fn adapter_socket(run_dir: &Path, adapter: usize) -> PathBuf {
    run_dir.join(format!("g{adapter}.sock"))
}

impl SwitchedPlan {
    /// Desired state for a daemon with this run directory.
    fn state(&self, run_dir: &Path) -> Value {
        let n = self.adapters.len();
        let mut nic = json!({ "name": "lab", "total_vfs": n, "num_vfs": n, "vmq_queues": n });
        if let Some(uplink) = self.uplink {
            nic["uplink"] = uplink.state(&run_dir.join("uplink.sock"));
        }
        let switch = json!({ "name": "sw", "nic": "lab", "iov": true });
        let adapters = self.adapters.iter().enumerate();
        let adapters: Vec<Value> = adapters.map(|(i, plan)| plan.state(i, run_dir)).collect();
        json!({ "version": 1, "nic": [nic], "switch": [switch], "adapter": adapters })
    }

    /// Configuration file of such a daemon.
    fn toml(&self, run_dir: &Path) -> Result<String> {
        let mut all = self.state(run_dir);
        all["nic"][0]["kind"] = json!("soft");
        // A configuration file has no version, and enables all VFs of a NIC.
        if let Some(document) = all.as_object_mut() {
            document.remove("version");
        }
        if let Some(nic) = all["nic"][0].as_object_mut() {
            nic.remove("num_vfs");
        }
        all["run_dir"] = json!(run_dir.display().to_string());
        all["lanes"] = json!({ "sleep": self.cpu.is_none() });
        if let Some(cpu) = self.cpu {
            all["lanes"]["cpus"] = json!([cpu]);
        }
        Ok(toml::to_string(&all)?)
    }
}

/// A daemon whose guests' adapters are on a switch, and its API.
#[derive(Debug)]
pub struct SwitchedBench {
    /// The daemon.
    pub bench: Bench,
    client: Client,
}

impl SwitchedBench {
    /// Starts a daemon; `program` is the shunt binary.
    ///
    /// # Errors
    /// It does not start, or an adapter has another path than planned.
    pub fn start(program: &Path, plan: &SwitchedPlan) -> Result<SwitchedBench> {
        let paths: Vec<PathInForce> = plan.adapters.iter().map(|adapter| adapter.path).collect();
        SwitchedBench::with_config(program, &paths, |run_dir| plan.toml(run_dir))
    }

    /// Starts a daemon with a custom configuration, whose adapters are named `g0`, `g1` and so on.
    ///
    /// # Errors
    /// As those of [`start`](Self::start).
    pub fn with_config(
        program: &Path,
        paths: &[PathInForce],
        config: impl FnOnce(&Path) -> Result<String>,
    ) -> Result<SwitchedBench> {
        let bench = Bench::with_config(program, config)?;
        let client = Client::new(&socket_path(bench.run_dir()));
        let switched = SwitchedBench { bench, client };
        switched.check_paths(paths)?;
        Ok(switched)
    }

    /// Socket of an adapter.
    pub fn socket(&self, adapter: usize) -> PathBuf {
        adapter_socket(self.bench.run_dir(), adapter)
    }

    /// Sets the path of an adapter.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects the change.
    pub fn set_path(&self, adapter: usize, path: PathInForce) -> Result<()> {
        let done = self.set(adapter, &json!({ "path": path }));
        done.with_context(|| format!("adapter {adapter} cannot change to path {path}"))
    }

    /// Changes settings of an adapter, as a merge patch.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects the change.
    pub fn set(&self, adapter: usize, patch: &Value) -> Result<()> {
        let resource = format!("/v1/adapters/{}", adapter_name(adapter));
        self.send(Method::PATCH, &resource, Some(patch))
    }

    /// Sends a change to the daemon.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects it.
    pub fn send(&self, method: Method, resource: &str, body: Option<&Value>) -> Result<()> {
        self.client.send(method, resource, body, None)?;
        Ok(())
    }

    /// Adds an adapter to the switch.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects the adapter.
    pub fn add(&self, number: usize, adapter: &AdapterPlan) -> Result<()> {
        let state = adapter.state(number, self.bench.run_dir());
        let resource = format!("/v1/adapters/{}", adapter_name(number));
        self.send(Method::PUT, &resource, Some(&state))
    }

    /// Removes an adapter.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects the removal.
    pub fn remove(&self, adapter: usize) -> Result<()> {
        self.send(Method::DELETE, &format!("/v1/adapters/{}", adapter_name(adapter)), None)
    }

    /// Checks that each adapter has this path.
    ///
    /// # Errors
    /// One has another, or the daemon does not answer.
    pub fn check_paths(&self, wanted: &[PathInForce]) -> Result<()> {
        let reply = self.client.send(Method::GET, "/v1/actual", None, None)?;
        let in_force: InForce =
            serde_json::from_value(reply.body).context("not a state in force")?;
        let adapters = &in_force.actual.adapters;
        ensure!(adapters.len() == wanted.len(), "the daemon has {} adapters", adapters.len());
        for (i, path) in wanted.iter().enumerate() {
            let name = adapter_name(i);
            match adapters.iter().find(|adapter| adapter.name == name) {
                Some(adapter) if adapter.path == *path => {}
                Some(adapter) => bail!(
                    "adapter {name} is on path {} and not {path}: {}",
                    adapter.path,
                    adapter.reason.text()
                ),
                None => bail!("the daemon has no adapter {name}"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use super::*;

    fn plan() -> SwitchedPlan {
        let adapter = |i, path| AdapterPlan {
            attached: BenchAttachment::Socket,
            mac: Mac([2, 0, 0, 0, 0, i]),
            path,
        };
        SwitchedPlan {
            cpu: Some(3),
            uplink: Some(BenchAttachment::Socket),
            adapters: vec![adapter(0, PathInForce::Vf), adapter(1, PathInForce::Synthetic)],
        }
    }

    #[test]
    fn the_state_is_one_that_a_daemon_takes() {
        let state = State::parse(&plan().state(Path::new("/run/lab"))).unwrap();
        assert_eq!(state.adapters.len(), 2);
        let bare = SwitchedPlan { uplink: None, ..plan() };
        let state = State::parse(&bare.state(Path::new("/run/lab"))).unwrap();
        assert!(state.switches[0].ports.is_empty() && state.nics[0].uplink.is_none());
    }

    #[test]
    fn a_tap_is_in_the_namespace_of_its_process() {
        let mut taps = plan();
        taps.uplink = Some(BenchAttachment::Tap { of: 7 });
        taps.adapters[0].attached = BenchAttachment::Tap { of: 8 };
        let state = State::parse(&taps.state(Path::new("/run/lab"))).unwrap();
        let uplink = state.nics[0].uplink.as_ref().unwrap().interface();
        assert_eq!(uplink, Some(("eth0", Some("/proc/7/ns/net".into()))));
        let text = taps.toml(Path::new("/run/lab")).unwrap();
        assert!(text.contains("/proc/8/ns/net"), "{text}");
    }

    #[test]
    fn the_configuration_says_where_the_lane_runs() {
        let text = plan().toml(Path::new("/run/lab")).unwrap();
        assert!(text.contains("cpus = [3]") && text.contains("sleep = false"), "{text}");
        assert_eq!(text.matches("[[adapter]]").count(), 2, "{text}");
        let text = SwitchedPlan { cpu: None, ..plan() }.toml(Path::new("/run/lab")).unwrap();
        assert!(!text.contains("cpus") && text.contains("sleep = true"), "{text}");
    }
}

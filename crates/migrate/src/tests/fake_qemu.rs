//! Two fake QEMUs: enough QMP to migrate an imaginary guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fake_pair::FakePair;

/// The fault to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The guest has a VF enabled.
    VfsEnabled,
    Paused,
    OtherName,
    /// A device of the guest cannot be migrated.
    Blocked,
    /// The target's QEMU is not there.
    NoTarget,
    /// The target's QEMU was not started with `-incoming`.
    NoIncoming,
    /// The source's QEMU rejects `migrate`.
    Refuses,
    /// The migration fails during the memory copy.
    FailsEarly,
    /// The memory copy never ends.
    NeverEnds,
    /// The migration fails after `migrate-continue`.
    FailsLate,
    /// The guest's rings do not run at the target.
    Silent,
    /// As [`Fault::Silent`], and the target's QEMU does not answer.
    SilentAndMute,
    /// The connection breaks once at `migrate-continue`, which is not executed.
    CutAtSwitch,
    /// After `migrate-continue` the guest's location stays unknown.
    Stuck,
    /// After `migrate-continue` the source's QEMU does not answer.
    SourceMute,
    /// Once the guest runs there, the target's QEMU does not answer.
    TargetMute,
    /// The guest does not release its primary.
    KeepsPrimary,
    /// QEMU rejects a primary.
    RejectsPrimary,
    /// The memory copy never ends, with a stream of unrelated events.
    Chatty,
}

/// A request to a guest agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentRequest {
    /// Disable VFs.
    Disable,
    /// Re-enable VFs.
    Restore,
}

type Hook = Box<dyn FnOnce() -> String + Send>;
/// Result of a hook, once it has run.
type Seen = Arc<Mutex<Option<String>>>;
/// Called with the state of the guest's rings at the source and at the target.
type Moved = Box<dyn Fn(bool, bool) + Send>;

struct FakeState {
    fault: Option<Fault>,
    moved: Moved,
    /// Run state of the guest at the source and at the target.
    status: [String; 2],
    migration: String,
    told: [Vec<(String, Value)>; 2],
    hook: Option<(&'static str, Hook, Seen)>,
    /// The guest has VFs enabled.
    vfs: bool,
    /// Pairs of the guest at the source and at the target.
    pairs: Option<[FakePair; 2]>,
    /// Data of an event to send.
    deleted: Option<Value>,
}

/// One fake QEMU.
pub(super) struct FakeQemu {
    pub(super) path: PathBuf,
    at: usize,
    world: Arc<Mutex<FakeState>>,
    _dir: tempfile::TempDir,
}

impl FakeQemu {
    /// Returns `true` if the command was received.
    pub(super) fn was_told(&self, command: &str) -> bool {
        self.world.lock().unwrap().told[self.at].iter().any(|(name, _)| name == command)
    }

    /// Arguments of the first command of that name.
    pub(super) fn arguments(&self, command: &str) -> Value {
        let world = self.world.lock().unwrap();
        let told = world.told[self.at].iter().find(|(name, _)| name == command);
        told.unwrap_or_else(|| panic!("{command} was not told")).1.clone()
    }

    /// Arguments of the last command of that name.
    pub(super) fn last_arguments(&self, command: &str) -> Value {
        let world = self.world.lock().unwrap();
        let told = world.told[self.at].iter().rfind(|(name, _)| name == command);
        told.unwrap_or_else(|| panic!("{command} was not told")).1.clone()
    }

    /// Returns `true` if only queries were received.
    pub(super) fn only_queries(&self) -> bool {
        let world = self.world.lock().unwrap();
        let others = ["qmp_capabilities", "qom-list", "qom-get"];
        let is_query = |name: &str| name.starts_with("query-") || others.contains(&name);
        world.told[self.at].iter().all(|(name, _)| is_query(name))
    }

    pub(super) fn status(&self) -> String {
        self.world.lock().unwrap().status[self.at].clone()
    }

    /// Gives the guest a pair; at the source with this primary.
    pub(super) fn set_pair(&self, mac: &'static str, primary: Option<&str>) {
        let mut pairs = [FakePair::new(mac), FakePair::new(mac)];
        pairs[0].primary = primary.map(|id| (id.to_owned(), true));
        self.world.lock().unwrap().pairs = Some(pairs);
    }

    /// Primary, and the devices that were plugged.
    pub(super) fn pair(&self) -> (Option<String>, Vec<Value>) {
        let world = self.world.lock().unwrap();
        let pair = &world.pairs.as_ref().unwrap()[self.at];
        (pair.primary.as_ref().map(|(id, _)| id.clone()), pair.added.clone())
    }

    /// Starts a guest agent; returns its socket and its log of requests. Disabling VFs exits with
    /// `status`.
    pub(super) fn agent(&self, status: i64) -> (PathBuf, Arc<Mutex<Vec<AgentRequest>>>) {
        let path = self.path.with_file_name("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = Arc::<Mutex<Vec<AgentRequest>>>::default();
        let (world, heard) = (self.world.clone(), asked.clone());
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve_agent(stream, status, &world, &heard);
            }
        });
        (path, asked)
    }

    /// Runs `look` when a command arrives; returns its result once it has run.
    pub(super) fn watch(
        &self,
        command: &'static str,
        look: impl FnOnce() -> String + Send + 'static,
    ) -> Arc<Mutex<Option<String>>> {
        let seen = Arc::new(Mutex::new(None));
        self.world.lock().unwrap().hook = Some((command, Box::new(look), seen.clone()));
        seen
    }
}

/// The source's and the target's QEMU.
pub(super) fn pair(
    fault: Option<Fault>,
    moved: impl Fn(bool, bool) + Send + 'static,
) -> (FakeQemu, FakeQemu) {
    let paused = fault == Some(Fault::Paused);
    let world = FakeState {
        fault,
        moved: Box::new(moved),
        status: [if paused { "paused" } else { "running" }.into(), "inmigrate".into()],
        migration: "none".into(),
        told: Default::default(),
        hook: None,
        vfs: fault == Some(Fault::VfsEnabled),
        pairs: None,
        deleted: None,
    };
    let world = Arc::new(Mutex::new(world));
    let fake = |at: usize| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp.sock");
        if at == 0 || fault != Some(Fault::NoTarget) {
            let listener = UnixListener::bind(&path).unwrap();
            let world = world.clone();
            // The thread ends with the process, as its clients do.
            std::thread::spawn(move || {
                // A second client waits until the first one has gone, as with QEMU.
                for stream in listener.incoming().map_while(Result::ok) {
                    if !serve(stream, at, &world) {
                        break;
                    }
                }
            });
        }
        FakeQemu { path, at, world: world.clone(), _dir: dir }
    };
    (fake(0), fake(1))
}

/// QEMU capabilities that a migration changes.
pub(super) fn capabilities(states: [bool; 3]) -> Value {
    let names = ["events", "pause-before-switchover", "return-path"];
    let all = names.iter().zip(states);
    all.map(|(name, state)| json!({"capability": name, "state": state})).collect()
}

/// Serves one client until it leaves or QEMU quits; returns `false` after a quit.
fn serve(stream: UnixStream, at: usize, world: &Mutex<FakeState>) -> bool {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let to = Arc::new(Mutex::new(stream));
    let mut ended = false;
    say(&to, &json!({"QMP": {"version": {"qemu": {"major": 11}}, "capabilities": []}}));
    for line in lines.map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let name = asked["execute"].as_str().unwrap().to_owned();
        let hook = {
            let mut world = world.lock().unwrap();
            world.told[at].push((name.clone(), asked["arguments"].clone()));
            let is_it = world.hook.as_ref().is_some_and(|(command, ..)| *command == name);
            if is_it { world.hook.take() } else { None }
        };
        if let Some((_, look, seen)) = hook {
            *seen.lock().unwrap() = Some(look());
        }
        let mut world = world.lock().unwrap();
        if name == "migrate-continue" && world.fault == Some(Fault::CutAtSwitch) {
            world.fault = None;
            break;
        }
        let before = world.migration.clone();
        let answer = match world.answer(at, &name, &asked["arguments"]) {
            Ok(value) => json!({"return": value, "id": asked["id"]}),
            Err(why) => {
                json!({"error": {"class": "GenericError", "desc": why}, "id": asked["id"]})
            }
        };
        let (now, gone, mute) = (world.migration.clone(), name == "quit", world.is_mute(at));
        let deleted = world.deleted.take();
        let chats = at == 0 && name == "migrate" && world.fault == Some(Fault::Chatty);
        drop(world);
        if mute {
            continue;
        }
        say(&to, &answer);
        if let Some(data) = deleted {
            say(&to, &json!({"event": "DEVICE_DELETED", "data": data}));
        }
        if at == 0 && now != before {
            say(&to, &json!({"event": "MIGRATION", "data": {"status": now}}));
        }
        if chats {
            let to = to.clone();
            // Runs until the client disconnects.
            std::thread::spawn(move || {
                while say(&to, &json!({"event": "RTC_CHANGE", "data": {"offset": 1}})) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
        }
        if gone {
            ended = true;
            break;
        }
    }
    let _ = to.lock().unwrap().shutdown(std::net::Shutdown::Both); // the client may have left
    !ended
}

/// Serves one client of a guest agent.
fn serve_agent(
    stream: UnixStream,
    status: i64,
    world: &Mutex<FakeState>,
    heard: &Mutex<Vec<AgentRequest>>,
) {
    let lines = BufReader::new(stream.try_clone().unwrap()).split(b'\n').map_while(Result::ok);
    let (to, mut exit) = (Mutex::new(stream), 0);
    for line in lines {
        let asked: Value =
            serde_json::from_slice(line.strip_prefix(&[0xff]).unwrap_or(&line)).unwrap();
        let value = match asked["execute"].as_str().unwrap() {
            "guest-sync" => asked["arguments"]["id"].clone(),
            "guest-exec" => {
                let script = asked["arguments"]["arg"][1].as_str().unwrap();
                let takes = script.contains("echo 0 >");
                heard.lock().unwrap().push(if takes {
                    AgentRequest::Disable
                } else {
                    AgentRequest::Restore
                });
                exit = if takes { status } else { 0 };
                if exit == 0 {
                    world.lock().unwrap().vfs = !takes;
                }
                json!({"pid": 7})
            }
            _ => json!({"exited": true, "exitcode": exit}),
        };
        say(&to, &json!({"return": value, "id": asked["id"]}));
    }
}

/// Sends a message; returns `false` if the client has left.
fn say(to: &Mutex<UnixStream>, value: &Value) -> bool {
    to.lock().unwrap().write_all(format!("{value}\n").as_bytes()).is_ok()
}

impl FakeState {
    fn answer(&mut self, at: usize, command: &str, arguments: &Value) -> Result<Value, String> {
        use Fault as Is;
        if let Some(pairs) = &mut self.pairs {
            let pair = &mut pairs[at];
            match command {
                "device_del" if self.fault == Some(Is::KeepsPrimary) => {}
                "device_del" => {
                    pair.primary = None;
                    self.deleted = Some(json!({"device": arguments["id"]}));
                }
                "device_add" if self.fault == Some(Is::RejectsPrimary) => {
                    return Err("netdev n1 is not there".into());
                }
                _ => {}
            }
            if let Some(answer) = pair.answer(command, arguments) {
                return answer;
            }
        }
        let is = |fault: Fault| self.fault == Some(fault);
        Ok(match command {
            "query-version" => json!({"qemu": {"major": 11, "minor": 1, "micro": 3}}),
            "query-name" => json!({"name": if is(Is::OtherName) { "other" } else { "web-vm" }}),
            "query-status" => json!({"status": self.status[at]}),
            "query-chardev" => {
                json!([{"label": "c0", "filename": "unix:/run/shunt/web.sock"}, {"label": "s", "filename": "stdio"}])
            }
            "query-pci" => {
                let address = if self.vfs { 4096 } else { -1 };
                json!([{"devices": [{
                    "bus": 1, "slot": 0, "function": 1, "id": {"vendor": 65535, "device": 65535},
                    "regions": [{"bar": 0, "address": address}],
                }]}])
            }
            "query-block" => json!([]),
            // A guest reports any MAC address: this is another guest's.
            "query-rx-filter" => json!([{"main-mac": "02:00:00:00:01:02"}]),
            "query-migrate" if is(Is::Blocked) => {
                json!({"blocked-reasons": ["no log of what was written"]})
            }
            "query-migrate" => json!({
                "status": self.migration, "downtime": 12, "total-time": 345, "ram": {"transferred": 6789},
                "error-desc": if self.migration == "failed" { "the other end is gone" } else { "" },
            }),
            "migrate-incoming" if is(Is::NoIncoming) => return Err("not started to".into()),
            "migrate" if is(Is::Refuses) => return Err("there is a device".into()),
            "migrate" => {
                match self.fault {
                    Some(Is::FailsEarly) => self.migration = "failed".into(),
                    Some(Is::NeverEnds | Is::Chatty) => self.migration = "active".into(),
                    _ => {
                        self.migration = "pre-switchover".into();
                        self.status[0] = "finish-migrate".into();
                        (self.moved)(false, false);
                    }
                }
                json!({})
            }
            "migrate-continue" if is(Is::FailsLate) => {
                self.migration = "failed".into();
                self.run_at(0)
            }
            "migrate-continue" if is(Is::Stuck) => {
                self.migration = "device".into();
                json!({})
            }
            "migrate-continue" => {
                self.migration = "completed".into();
                self.status[0] = "postmigrate".into();
                self.run_at(1)
            }
            "query-migrate-capabilities" => capabilities([true, false, false]),
            "query-migrate-parameters" => {
                json!({"max-bandwidth": 134_217_728, "downtime-limit": 300, "multifd-channels": 2})
            }
            "migrate_cancel" if self.migration == "completed" => json!({}),
            "migrate_cancel" => {
                if self.migration != "failed" {
                    self.migration = "cancelled".into();
                }
                self.run_at(0)
            }
            "cont" => self.run_at(at),
            _ => json!({}),
        })
    }

    fn run_at(&mut self, at: usize) -> Value {
        self.status[at] = "running".into();
        let silent = matches!(self.fault, Some(Fault::Silent | Fault::SilentAndMute));
        (self.moved)(at == 0, at == 1 && !silent);
        json!({})
    }

    /// Returns `true` if this QEMU no longer answers.
    fn is_mute(&self, at: usize) -> bool {
        let at_target = matches!(self.fault, Some(Fault::TargetMute | Fault::SilentAndMute));
        let mute = if at == 0 { self.fault == Some(Fault::SourceMute) } else { at_target };
        mute && self.migration == "completed"
    }
}

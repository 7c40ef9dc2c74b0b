//! The soft NIC as a subject: a daemon of its own, asked over its API, with guests over vhost-user.

mod daemon;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::stats::PortStats;
use api::{Client, ClientError, InForce, Method};
use model::config::socket_path;
use model::state::FunctionName;
use serde_json::{Value, json};
use vhost_user::Listener;

use super::guest::Guest;
use super::subject::{
    Capability, Change, End, GuestView, Home, Leave, Refusal, Setup, Subject, WIRE,
};
use daemon::Daemon;

/// What the NIC and the switch on it are called.
const NIC: &str = "nic0";
const SWITCH: &str = "sw0";
/// How long frames may take on their way.
const SETTLE: Duration = Duration::from_secs(10);

/// A guest, or the wire, and where it attaches.
#[derive(Debug)]
struct Station {
    guest: Guest,
    socket: PathBuf,
    /// It listens, and the daemon connects.
    listener: Option<Listener>,
}

/// The soft NIC.
#[derive(Debug)]
pub struct SoftNic {
    program: PathBuf,
    daemon: Option<Daemon>,
    stations: BTreeMap<String, Station>,
}

impl SoftNic {
    /// The soft NIC of that program, which is shunt itself.
    pub fn new(program: &Path) -> SoftNic {
        SoftNic { program: program.to_owned(), daemon: None, stations: BTreeMap::new() }
    }

    fn daemon(&mut self) -> Result<&mut Daemon> {
        self.daemon.as_mut().context("no test has begun")
    }

    fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Asked> {
        let client = Client::new(&socket_path(&self.daemon()?.run_dir()));
        match client.send(method, path, body, None) {
            Ok(reply) => Ok(Ok(reply.body)),
            Err(ClientError::Refused(refusal)) if (400..500).contains(&refusal.status) => {
                let trouble = refusal.trouble;
                let more = trouble.more.into_iter().map(|line| format!("; {line}"));
                Ok(Err(Refusal {
                    field: trouble.field,
                    value: trouble.value,
                    error: trouble.error,
                    allowed: trouble.allowed + &more.collect::<String>(),
                }))
            }
            Err(other) => Err(other).with_context(|| format!("asked for {path}")),
        }
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        match self.ask(Method::GET, path, None)? {
            Ok(body) => Ok(body),
            Err(refusal) => bail!("{path} was refused: {}", refusal.text()),
        }
    }

    /// Adds a guest, which is not yet attached.
    fn add_station(&mut self, name: &str, listens: bool) -> Result<Value> {
        let dir = self.daemon()?.path().to_owned();
        let socket = dir.join(format!("{name}.sock"));
        // A guest that is there already is another virtual machine with the same name.
        self.stations.remove(name);
        let listener = listens.then(|| Listener::bind(&socket)).transpose()?;
        let mode = if listens { "client" } else { "server" };
        let attachment = json!({"socket": socket.display().to_string(), "mode": mode});
        self.stations.insert(name.to_owned(), Station { guest: Guest::new()?, socket, listener });
        Ok(attachment)
    }

    fn add(&mut self, name: &str, home: Home, settings: &Value, listens: bool) -> Result<Asked> {
        let attachment = self.add_station(name, listens)?;
        let mut adapter = match home {
            Home::Vf(index) => json!({"nic": NIC, "vf": index, "iov_weight": 100}),
            Home::Pool => json!({"nic": NIC, "iov_weight": 50}),
            Home::Switch => json!({"switch": SWITCH}),
        };
        adapter["attachment"] = attachment;
        for (field, value) in settings.as_object().context("settings are an object")? {
            adapter[field] = value.clone();
        }
        let said = self.ask(Method::PUT, &format!("/v1/adapters/{name}"), Some(&adapter))?;
        if said.is_err() {
            self.stations.remove(name);
        }
        Ok(said)
    }

    /// Changes the mode; in switchdev mode every VF that it could have has a station for its
    /// representor.
    fn switchdev(&mut self, on: bool) -> Result<Asked> {
        let path = format!("/v1/nics/{NIC}");
        let nic = self.get(&path)?;
        let vfs = (0..nic["total_vfs"].as_u64().unwrap_or(0) as u16).map(FunctionName::Vf);
        let uplink = nic["uplink"].is_object().then_some(FunctionName::Uplink);
        let mut representors = Vec::new();
        for of in uplink.into_iter().chain(vfs) {
            let name = of.port_name();
            match on {
                true => representors
                    .push(json!({"of": of, "attachment": self.add_station(&name, false)?})),
                false => drop(self.stations.remove(&name)),
            }
        }
        let mode = if on { "switchdev" } else { "legacy" };
        self.ask(Method::PATCH, &path, Some(&json!({"mode": mode, "representor": representors})))
    }

    fn station(&mut self, name: &str) -> Result<&mut Station> {
        self.stations.get_mut(name).with_context(|| format!("there is no station {name}"))
    }
}

/// What the manager answered.
type Asked = std::result::Result<Value, Refusal>;

fn released(path: String, owner: Option<u64>) -> String {
    owner.map_or(path.clone(), |token| format!("{path}?owner={token}"))
}

impl Subject for SoftNic {
    fn name(&self) -> String {
        "soft NIC".to_owned()
    }

    fn lacks(&self, what: Capability) -> Option<String> {
        let why = match what {
            Capability::UplinkLink => "its uplink is a socket, and counts as up",
            Capability::FollowTraffic => {
                "bounded are the changes of an hour, which is longer than the suite takes"
            }
            Capability::IommuGroups => "its VFs are no PCI functions, so they are in no group",
            Capability::Migration => {
                "it needs two daemons and a VMM; the end-to-end suites show it"
            }
            _ => return None,
        };
        Some(why.to_owned())
    }

    fn begin(&mut self, setup: &Setup) -> Result<()> {
        self.stations.clear();
        self.daemon = None; // ended before the next one starts
        self.daemon = Some(Daemon::start(&self.program)?);
        let mut nic = json!({
            "name": NIC,
            "profile": setup.profile,
            "total_vfs": setup.total_vfs,
            "num_vfs": setup.num_vfs,
            "vmq_queues": setup.queues,
        });
        if setup.uplink {
            nic["uplink"] = self.add_station(WIRE, false)?;
        }
        let switches = setup.switch.map(|iov| json!({"name": SWITCH, "nic": NIC, "iov": iov}));
        let state = json!({"version": 1, "nic": [nic], "switch": Vec::from_iter(switches)});
        if let Err(refusal) = self.ask(Method::PUT, "/v1/state", Some(&state))? {
            bail!("the NIC was refused: {}", refusal.text());
        }
        if setup.uplink { self.attach(WIRE) } else { Ok(()) }
    }

    fn change(&mut self, change: &Change) -> Result<std::result::Result<(), Refusal>> {
        let nic = format!("/v1/nics/{NIC}");
        let said = match change {
            Change::NumVfs(count) => {
                self.ask(Method::PATCH, &nic, Some(&json!({"num_vfs": count})))?
            }
            Change::Vf { index, settings } => {
                self.ask(Method::PATCH, &format!("{nic}/vfs/{index}"), Some(settings))?
            }
            Change::ReleaseVf { index, owner } => {
                let path = released(format!("{nic}/vfs/{index}"), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            Change::Add { name, home, settings, guest_first } => {
                self.add(name, *home, settings, *guest_first)?
            }
            Change::Adapter { name, settings } => {
                self.ask(Method::PATCH, &format!("/v1/adapters/{name}"), Some(settings))?
            }
            Change::Remove { name, owner } => {
                let path = released(format!("/v1/adapters/{name}"), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            Change::Switchdev(on) => self.switchdev(*on)?,
            Change::Again => {
                let state = self.document()?;
                self.ask(Method::PUT, "/v1/state", Some(&state))?
            }
        };
        Ok(said.map(drop))
    }

    fn document(&mut self) -> Result<Value> {
        self.get("/v1/state")
    }

    fn in_force(&mut self) -> Result<InForce> {
        serde_json::from_value(self.get("/v1/actual")?).context("an answer of another form")
    }

    fn nic(&self) -> String {
        NIC.to_owned()
    }

    fn counters(&mut self) -> Result<Vec<(String, PortStats)>> {
        let stats = api::stats::read(&self.daemon()?.run_dir())?;
        let of_nic = |port: PortStats| {
            let name = port.name.split_once('/').map_or(&*port.name, |(_, name)| name).to_owned();
            (name, port)
        };
        Ok(stats.ports.into_iter().map(of_nic).collect())
    }

    fn end_manager(&mut self, how: End) -> Result<()> {
        self.daemon()?.end(how)
    }

    fn start_manager(&mut self) -> Result<()> {
        self.daemon()?.resume()
    }

    fn attach(&mut self, station: &str) -> Result<()> {
        let Station { guest, socket, listener } = self.station(station)?;
        match listener {
            Some(listener) => guest.accept(listener),
            None => guest.connect(socket),
        }
    }

    fn leave(&mut self, station: &str, how: Leave) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        match how {
            Leave::Orderly => guest.leave(),
            Leave::Killed => guest.die(),
        }
        Ok(())
    }

    fn is_attached(&mut self, station: &str) -> bool {
        self.stations.get(station).is_some_and(|station| station.guest.is_attached())
    }

    fn view(&mut self, station: &str) -> Result<GuestView> {
        self.station(station)?.guest.view()
    }

    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        frames.iter().try_for_each(|frame| guest.send(frame))
    }

    fn settle(&mut self) -> Result<()> {
        let patience = Instant::now() + SETTLE;
        for (name, station) in &mut self.stations {
            // A guest that is not attached has posted for later.
            while station.guest.is_attached() && station.guest.under_way() > 0 {
                if Instant::now() > patience {
                    bail!("frames that {name} sent are still under way after 10 s");
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>> {
        let taken = self.stations.iter_mut().map(|(name, station)| {
            let frames = station.guest.take().with_context(|| format!("at {name}"))?;
            Ok((name.clone(), frames))
        });
        taken.collect()
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        let pid = self.daemon()?.pid().context("the daemon does not run")?;
        let mut devices = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            // One that is closed meanwhile is no device.
            let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
            let path = target.display().to_string();
            if path.starts_with("/dev/") && path != "/dev/null" && !path.starts_with("/dev/shm/") {
                devices.push(path);
            }
        }
        Ok(devices)
    }
}

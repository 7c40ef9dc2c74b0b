//! The soft NIC as a subject: a private daemon, managed over its API, with vhost-user guests.

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

use super::guest::TestGuest;
use super::subject::{
    AdapterLocation, Capability, GuestConfig, GuestStop, ManagerRequest, ManagerStop, NicSetup,
    Rejection, Subject, WIRE,
};
use daemon::SoftDaemon;

/// Name of the NIC and of the switch on it.
const NIC: &str = "nic0";
const SWITCH: &str = "sw0";
/// Time limit for frames in flight.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A guest or the wire, with its socket.
#[derive(Debug)]
struct SoftStation {
    guest: TestGuest,
    socket: PathBuf,
    /// Set if the guest listens and the daemon connects.
    listener: Option<Listener>,
}

/// The soft NIC.
#[derive(Debug)]
pub struct SoftNic {
    program: PathBuf,
    daemon: Option<SoftDaemon>,
    stations: BTreeMap<String, SoftStation>,
}

impl SoftNic {
    /// The soft NIC of `program`, the shunt binary.
    pub fn new(program: &Path) -> SoftNic {
        SoftNic { program: program.to_owned(), daemon: None, stations: BTreeMap::new() }
    }

    fn daemon(&mut self) -> Result<&mut SoftDaemon> {
        self.daemon.as_mut().context("no test has begun")
    }

    fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<ManagerReply> {
        let client = Client::new(&socket_path(&self.daemon()?.run_dir()));
        match client.send(method, path, body, None) {
            Ok(reply) => Ok(Ok(reply.body)),
            Err(ClientError::Refused(rejection)) if (400..500).contains(&rejection.status) => {
                let first = rejection.first();
                let others = rejection.body.problems.iter().skip(1);
                let more = others.map(|problem| format!("; {problem}"));
                Ok(Err(Rejection {
                    object: first.object,
                    field: first.field,
                    value: first.value,
                    error: first.message,
                    allowed: first.remedy + &more.collect::<String>(),
                }))
            }
            Err(other) => Err(other).with_context(|| format!("asked for {path}")),
        }
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        match self.ask(Method::GET, path, None)? {
            Ok(body) => Ok(body),
            Err(rejection) => bail!("{path} was refused: {}", rejection.text()),
        }
    }

    /// Adds a guest, not yet attached.
    fn add_station(&mut self, name: &str, listens: bool) -> Result<Value> {
        let dir = self.daemon()?.path().to_owned();
        let socket = dir.join(format!("{name}.sock"));
        // An existing guest is another virtual machine with the same name.
        self.stations.remove(name);
        let listener = listens.then(|| Listener::bind(&socket)).transpose()?;
        let mode = if listens { "client" } else { "server" };
        let attachment = json!({"socket": socket.display().to_string(), "mode": mode});
        self.stations
            .insert(name.to_owned(), SoftStation { guest: TestGuest::new()?, socket, listener });
        Ok(attachment)
    }

    fn add(
        &mut self,
        name: &str,
        location: AdapterLocation,
        settings: &Value,
        listens: bool,
    ) -> Result<ManagerReply> {
        let attachment = self.add_station(name, listens)?;
        let mut adapter = match location {
            AdapterLocation::Vf(index) => json!({"nic": NIC, "vf": index, "iov_weight": 100}),
            AdapterLocation::Pool => json!({"nic": NIC, "iov_weight": 50}),
            AdapterLocation::Switch => json!({"switch": SWITCH}),
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

    /// Changes the mode; in switchdev mode every possible VF has a station for its representor.
    fn switchdev(&mut self, on: bool) -> Result<ManagerReply> {
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

    fn station(&mut self, name: &str) -> Result<&mut SoftStation> {
        self.stations.get_mut(name).with_context(|| format!("there is no station {name}"))
    }
}

/// Answer of the manager.
type ManagerReply = std::result::Result<Value, Rejection>;

fn released(path: String, owner: Option<u64>) -> String {
    owner.map_or(path.clone(), |token| format!("{path}?owner={token}"))
}

impl Subject for SoftNic {
    fn name(&self) -> String {
        "soft NIC".to_owned()
    }

    fn lacks(&self, what: Capability) -> Option<String> {
        let why = match what {
            Capability::UplinkLink => "its uplink is a socket, which is always up",
            Capability::FollowTraffic => "the limit applies to an hour, longer than the suite runs",
            Capability::IommuGroups => "its VFs are not PCI functions and have no IOMMU group",
            Capability::Migration => {
                "it needs two daemons and a VMM; the end-to-end tests cover it"
            }
            _ => return None,
        };
        Some(why.to_owned())
    }

    fn begin(&mut self, setup: &NicSetup) -> Result<()> {
        self.stations.clear();
        self.daemon = None; // ended before the next one starts
        self.daemon = Some(SoftDaemon::start(&self.program)?);
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
        if let Err(rejection) = self.ask(Method::PUT, "/v1/state", Some(&state))? {
            bail!("the NIC was rejected: {}", rejection.text());
        }
        if setup.uplink { self.attach(WIRE) } else { Ok(()) }
    }

    fn change(&mut self, change: &ManagerRequest) -> Result<std::result::Result<(), Rejection>> {
        let nic = format!("/v1/nics/{NIC}");
        let said = match change {
            ManagerRequest::NumVfs(count) => {
                self.ask(Method::PATCH, &nic, Some(&json!({"num_vfs": count})))?
            }
            ManagerRequest::Vf { index, settings } => {
                self.ask(Method::PATCH, &format!("{nic}/vfs/{index}"), Some(settings))?
            }
            ManagerRequest::ReleaseVf { index, owner } => {
                let path = released(format!("{nic}/vfs/{index}"), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            ManagerRequest::Add { name, location, settings, guest_first } => {
                self.add(name, *location, settings, *guest_first)?
            }
            ManagerRequest::Adapter { name, settings } => {
                self.ask(Method::PATCH, &format!("/v1/adapters/{name}"), Some(settings))?
            }
            ManagerRequest::Remove { name, owner } => {
                let path = released(format!("/v1/adapters/{name}"), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            ManagerRequest::Switchdev(on) => self.switchdev(*on)?,
            ManagerRequest::Reapply => {
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
        serde_json::from_value(self.get("/v1/actual")?).context("unexpected form of the answer")
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

    fn stop_manager(&mut self, how: ManagerStop) -> Result<()> {
        self.daemon()?.end(how)
    }

    fn start_manager(&mut self) -> Result<()> {
        self.daemon()?.resume()
    }

    fn attach(&mut self, station: &str) -> Result<()> {
        let SoftStation { guest, socket, listener } = self.station(station)?;
        match listener {
            Some(listener) => guest.accept(listener),
            None => guest.connect(socket),
        }
    }

    fn leave(&mut self, station: &str, how: GuestStop) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        match how {
            GuestStop::Orderly => guest.leave(),
            GuestStop::Killed => guest.die(),
        }
        Ok(())
    }

    fn is_attached(&mut self, station: &str) -> bool {
        self.stations.get(station).is_some_and(|station| station.guest.is_attached())
    }

    fn view(&mut self, station: &str) -> Result<GuestConfig> {
        self.station(station)?.guest.view()
    }

    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        frames.iter().try_for_each(|frame| guest.send(frame))
    }

    fn settle(&mut self) -> Result<()> {
        let patience = Instant::now() + SETTLE_TIMEOUT;
        for (name, station) in &mut self.stations {
            // A detached guest has posted frames for later.
            while station.guest.is_attached() && station.guest.in_flight()? > 0 {
                if Instant::now() > patience {
                    bail!("frames that {name} sent are still in flight after 10 s");
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
        let pid = self.daemon()?.pid().context("the daemon is not running")?;
        let mut devices = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            // A descriptor closed meanwhile is no device.
            let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
            let path = target.display().to_string();
            if path.starts_with("/dev/") && path != "/dev/null" && !path.starts_with("/dev/shm/") {
                devices.push(path);
            }
        }
        Ok(devices)
    }
}

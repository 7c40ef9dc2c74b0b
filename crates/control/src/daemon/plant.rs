//! The data plane as control changes it: NICs, their ports, and the sockets on them.
//!
//! # How a change is made
//! 1. What is to be is worked out, without touching anything: who gets which path, and tables.
//! 2. What is missing is added: sockets, ports, files. If something of that fails, it is taken back,
//!    and nothing has changed.
//! 3. Each NIC gets its new scene, in one step. From then on nothing can fail.
//! 4. What is not needed any more is removed.
//!
//! So whoever moves from one path to another is on the new one before the old one goes.

mod actual;
mod shared;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use engine::{Fabric, Port, SoftNic};
use port::capture::{Capture, CaptureLimits};

use super::attachment::Way;
use super::device::GuestDevice;
use super::following::Following;
use super::log::FaultLog;
use super::rig::{Captured, Rig, Served, capture_label, label};
use super::sockets::Sockets;
use crate::compile::{self, Attached, Compiled, Live, Target};
use crate::state::{Allocation, Facts, Problem, Refused, State, VhostUser, WantedPath, allocate};
use wanted::{Wanted, wanted};

pub(super) use shared::Shared;

/// All NICs of the daemon.
#[derive(Debug)]
pub(super) struct Plant {
    pub(super) sockets: Sockets,
    rigs: BTreeMap<String, Rig>,
    compiled: Compiled,
    state: State,
    given: Vec<Allocation>,
    /// The VFs that adapters had before this daemon started, until the first change.
    held: BTreeMap<String, u16>,
    faults: FaultLog,
    following: Following,
    /// Dropped last: the lanes run while guests detach.
    pub(super) fabric: Fabric,
}

/// What was added for a change that is not yet made.
#[derive(Default)]
struct Staged {
    /// NICs that are new.
    nics: Vec<String>,
    /// By NIC and owner.
    ports: Vec<(String, Attached, Arc<Port>, Way)>,
    captures: Vec<(String, String, Captured)>,
}

impl Plant {
    pub(super) fn new(fabric: Fabric, epoll: Arc<OwnedFd>) -> Plant {
        Plant {
            sockets: Sockets::new(epoll),
            rigs: BTreeMap::new(),
            compiled: Compiled::default(),
            state: State::default(),
            given: Vec::new(),
            held: BTreeMap::new(),
            faults: FaultLog::default(),
            following: Following::default(),
            fabric,
        }
    }

    /// Does what is due by the clock.
    pub(super) fn look(&mut self, now: Instant) {
        self.sockets.look(now);
        self.faults.look(&self.fabric, now);
        self.rigs.values_mut().for_each(|rig| rig.look(now));
        if self.following.is_due(now) {
            self.follow(now);
        }
    }

    /// Lets adapters with `path = "auto"` go where their traffic suits them.
    fn follow(&mut self, now: Instant) {
        let auto = self.state.adapters.iter().filter(|adapter| adapter.path == WantedPath::Auto);
        let counted = auto.filter_map(|adapter| {
            let served = self.served(&adapter.name)?;
            Some((adapter.name.clone(), served.port.traffic()))
        });
        let counted = counted.collect();
        if self.following.look(now, counted) {
            let state = self.state.clone();
            if let Err(refused) = self.change(&state) {
                tracing::error!("paths stay as they are: {refused}");
            }
        }
    }

    /// Ends the lanes, and then lets the guests go.
    pub(super) fn stop(&mut self) {
        self.fabric.stop_lanes();
        self.sockets.clear();
    }

    fn change(&mut self, to: &State) -> Result<(), Refused> {
        let mut facts = Facts { suited: self.following.suited(), ..Facts::of(&self.actual()) };
        facts.vfs.extend(self.held.clone());
        let given = allocate(to, &facts);
        let compiled = compile::compile(to, &given, &Live::default(), Some(&self.compiled));
        let compiled = compiled.map_err(Refused)?;
        let wanted = wanted(to).map_err(|problem| Refused(problem.into()))?;
        let mut staged = Staged::default();
        if let Err(problem) = self.stage(&wanted, &compiled, &mut staged) {
            self.take_back(staged);
            return Err(Refused(problem.into()));
        }
        self.put_in_force(wanted, compiled, staged);
        self.state = to.clone();
        self.given = given;
        self.held.clear(); // what is in force says it from now on
        Ok(())
    }

    /// Adds what is missing.
    fn stage(
        &mut self,
        wanted: &[Wanted],
        compiled: &Compiled,
        staged: &mut Staged,
    ) -> Result<(), Problem> {
        for nic in &compiled.nics {
            if !self.rigs.contains_key(&nic.name) {
                self.rigs.insert(nic.name.clone(), Rig::new(&mut self.fabric, &nic.name));
                staged.nics.push(nic.name.clone());
            }
            self.stage_captures(nic, staged)?;
        }
        for wish in wanted {
            let rig = &self.rigs[&wish.nic];
            if rig.served.get(&wish.owner).is_some_and(|served| served.is(wish)) {
                continue;
            }
            let refuse = |error: anyhow::Error| {
                let at = format!("{}.socket", wish.field);
                let error = format!("cannot be opened: {error:#}");
                Problem::new(at, wish.spec.socket.as_str(), error, "another path".to_owned())
            };
            let way = self.way(&wish.spec).map_err(refuse)?;
            let soft = self.rigs[&wish.nic].soft.clone();
            let label = label(&wish.nic, &wish.owner);
            let pairs = usize::from(wish.spec.queue_pairs);
            let port = self.fabric.add_port(&soft, &label, pairs);
            let port = port.map_err(|error| refuse(error.into()))?;
            staged.ports.push((wish.nic.clone(), wish.owner.clone(), port, way));
        }
        Ok(())
    }

    /// Opens a socket, or takes another hold on it if it is open.
    fn way(&self, spec: &VhostUser) -> anyhow::Result<Way> {
        let served = self.rigs.values().flat_map(|rig| rig.served.values());
        let mut same = served
            .filter(|served| (&served.spec.socket, served.spec.mode) == (&spec.socket, spec.mode));
        match same.next().and_then(|served| self.sockets.way(served.token)) {
            Some(way) => Ok(way),
            None => Way::open(spec),
        }
    }

    fn stage_captures(
        &mut self,
        compiled: &compile::Nic,
        staged: &mut Staged,
    ) -> Result<(), Problem> {
        let nic = &compiled.name;
        for (path, label) in files(compiled) {
            if self.rigs[nic].captures.contains_key(path)
                || staged.captures.iter().any(|(_, known, _)| known == path)
            {
                continue;
            }
            let refuse = |error: String| {
                let allowed = "the path of a new file that the daemon may write".to_owned();
                Problem::new("mirror.file", path, format!("cannot be made: {error}"), allowed)
            };
            let limits = CaptureLimits::default();
            let made = Capture::create(path.as_ref(), label, limits);
            let (capture, receive) = made.map_err(|error| refuse(error.to_string()))?;
            let soft = self.rigs[nic].soft.clone();
            let port = self.fabric.add_monitor(&soft, &capture_label(nic, path));
            let port = port.map_err(|error| refuse(error.to_string()))?;
            port.attach_receive(0, receive);
            staged.captures.push((nic.clone(), path.to_owned(), Captured::new(port, capture)));
        }
        Ok(())
    }

    fn take_back(&mut self, staged: Staged) {
        for (nic, _, port, _) in &staged.ports {
            self.fabric.remove_port(&self.rigs[nic].soft, port);
        }
        for (nic, _, captured) in &staged.captures {
            self.fabric.remove_port(&self.rigs[nic].soft, &captured.port);
        }
        for nic in &staged.nics {
            if let Some(rig) = self.rigs.remove(nic) {
                self.fabric.remove_nic(&rig.soft);
            }
        }
    }

    /// Makes the change: scenes first, then what is behind them goes.
    fn put_in_force(&mut self, wanted: Vec<Wanted>, compiled: Compiled, staged: Staged) {
        for (nic, path, captured) in staged.captures {
            if let Some(rig) = self.rigs.get_mut(&nic) {
                rig.captures.insert(path, captured);
            }
        }
        let mut old: Vec<(Arc<SoftNic>, Arc<Port>)> = Vec::new();
        let mut new: BTreeMap<(String, Attached), (Arc<Port>, Way)> = BTreeMap::new();
        new.extend(
            staged.ports.into_iter().map(|(nic, owner, port, way)| ((nic, owner), (port, way))),
        );
        let mut keep: BTreeSet<(String, Attached)> = BTreeSet::new();
        for wish in wanted {
            let key = (wish.nic.clone(), wish.owner.clone());
            match new.remove(&key) {
                Some((port, way)) => old.extend(self.serve(wish, port, way)),
                None => self.identify(wish),
            }
            keep.insert(key);
        }
        for nic in &compiled.nics {
            if let Some(rig) = self.rigs.get_mut(&nic.name) {
                rig.put_in_force(nic);
            }
        }
        self.compiled = compiled;
        self.remove_all_but(&keep, old);
    }

    /// Serves an attachment that is new, or was changed; returns the port that it had.
    fn serve(
        &mut self,
        wish: Wanted,
        port: Arc<Port>,
        way: Way,
    ) -> Option<(Arc<SoftNic>, Arc<Port>)> {
        self.let_go(&wish.spec);
        let rig = self.rigs.get_mut(&wish.nic)?;
        let soft = rig.soft.clone();
        let before = rig.served.remove(&wish.owner).map(|before| {
            self.sockets.remove(before.token);
            (soft.clone(), before.port)
        });
        let device = GuestDevice::new(soft, port.clone(), &wish.spec, wish.identity.clone());
        match self.sockets.add(&wish.spec, way, device) {
            Ok(token) => {
                let Wanted { owner, spec, identity, .. } = wish;
                rig.served.insert(owner, Served { port, token, spec, identity });
            }
            Err(error) => tracing::error!("{}: its socket is not served: {error:#}", port.label),
        }
        before
    }

    /// Ends what is on a socket that is about to be served for somebody: a session there ends before the
    /// next can begin. Whoever had it, by another name or in an exchange, has it no more, since no two
    /// attachments of a state share one.
    fn let_go(&mut self, spec: &VhostUser) {
        let served = self.rigs.values().flat_map(|rig| rig.served.values());
        let same = served.filter(|served| served.spec.socket == spec.socket);
        let tokens: Vec<u64> = same.map(|served| served.token).collect();
        tokens.into_iter().for_each(|token| self.sockets.remove(token));
    }

    /// Gives an attachment that stays the addresses that it has now.
    fn identify(&mut self, wish: Wanted) {
        let Some(rig) = self.rigs.get_mut(&wish.nic) else { return };
        if let Some(served) = rig.served.get_mut(&wish.owner)
            && served.identity != wish.identity
        {
            self.sockets.set_identity(served.token, wish.identity.clone());
            served.identity = wish.identity;
        }
    }

    /// Removes what is not needed any more; no scene names it.
    fn remove_all_but(
        &mut self,
        keep: &BTreeSet<(String, Attached)>,
        mut old: Vec<(Arc<SoftNic>, Arc<Port>)>,
    ) {
        for (name, rig) in &mut self.rigs {
            rig.served.retain(|owner, served| {
                let stays = keep.contains(&(name.clone(), owner.clone()));
                if !stays {
                    self.sockets.remove(served.token);
                    old.push((rig.soft.clone(), served.port.clone()));
                }
                stays
            });
            let compiled = self.compiled.nic(name);
            let named: BTreeSet<&str> =
                compiled.into_iter().flat_map(files).map(|(path, _)| path).collect();
            rig.captures.retain(|path, captured| {
                let stays = named.contains(path.as_str());
                if !stays {
                    old.push((rig.soft.clone(), captured.port.clone()));
                }
                stays
            });
        }
        for (soft, port) in old {
            self.fabric.remove_port(&soft, &port);
        }
        let compiled = &self.compiled;
        self.rigs.retain(|name, rig| {
            let stays = compiled.nic(name).is_some();
            if !stays {
                self.fabric.remove_nic(&rig.soft);
            }
            stays
        });
    }
}

impl Served {
    /// Whether it is served as it is wanted.
    fn is(&self, wish: &Wanted) -> bool {
        self.spec == wish.spec && self.identity.mac.is_some() == wish.identity.mac.is_some()
    }
}

/// The files that get copies, and of whose frames.
fn files(compiled: &compile::Nic) -> impl Iterator<Item = (&str, &str)> {
    compiled.monitors.iter().filter_map(|monitor| match &monitor.target {
        Target::File(path) => Some((path.as_str(), monitor.label.as_str())),
        Target::Adapter(_) => None,
    })
}

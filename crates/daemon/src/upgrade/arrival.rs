//! A daemon that is put together from what another one hands over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use api::run_dir::counters_path;
use api::store::Directory;
use api::{ApiSockets, EventList, Listen, Manager, Server};
use engine::Fabric;
use engine::counters::{CountersError, Reader};
use model::config::COUNTERS;
use model::config::Config;

use super::super::data_plane::Handover;
use super::super::leftovers::{FLEETING_STATE, Leftovers};
use super::super::{Daemon, Stop, attachment, lane_specs};
use super::format::{ApiDoors, HandoverState, Rest};
use super::{Given, new};

/// The API of a daemon that is about to take over.
#[derive(Debug)]
pub(in super::super) struct Arriving {
    manager: Manager,
    doors: Option<(ApiSockets, Listen)>,
    before: EventList,
}

/// The counter file until the other daemon's has its last word.
const COUNTERS_NEW: &str = "counters.new";

impl Daemon {
    /// Takes up all that can be while the other daemon serves; nobody is served, and nothing is
    /// changed that is the other's.
    ///
    /// # Errors
    /// What cannot be taken up, and why.
    pub(super) fn prepare(
        config: &Config,
        mut handover: HandoverState,
        mut given: Given,
        program: PathBuf,
    ) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let origin = new::origin(&mut handover, &mut given, program)?;
        let HandoverState {
            config: _,
            guardian: _,
            run_lock,
            state_lock,
            generation,
            api,
            events,
            suited,
            vfs,
            queues,
            sockets,
        } = handover;
        let lock = given.take(run_lock).context("the lock of the run directory is missing")?;
        let state = given.take(state_lock).context("the lock of the state directory is missing")?;
        let mut leftovers = Leftovers::new(config, COUNTERS_NEW);
        leftovers.spared = true;
        let lanes = lane_specs(config);
        let fabric = Fabric::prepare(&lanes, Some(&run_dir.join(COUNTERS_NEW)))?;
        let (mut daemon, stop) = Daemon::around(config, fabric, leftovers, lock)?;
        let doors = doors(config, api, &mut given)?;
        let sockets: BTreeMap<_, _> = sockets.into_iter().collect();
        let [vfs, queues] = [vfs, queues].map(|held| held.into_iter().collect());
        let handover = Handover { sockets, given, vfs, queues };
        daemon.data_plane.lock().expect(handover, suited);
        let directory = match &config.state_dir {
            Some(directory) => Directory::inherit(directory, state)?,
            None => Directory::inherit(&run_dir.join(FLEETING_STATE), state)?.fleeting(),
        };
        let manager = daemon.manage(config, directory)?;
        if manager.generation() != generation {
            let stored = manager.generation();
            bail!("the state in force is of generation {generation}, and {stored} is stored");
        }
        daemon.data_plane.lock().take_up_sessions()?;
        daemon.be_replaceable(origin)?;
        daemon.arriving = Some(Arriving { manager, doors, before: events });
        Ok((daemon, Stop(stop)))
    }

    /// Takes up the rest: rings and devices are in the lanes' hands, and the lanes stand.
    ///
    /// # Errors
    /// What cannot be taken up, and why; the other daemon can go on.
    pub(super) fn inherit(&mut self, config: &Config, rest: Rest, mut given: Given) -> Result<()> {
        let mut data_plane = self.data_plane.lock();
        match Reader::open(&counters_path(&config.run_dir)) {
            Ok(counted) => data_plane.fabric.restore_counters(&counted.read()),
            Err(error @ CountersError::Open { .. }) => return Err(error.into()),
            // The other daemon's file is broken, and that must not be handed down. This one's is
            // written anew.
            Err(error) => tracing::warn!("counters begin at 0: {:#}", anyhow::Error::from(error)),
        }
        data_plane.go_on(rest, &mut given)
    }

    /// Begins. Nothing can fail any more; the other daemon touches nothing.
    pub(super) fn go(&mut self, config: &Config, before: &str) {
        let ended = self.data_plane.lock().begin();
        let counters = counters_path(&config.run_dir);
        match std::fs::rename(&self.leftovers.counters, &counters) {
            Ok(()) => self.leftovers = Leftovers::new(config, COUNTERS),
            Err(error) => tracing::error!("counters are not to be seen: {error}"),
        }
        let Some(Arriving { mut manager, doors, before: events }) = self.arriving.take() else {
            return;
        };
        let version = env!("CARGO_PKG_VERSION");
        let ended = match ended {
            0 => String::new(),
            n => format!("; sessions that could not be taken up, and were ended: {n}, see the log"),
        };
        manager.took_over(events, format!("shunt {version} took over from shunt {before}{ended}"));
        let manager: Arc<Mutex<Manager>> = manager.into();
        self.manager = Some(manager.clone());
        self.guests_wait = true;
        let Some((doors, listen)) = doors else { return };
        doors.adopt();
        match Server::start_on(manager, doors, &listen) {
            Ok(server) => self.server = Some(server),
            Err(error) => tracing::error!("the API is not served: {error:#}; restart the daemon"),
        }
    }
}

/// The API's sockets, which nobody is answered on yet.
fn doors(
    config: &Config,
    api: Option<ApiDoors>,
    given: &mut Given,
) -> Result<Option<(ApiSockets, Listen)>> {
    let (Some(listen), Some(ApiDoors { unix, tcp })) = (Listen::of(config)?, api) else {
        return Ok(None);
    };
    let unix = attachment::inherit_listener(unix, given)?;
    let tcp = tcp.map(|tcp| given.take(tcp).context("the API's TCP socket is missing"));
    let doors = ApiSockets::inherit(&listen, unix, tcp.transpose()?)?;
    Ok(Some((doors, listen)))
}

//! A daemon assembled from what the old process hands over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use api::run_dir::counters_path;
use api::{ApiSockets, EventList, Listen, Manager, Server};
use engine::Fabric;
use engine::counters::{CountersError, Reader};
use model::config::Config;

use super::super::data_plane::PendingHandover;
use super::super::handover::ReceivedFds;
use super::super::handover::format::{ApiSocketsHandover, FinalState, HandoverState};
use super::super::leftovers::Leftovers;
use super::super::state_dir::StateDir;
use super::super::{Daemon, Sandbox, Stop, attachment, lane_specs};
use super::new_process;

/// The API of a daemon that is about to take over.
#[derive(Debug)]
pub(in super::super) struct PendingTakeover {
    manager: Manager,
    api_sockets: Option<(ApiSockets, Listen)>,
    before: EventList,
}

/// Counter file until the old process's counters are final.
const COUNTERS_NEW: &str = "counters.new";

impl Daemon {
    /// Prepares everything possible while the old process serves. Serves no one, and changes
    /// nothing that the old process uses.
    ///
    /// # Errors
    /// A part of the handover that cannot be adopted, and the cause.
    pub(super) fn prepare(
        config: &Config,
        mut handover: HandoverState,
        mut received: ReceivedFds,
        mut sandbox: Sandbox,
    ) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let launch = new_process::launch_context(&mut handover, &mut received)?;
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
        let lock = received.take(run_lock).context("the lock of the run directory is missing")?;
        let state =
            received.take(state_lock).context("the lock of the state directory is missing")?;
        let state_dir = StateDir::inherit(config, state)?;
        sandbox.confine_files(config, state_dir.directory.path())?;
        let leftovers = Leftovers { counters: run_dir.join(COUNTERS_NEW), link: None };
        let lanes = lane_specs(config);
        let fabric = Fabric::prepare(&lanes, Some(&run_dir.join(COUNTERS_NEW)))?;
        fabric.show_sandbox(sandbox.parts());
        let (mut daemon, stop) = Daemon::assemble(config, fabric, leftovers, lock)?;
        let api_sockets = api_sockets(config, api, &mut received)?;
        let sockets: BTreeMap<_, _> = sockets.into_iter().collect();
        let [vfs, queues] = [vfs, queues].map(|held| held.into_iter().collect());
        let handover = PendingHandover { sockets, fds: received, vfs, queues };
        daemon.data_plane.lock().expect(handover, suited);
        let manager = daemon.open_manager(config, state_dir, None)?;
        if manager.generation() != generation {
            let stored = manager.generation();
            bail!("the state in force has generation {generation}, but the stored one {stored}");
        }
        daemon.data_plane.lock().adopt_sessions()?;
        daemon.accept_upgrades(launch)?;
        sandbox.log();
        daemon.takeover = Some(PendingTakeover { manager, api_sockets, before: events });
        Ok((daemon, Stop(stop)))
    }

    /// Adopts the final state: rings and devices are attached, and the lanes stay stopped.
    ///
    /// # Errors
    /// A part of it that cannot be adopted, and the cause; the old process can continue.
    pub(super) fn inherit(
        &mut self,
        config: &Config,
        rest: FinalState,
        mut received: ReceivedFds,
    ) -> Result<()> {
        let mut data_plane = self.data_plane.lock();
        match Reader::open(&counters_path(&config.run_dir)) {
            Ok(counted) => data_plane.fabric.restore_counters(&counted.read()),
            Err(error @ CountersError::Open { .. }) => return Err(error.into()),
            // The old process's file is corrupt: do not inherit that. The new file starts empty.
            Err(error) => tracing::warn!("counters begin at 0: {:#}", anyhow::Error::from(error)),
        }
        data_plane.adopt(rest, &mut received)
    }

    /// Starts serving. Nothing can fail any more; the old process touches nothing.
    pub(super) fn start_serving(&mut self, config: &Config, before: &str) {
        let ended = self.data_plane.lock().begin();
        let counters = counters_path(&config.run_dir);
        match std::fs::rename(&self.leftovers.counters, &counters) {
            Ok(()) => self.leftovers = Leftovers { counters, link: None },
            Err(error) => tracing::error!("counters cannot be renamed into place: {error}"),
        }
        self.publish(config);
        let Some(PendingTakeover { mut manager, api_sockets, before: events }) =
            self.takeover.take()
        else {
            return;
        };
        let version = env!("CARGO_PKG_VERSION");
        let ended = match ended {
            0 => String::new(),
            n => format!("; sessions that could not be resumed, and were ended: {n}, see the log"),
        };
        manager.took_over(events, format!("shunt {version} took over from shunt {before}{ended}"));
        let manager: Arc<Mutex<Manager>> = manager.into();
        self.manager = Some(manager.clone());
        self.channels_pending = true;
        let Some((api_sockets, listen)) = api_sockets else { return };
        api_sockets.adopt();
        match Server::start_on(manager, api_sockets, &listen) {
            Ok(server) => self.server = Some(server),
            Err(error) => tracing::error!("cannot serve the API: {error:#}; restart the daemon"),
        }
    }
}

/// Sockets of the API, not served yet.
fn api_sockets(
    config: &Config,
    api: Option<ApiSocketsHandover>,
    received: &mut ReceivedFds,
) -> Result<Option<(ApiSockets, Listen)>> {
    let (Some(listen), Some(ApiSocketsHandover { unix, tcp })) = (Listen::of(config)?, api) else {
        return Ok(None);
    };
    let unix = attachment::inherit_listener(unix, received)?;
    let tcp = tcp.map(|tcp| received.take(tcp).context("the API's TCP socket is missing"));
    let api_sockets = ApiSockets::inherit(&listen, unix, tcp.transpose()?)?;
    Ok(Some((api_sockets, listen)))
}

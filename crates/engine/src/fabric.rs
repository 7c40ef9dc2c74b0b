//! Soft NICs with their ports, and the lanes that serve them.
//!
//! A transmit ring is assigned to the lane with the fewest rings when its port is made. A receive
//! ring belongs to no lane: it is locked for each burst. After a restart guests reconnect one by
//! one, and a sender must not lose frames to a receiver that comes later. So lanes pause until all
//! configured ports are attached, for 500 ms at most.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Lane;
use crate::counters::{CounterBlock, Counters};
use crate::lane;
use crate::lane::bounce_buffers::BounceBuffers;
use crate::lane::queue_list::{QueueList, TxRing};
use crate::lane::spec::{IdlePolicy, LaneSpec};
use crate::lane::tx_pause::TxPause;
use crate::lane::wake::Wake;
use crate::lane::worker::Worker;
use crate::limits::{self, LimitCounters};
use crate::port::{self, Port};
use crate::quarantine::{Quarantine, QuarantineNews};
use crate::snapshot::ForwardingSnapshot;
use crate::soft_nic::SoftNic;
use crate::start_error::StartError;

/// The name of the lane that serves ports in quarantine.
const QUARANTINE: &str = "quarantine";

/// All soft NICs of a daemon, and the lanes that serve them. NICs and ports come and go while lanes
/// run.
#[derive(Debug)]
pub struct Fabric {
    nics: Vec<Arc<SoftNic>>,
    counters: Counters,
    /// Counters of the daemon as a whole.
    own: CounterBlock,
    limits: LimitCounters,
    lanes: Vec<Lane>,
    pub(crate) quarantine: Arc<Quarantine>,
    /// Serves ports in quarantine; `None` once lanes have been stopped.
    quarantine_lane: Option<Lane>,
    pause: Arc<TxPause>,
}

/// Kind and label of the daemon's own block of counters.
const OWN: &str = "daemon";
/// Counters of this block.
const OWN_WORDS: [&str; 3] = ["log_lines_dropped", "forbidden_calls", SANDBOX];
/// Parts of the sandbox, a bit for each.
const SANDBOX: &str = "sandbox";

impl Fabric {
    /// Creates the counters, in the file `counters` or in memory, and starts the lanes.
    ///
    /// # Errors
    /// The file cannot be made, or a lane cannot be started or pinned.
    pub fn start(lanes: &[LaneSpec], counters: Option<&Path>) -> Result<Fabric, StartError> {
        let mut fabric = Fabric::prepare(lanes, counters)?;
        fabric.go();
        Ok(fabric)
    }

    /// Like [`start`](Self::start), but lanes are pinned and wait for [`go`](Self::go).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn prepare(lanes: &[LaneSpec], counters: Option<&Path>) -> Result<Fabric, StartError> {
        host::watchdog::start().map_err(StartError::Watch)?;
        ::port::notifier::start().map_err(StartError::Watch)?;
        let own = (OWN, OWN_WORDS.map(str::to_owned).to_vec());
        let schemas =
            vec![("port", port::counter::schema()), ("lane", lane::counter::schema()), own];
        let schemas = [schemas, vec![(limits::KIND, limits::schema())]].concat();
        let mut counters = Counters::create(counters, schemas)?;
        let own = counters.add(OWN, OWN)?;
        let limits = LimitCounters::add(&mut counters)?;
        let pause = Arc::new(TxPause::default());
        let mut started = Vec::new();
        let (wake, queue_list) = (Arc::new(Wake::new()?), Arc::new(QueueList::default()));
        let quarantine = Arc::new(Quarantine::new(wake.clone(), queue_list.clone()));
        let shared = (pause.clone(), quarantine.clone());
        for (number, spec) in lanes.iter().enumerate() {
            let block = counters.add("lane", &number.to_string())?;
            let (wake, queue_list) = (Arc::new(Wake::new()?), Arc::new(QueueList::default()));
            let (pause, quarantine) = shared.clone();
            let worker = Worker::new(spec.idle, queue_list, block, wake, pause, quarantine);
            started.push(Lane::start(spec.cpu, number, number.to_string(), worker)?);
        }
        let block = counters.add("lane", QUARANTINE)?;
        let idle = IdlePolicy { poll: Duration::ZERO, yielding: Duration::ZERO, sleep: true };
        let bounce = BounceBuffers::new().ok_or(StartError::BounceBuffers)?;
        let (pause, _) = shared;
        let worker = Worker::new(idle, queue_list, block, wake, pause.clone(), quarantine.clone());
        let worker = worker.for_quarantine(bounce);
        let lane = Lane::start(None, lanes.len(), QUARANTINE.to_owned(), worker)?;
        let (nics, quarantine_lane) = (Vec::new(), Some(lane));
        let lanes = started;
        Ok(Fabric { nics, counters, own, limits, lanes, quarantine, quarantine_lane, pause })
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().chain(&self.quarantine_lane)
    }

    /// Returns up to `most` events of the quarantine; the rest waits for the next call.
    pub fn take_quarantine_news(&self, most: usize) -> Vec<QuarantineNews> {
        self.quarantine.take_news(most)
    }

    /// Starts the lanes after [`prepare`](Self::prepare).
    pub fn go(&mut self) {
        self.lanes.iter_mut().chain(&mut self.quarantine_lane).for_each(Lane::go);
    }

    /// Adds the counters of the former daemon, before any lane starts. Gauges, such as the number
    /// of rings, are not restored.
    pub fn restore_counters(&self, counted: &[crate::CounterSnapshot]) {
        let gauges = [port::counter::GAUGES, lane::counter::GAUGES, limits::GAUGES, &[SANDBOX]];
        let gauges = gauges.concat();
        self.counters.add_all(counted, &gauges);
    }

    /// Returns `true` if readers no longer see the counters ([`Counters::is_lost`]).
    pub fn has_lost_counters(&self) -> bool {
        self.counters.is_lost()
    }

    /// Counts log lines that the daemon dropped.
    pub fn count_log_lines_dropped(&self, lines: u64) {
        self.own.add(0, lines);
    }

    /// Counts system calls that the sandbox refused.
    pub fn count_forbidden_calls(&self, calls: u64) {
        self.own.add(1, calls);
    }

    /// Counters of all limits.
    pub fn limits(&self) -> LimitCounters {
        self.limits
    }

    /// Shows which parts of the sandbox are in force: a bit for each of
    /// [`PARTS`](host::sandbox::PARTS).
    pub fn show_sandbox(&self, parts: u64) {
        self.own.set(2, parts);
    }

    /// Adds a NIC with no port plugged in.
    pub fn add_nic(&mut self, name: &str) -> Arc<SoftNic> {
        self.nics.push(Arc::new(SoftNic::new(name)));
        self.nics[self.nics.len() - 1].clone()
    }

    /// Removes a NIC with all its ports.
    pub fn remove_nic(&mut self, nic: &Arc<SoftNic>) {
        for port in nic.ports() {
            self.remove_port(nic, &port);
        }
        nic.set_snapshot(ForwardingSnapshot::empty());
        self.nics.retain(|other| !Arc::ptr_eq(other, nic));
    }

    /// Adds a port of `pairs` queue pairs, which lanes poll from now on. No frame passes before a
    /// snapshot has a location for it. `label` is its name in the counters.
    ///
    /// # Errors
    /// There are too many ports for the counter file, or its file system is full.
    pub fn add_port(
        &mut self,
        nic: &Arc<SoftNic>,
        label: &str,
        pairs: usize,
    ) -> Result<Arc<Port>, StartError> {
        let port = self.make_port(nic, label, pairs)?;
        for pair in 0..pairs {
            // The lane with the fewest rings, the first of equals: a fresh daemon assigns them in
            // turn.
            let lane = self.lanes.iter().min_by_key(|lane| lane.queue_list.len());
            if let Some(lane) = lane {
                port.set_lane(pair, lane.wake.clone());
                lane.queue_list.add(TxRing { nic: nic.clone(), port: port.clone(), pair });
            }
        }
        Ok(port)
    }

    /// Adds a port that only receives: a monitor.
    ///
    /// # Errors
    /// As [`add_port`](Self::add_port).
    pub fn add_monitor(
        &mut self,
        nic: &Arc<SoftNic>,
        label: &str,
    ) -> Result<Arc<Port>, StartError> {
        self.make_port(nic, label, 1)
    }

    fn make_port(
        &mut self,
        nic: &Arc<SoftNic>,
        label: &str,
        pairs: usize,
    ) -> Result<Arc<Port>, StartError> {
        let mut blocks = Vec::new();
        for _ in 0..pairs {
            match self.counters.add("port", label) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    blocks.into_iter().for_each(|block| self.counters.remove(block));
                    return Err(error.into());
                }
            }
        }
        let mut ports = nic.lock();
        let number = ports.iter().position(Option::is_none).unwrap_or(ports.len());
        let port = Arc::new(Port::new(label.to_owned(), number, blocks));
        if number == ports.len() {
            ports.push(None);
        }
        ports[number] = Some(port.clone());
        self.quarantine.add(nic.clone(), port.clone());
        Ok(port)
    }

    /// Removes a port: takes its rings out, and no lane polls it any more. The current snapshot
    /// should have no location for it.
    pub fn remove_port(&mut self, nic: &Arc<SoftNic>, port: &Arc<Port>) {
        self.lanes.iter().for_each(|lane| lane.queue_list.remove(port));
        self.quarantine.remove(port);
        port.retire();
        let mut ports = nic.lock();
        let place = ports.get_mut(port.number);
        let Some(place) = place.filter(|it| it.as_ref().is_some_and(|it| Arc::ptr_eq(it, port)))
        else {
            return; // it is gone already
        };
        *place = None;
        let successor = ports.iter().flatten().find(|other| other.label == port.label).cloned();
        drop(ports); // no lock of a port is taken under this one
        if let Some(successor) = successor {
            successor.continue_counters(port);
        }
        port.blocks().for_each(|block| self.counters.remove(block));
    }

    /// Pauses all transmit rings: frames stay in the rings. After a restart guests reconnect one by
    /// one, and a sender must not lose frames to receivers that come later.
    pub fn pause_tx(&self) {
        self.set_pause(true);
    }

    /// Resumes all transmit rings after [`pause_tx`](Self::pause_tx).
    pub fn resume_tx(&self) {
        self.set_pause(false);
    }

    fn set_pause(&self, is_paused: bool) {
        self.pause.set(is_paused);
        // A paused lane polls no ring, and may have fallen asleep.
        self.all_lanes().for_each(|lane| lane.wake.wake());
    }

    /// Waits until every lane has seen the [pause](Self::pause_tx), so that no frame is in flight;
    /// returns `true` if all did within `most`.
    pub fn wait_tx_paused(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        loop {
            if self.all_lanes().all(|lane| self.pause.is_acknowledged(&lane.acknowledged)) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Stops the lanes for good, each after its current burst. No frame is in flight then; the
    /// others stay posted.
    pub fn stop_lanes(&mut self) {
        self.lanes.clear();
        self.quarantine_lane = None;
    }

    /// The NICs.
    pub fn nics(&self) -> &[Arc<SoftNic>] {
        &self.nics
    }

    /// The NIC of this name.
    pub fn nic(&self, name: &str) -> Option<&Arc<SoftNic>> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// The lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }
}

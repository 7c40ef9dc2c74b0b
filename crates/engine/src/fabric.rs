//! Soft NICs with their ports, and the lanes that serve them.
//!
//! A transmit ring belongs to the lane with the fewest rings when its port is made; a receive ring
//! to no lane: it is locked for each burst. After a start guests come back one by one, and a frame
//! must not be dropped because its receiver comes later than its sender: lanes hold until all
//! configured ports are attached, for 500 ms at most.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::counters::{Block, Counters, CountersError};
use crate::lane::{self, IdlePolicy, LaneSpec};
use crate::port::{self, Port};
use crate::quarantine::{Quarantine, QuarantineNews};
use crate::queue_list::{QueueList, Ring};
use crate::scene::Scene;
use crate::wake::Wake;
use crate::worker::Worker;
use crate::worker::off_lane::OffLane;

/// One soft NIC.
pub struct SoftNic {
    /// Its name.
    pub name: String,
    scene: ArcSwap<Scene>,
    /// By port number; `None` where a port is gone.
    ports: Mutex<Vec<Option<Arc<Port>>>>,
}

impl fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNic").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SoftNic {
    /// What is in force.
    #[inline]
    pub fn scene(&self) -> arc_swap::Guard<Arc<Scene>> {
        self.scene.load()
    }

    /// Puts another scene in force: a burst sees the old or the new, never a mixture.
    /// A frame that a guest posts when this has returned is carried by the new one.
    pub fn set_scene(&self, scene: impl Into<Arc<Scene>>) {
        self.scene.store(scene.into());
    }

    /// Waits until no lane uses a replaced scene (grace period): a burst is forwarded under the
    /// lock of its transmit ring.
    pub fn settle(&self) {
        for port in self.ports() {
            (0..port.pairs()).for_each(|pair| drop(port.silence(pair)));
        }
    }

    /// All ports.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        self.lock().iter().flatten().cloned().collect()
    }

    /// Sends a frame of ours as if the guest at `from` had, without its checks, to all members of
    /// its VLAN; says how many received it. Not for the way of a frame: it allocates.
    pub fn inject(&self, from: &Port, frame: &[u8]) -> usize {
        crate::inject::inject(&self.scene(), from, frame)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Port>>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether lanes are held: a number that is odd then, and grows with each change, so that who has
/// seen it is known to have seen the last change.
#[derive(Debug, Default)]
pub(crate) struct Held(AtomicU32);

impl Held {
    fn set(&self, held: bool) {
        let change = |now: u32| (now % 2 == 1) != held;
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            change(now).then_some(now.wrapping_add(1))
        });
    }

    /// The number, and whether it says that lanes are held.
    #[inline]
    pub(crate) fn get(&self) -> (u32, bool) {
        let now = self.0.load(Ordering::Relaxed);
        (now, now % 2 == 1)
    }

    fn is_known(&self, knows: &AtomicU32) -> bool {
        knows.load(Ordering::Acquire) == self.0.load(Ordering::Acquire)
    }
}

/// The name of the lane that serves ports in quarantine.
const QUARANTINE: &str = "quarantine";

/// All soft NICs of a daemon, and the lanes that serve them. NICs and ports come and go while
/// lanes run.
#[derive(Debug)]
pub struct Fabric {
    nics: Vec<Arc<SoftNic>>,
    counters: Counters,
    /// Counters of the daemon as a whole.
    own: Block,
    lanes: Vec<lane::Lane>,
    pub(crate) quarantine: Arc<Quarantine>,
    /// Serves ports in quarantine; `None` once lanes have been stopped.
    quarantine_lane: Option<lane::Lane>,
    held: Arc<Held>,
}

/// The kind and the label of the block of counters of the daemon as a whole.
const OWN: &str = "daemon";
/// Its words.
const OWN_WORDS: [&str; 1] = ["log_lines_dropped"];

impl Fabric {
    /// Makes counters (in the file `counters`, or in memory), and starts the lanes.
    ///
    /// # Errors
    /// The file cannot be made, or a lane not be started or pinned.
    pub fn start(lanes: &[LaneSpec], counters: Option<&Path>) -> Result<Fabric, StartError> {
        let mut fabric = Fabric::prepare(lanes, counters)?;
        fabric.go();
        Ok(fabric)
    }

    /// The same with lanes that are where they are to run, and wait for [`go`](Self::go).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn prepare(lanes: &[LaneSpec], counters: Option<&Path>) -> Result<Fabric, StartError> {
        host::brief::start().map_err(StartError::Watch)?;
        ::port::notifier::start().map_err(StartError::Watch)?;
        let own = (OWN, OWN_WORDS.map(str::to_owned).to_vec());
        let schemas = vec![("port", port::word::schema()), ("lane", lane::schema()), own];
        let mut counters = Counters::create(counters, schemas)?;
        let own = counters.add(OWN, OWN)?;
        let held = Arc::new(Held::default());
        let mut started = Vec::new();
        let (wake, queue_list) = (Arc::new(Wake::new()?), Arc::new(QueueList::default()));
        let quarantine = Arc::new(Quarantine::new(wake.clone(), queue_list.clone()));
        let shared = (held.clone(), quarantine.clone());
        for (number, spec) in lanes.iter().enumerate() {
            let block = counters.add("lane", &number.to_string())?;
            let (wake, queue_list) = (Arc::new(Wake::new()?), Arc::new(QueueList::default()));
            let (held, quarantine) = shared.clone();
            let worker = Worker::new(spec.idle, queue_list, block, wake, held, quarantine);
            started.push(lane::Lane::start(spec.cpu, number, number.to_string(), worker)?);
        }
        let block = counters.add("lane", QUARANTINE)?;
        let idle = IdlePolicy { poll: Duration::ZERO, yielding: Duration::ZERO, sleep: true };
        let off_lane = OffLane::new().ok_or(StartError::OffLane)?;
        let (held, _) = shared;
        let worker = Worker::new(idle, queue_list, block, wake, held.clone(), quarantine.clone());
        let worker = worker.off_lane(off_lane);
        let lane = lane::Lane::start(None, lanes.len(), QUARANTINE.to_owned(), worker)?;
        let (nics, quarantine_lane) = (Vec::new(), Some(lane));
        Ok(Fabric { nics, counters, own, lanes: started, quarantine, quarantine_lane, held })
    }

    /// All lanes.
    fn all_lanes(&self) -> impl Iterator<Item = &lane::Lane> {
        self.lanes.iter().chain(&self.quarantine_lane)
    }

    /// News of the quarantine, at most so many; the rest waits for the next call.
    pub fn take_quarantine_news(&self, most: usize) -> Vec<QuarantineNews> {
        self.quarantine.take_news(most)
    }

    /// Lets the lanes begin.
    pub fn go(&mut self) {
        self.lanes.iter_mut().chain(&mut self.quarantine_lane).for_each(lane::Lane::go);
    }

    /// Goes on counting from what another daemon with these NICs has counted, before any lane
    /// begins. What is no sum, such as a number of rings, is not taken over.
    pub fn go_on_from(&self, counted: &[crate::Snapshot]) {
        let gauges = [port::word::GAUGES, lane::GAUGES].concat();
        self.counters.add_all(counted, &gauges);
    }

    /// Whether no reader sees the counters any more ([`Counters::is_lost`]).
    pub fn has_lost_counters(&self) -> bool {
        self.counters.is_lost()
    }

    /// Counts log lines that the daemon dropped.
    pub fn count_log_lines_dropped(&self, lines: u64) {
        self.own.add(0, lines);
    }

    /// Adds a NIC on which nothing is plugged in.
    pub fn add_nic(&mut self, name: &str) -> Arc<SoftNic> {
        let scene = ArcSwap::from_pointee(Scene::empty());
        let nic = SoftNic { name: name.to_owned(), scene, ports: Mutex::default() };
        self.nics.push(Arc::new(nic));
        self.nics[self.nics.len() - 1].clone()
    }

    /// Removes a NIC with all its ports.
    pub fn remove_nic(&mut self, nic: &Arc<SoftNic>) {
        for port in nic.ports() {
            self.remove_port(nic, &port);
        }
        nic.set_scene(Scene::empty());
        self.nics.retain(|other| !Arc::ptr_eq(other, nic));
    }

    /// Adds a port of `pairs` queue pairs, which lanes poll from now on. No frame comes or goes
    /// before a scene has a place for it. `label` is its name in the counters.
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
            // The least busy, the first of equals: so a fresh daemon deals them out in turn.
            let lane = self.lanes.iter().min_by_key(|lane| lane.queue_list.len());
            if let Some(lane) = lane {
                port.set_lane(pair, lane.wake.clone());
                lane.queue_list.add(Ring { nic: nic.clone(), port: port.clone(), pair });
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

    /// Removes a port: its rings are taken out, and no lane polls it any more. The scene in force
    /// should have no place for it.
    pub fn remove_port(&mut self, nic: &Arc<SoftNic>, port: &Arc<Port>) {
        self.lanes.iter().for_each(|lane| lane.queue_list.remove(port));
        self.quarantine.remove(port);
        port.retire();
        let mut ports = nic.lock();
        match ports.get_mut(port.number) {
            Some(place) if place.as_ref().is_some_and(|other| Arc::ptr_eq(other, port)) => {
                *place = None;
                port.blocks().for_each(|block| self.counters.remove(block));
            }
            _ => {} // it is gone already
        }
    }

    /// Whether transmit rings wait: their frames stay where the guests posted them. After a restart
    /// guests come back one by one, and a frame must not be dropped because its receiver is later
    /// than its sender.
    pub fn hold(&self, held: bool) {
        self.held.set(held);
        // A lane that is held looks at nothing, and may have fallen asleep over that.
        self.all_lanes().for_each(|lane| lane.wake.wake());
    }

    /// Waits until every lane knows that it is [held](Self::hold), so that no frame is on its way;
    /// says whether all did within `most`.
    pub fn wait_for_rest(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        loop {
            if self.all_lanes().all(|lane| self.held.is_known(&lane.knows)) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Ends the lanes, each after the burst in its hands: no frame is on its way any more, and
    /// those not yet taken stay posted. For good.
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
    pub fn lanes(&self) -> &[lane::Lane] {
        &self.lanes
    }
}

/// Why the data plane could not start, or a port not be added.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No counter file.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// No lane.
    #[error("cannot start lane {lane}")]
    Lane {
        /// Its number.
        lane: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A lane cannot be pinned as configured.
    #[error("cannot pin lane {lane}")]
    Pin {
        /// Its number.
        lane: usize,
        /// Why, and the remedy.
        #[source]
        source: host::cpu::PinError,
    },
    /// No thread that keeps front-ends from holding up lanes.
    #[error("cannot start the thread that watches over the lanes")]
    Watch(#[source] std::io::Error),
    /// No memory that frames of ports in quarantine are copied to.
    #[error("no memory left for the quarantine lane (4.3 MiB); raise the memory limit")]
    OffLane,
    /// No epoll or eventfd.
    #[error("cannot make the lane's wake-up")]
    Wake(#[from] rustix::io::Errno),
}

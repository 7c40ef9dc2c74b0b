//! The daemon in the foreground: from a checked configuration to running lanes and sockets.
//!
//! One thread (the caller's) serves all vhost-user sockets by epoll; the lanes are threads of their
//! own, which it only meets at the ports. A front-end can make this thread do a bounded amount of
//! work a turn ([`attachment`]), so that no front-end keeps another from attaching.
//!
//! # Life
//! 1. [`Daemon::start`]: sockets first, so that a daemon that finds its place taken has changed
//!    nothing; then counters and lanes.
//! 2. [`Daemon::serve`]: guests may not send before all are back, or a moment has passed: a frame
//!    that was posted while no daemon ran finds its receiver.
//! 3. [`Stop`]: the lanes end first, each after the burst in its hands, and guests are let go
//!    after them. So what a guest has posted has either arrived, or waits for the next daemon.

mod attachment;
mod device;
mod log;
mod offer;
pub(crate) mod run_dir;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Fabric, IdlePolicy, LaneSpec, NicSpec, SoftNic};
use host::CpuLatency;
use nic::{NicConfig, PortId};
use rustix::event::{Timespec, epoll};

use crate::config::{Config, Function, Nic};
use attachment::{Attachment, Way};
use log::{FaultLog, LOOK};

/// The counter file's name in the run directory.
pub const COUNTERS: &str = "counters";
pub(crate) use run_dir::LOCK;

/// How long after its start the daemon waits for guests to come back before it lets any send.
const SETTLE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile whether all are there.
const SETTLE_LOOK: Duration = Duration::from_millis(2);

/// Runs until SIGINT or SIGTERM. `ready` is called once all sockets are served.
///
/// # Errors
/// What keeps the daemon from starting: each says what is wrong, where, and the remedy.
pub fn run(config: &Config, ready: impl FnOnce()) -> Result<()> {
    let (daemon, stop) = Daemon::start(config)?;
    stop.on_signals()?;
    ready();
    daemon.serve()
}

/// A daemon whose lanes run and whose sockets are there.
#[derive(Debug)]
pub struct Daemon {
    epoll: OwnedFd,
    attachments: Vec<Attachment>,
    /// Dropped last: the lanes run while attachments detach.
    fabric: Fabric,
    counters: PathBuf,
    /// Readable when it is to stop; epoll watches it.
    _stop: UnixStream,
    /// Held until the end: the run directory is one daemon's.
    _lock: std::fs::File,
    /// Likewise: how soon CPUs wake up, if the configuration says.
    _cpu_latency: Option<CpuLatency>,
}

/// Ends [`Daemon::serve`], from any thread; so does dropping it.
#[derive(Debug)]
pub struct Stop(UnixStream);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        // The only failures are a daemon that is gone and a full buffer, which ends it as well.
        let _ = (&self.0).write(&[0]);
    }

    /// Ends it at SIGINT or SIGTERM, too.
    ///
    /// # Errors
    /// If the system has no descriptor left, or refuses the handler.
    pub fn on_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, self.0.try_clone()?)?;
        }
        Ok(())
    }
}

/// Epoll's data for [`Stop`]; attachments have their index.
const STOP: u64 = u64::MAX;

impl Daemon {
    /// Starts lanes and opens sockets; nobody is served before [`serve`](Self::serve).
    ///
    /// # Errors
    /// As [`run`].
    pub fn start(config: &Config) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let lock = run_dir::claim(run_dir)?;
        raise_file_limit();
        let sockets = config.nics.iter().flat_map(functions);
        let sockets: Vec<Way> =
            sockets.map(|(_, _, attachment, _)| Way::open(attachment)).collect::<Result<_>>()?;

        let latency = config.lanes.cpu_latency_us.map(CpuLatency::hold).transpose();
        let cpu_latency = latency.context("cannot keep lanes.cpu_latency_us")?;

        let counters = counters_path(run_dir);
        let specs = config.nics.iter().map(nic_spec).collect::<Result<Vec<_>>>()?;
        let fabric = Fabric::start(specs, &lane_specs(config), Some(&counters));
        // Nobody shall take the counters of lanes that did not start for a daemon's.
        let fabric = fabric.inspect_err(|_| drop(std::fs::remove_file(&counters)))?;
        fabric.hold(true);

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (ours, stop) = UnixStream::pair()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&epoll, &ours, epoll::EventData::new_u64(STOP), input)?;
        let mut attachments = attachments(config, &fabric, sockets)?;
        for (i, attachment) in attachments.iter_mut().enumerate() {
            attachment.watch(epoll.as_fd(), i as u64)?;
        }
        let daemon = Daemon {
            epoll,
            attachments,
            fabric,
            counters,
            _stop: ours,
            _lock: lock,
            _cpu_latency: cpu_latency,
        };
        Ok((daemon, Stop(stop)))
    }

    /// Serves guests until [`Stop`] says otherwise.
    ///
    /// # Errors
    /// If waiting for events fails, which only a bug could cause.
    pub fn serve(mut self) -> Result<()> {
        let mut log = FaultLog::default();
        let started = Instant::now();
        let mut settled = false;
        loop {
            let now = Instant::now();
            let all = || self.attachments.iter().all(Attachment::is_attached);
            if !settled && (now - started >= SETTLE || all()) {
                settled = true;
                self.fabric.hold(false);
            }
            let wait = self.attachments.iter().filter_map(|attachment| attachment.wait(now)).min();
            let most = if settled { LOOK } else { SETTLE_LOOK };
            let wait = wait.unwrap_or(most).min(most);
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos().min(999_999_999) as i64 };
            let data = epoll::EventData::new_u64(0);
            let flags = epoll::EventFlags::empty();
            let mut events = [epoll::Event { flags, data }; 64];
            let n = match epoll::wait(&self.epoll, &mut events[..], Some(&wait)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error).context("waiting for sockets failed"),
            };
            for event in &events[..n] {
                let token = event.data.u64();
                if token == STOP {
                    self.stop();
                    return Ok(());
                }
                if let Some(attachment) = self.attachments.get_mut(token as usize) {
                    attachment.serve(self.epoll.as_fd());
                }
            }
            let now = Instant::now();
            for attachment in &mut self.attachments {
                attachment.end_if_stalled(self.epoll.as_fd());
                attachment.connect_if_due(self.epoll.as_fd(), now);
            }
            log.look(&self.fabric, now);
        }
    }

    fn stop(mut self) {
        tracing::info!("stopping");
        self.fabric.stop_lanes();
        self.attachments.clear(); // detaches every guest, and removes the sockets
        let _ = std::fs::remove_file(&self.counters); // a leftover would do no harm
    }
}

/// One attachment for each function, with its socket.
fn attachments(config: &Config, fabric: &Fabric, sockets: Vec<Way>) -> Result<Vec<Attachment>> {
    let all = config.nics.iter().flat_map(|nic| {
        let soft = fabric.nic(&nic.name).expect("the fabric was made of these");
        functions(nic).map(move |function| (soft, function))
    });
    let open =
        |((soft, (id, _, attachment, function)), socket): ((&Arc<SoftNic>, Place<'_>), _)| {
            let port = soft.port(id).expect("the fabric was made of these").clone();
            let device = device::GuestDevice::new(soft.clone(), port, attachment, function);
            Attachment::new(attachment, socket, device)
        };
    all.zip(sockets).map(open).collect()
}

/// A function's place, name, socket and settings.
type Place<'a> = (PortId, String, &'a crate::config::Attachment, Option<&'a Function>);

/// Every function of a NIC that has a port, the uplink first.
fn functions(nic: &Nic) -> impl Iterator<Item = Place<'_>> {
    let uplink = nic.uplink.iter();
    let uplink = uplink.map(|uplink| (PortId::UPLINK, "uplink".into(), &uplink.attachment, None));
    let pf = nic.pf.iter().map(|pf| (PortId::PF, "pf".into(), &pf.attachment, Some(pf)));
    let vfs = nic.vfs.iter().map(|vf| {
        let (index, function) = (vf.index as u8, &vf.function);
        (PortId::vf(index), format!("vf{index}"), &function.attachment, Some(function))
    });
    uplink.chain(pf).chain(vfs)
}

/// The settings as the NIC has them.
fn nic_function(function: &Function) -> nic::Function {
    let rules = &function.rules;
    let vlan = |vid| {
        let (qos, protocol) = (rules.vlan_qos, rules.vlan_protocol);
        nic::PortVlan { vid, qos, protocol }
    };
    nic::Function {
        extra_macs: function.macs.clone(),
        vlan: function.vlan.map(vlan),
        trunk: rules.trunk.iter().copied().collect(),
        spoof_check: rules.spoof_check,
        trust: rules.trust,
        promiscuous: rules.promiscuous,
        link: rules.link,
        share: rules.share,
        storm_limit: rules.storm_limit,
        ..nic::Function::new(function.mac)
    }
}

fn nic_spec(nic: &Nic) -> Result<NicSpec> {
    let mut vfs = vec![None; usize::from(nic.total_vfs)];
    for vf in &nic.vfs {
        vfs[usize::from(vf.index)] = Some(nic_function(&vf.function));
    }
    let pf = nic.pf.as_ref().map(nic_function);
    let config = NicConfig { pf, vfs, mode: nic.bridging, ..NicConfig::default() };
    let table = nic::Table::build(&config).with_context(|| format!("nic {}", nic.name))?;
    let port =
        |(id, name, attachment, _): Place<'_>| (id, name, usize::from(attachment.queue_pairs));
    Ok(NicSpec { name: nic.name.clone(), table, ports: functions(nic).map(port).collect() })
}

/// A VF with its guest holds some ten descriptors, and the usual soft limit is 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, running out of descriptors is said where it happens.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn lane_specs(config: &Config) -> Vec<LaneSpec> {
    let lanes = &config.lanes;
    let idle = IdlePolicy {
        poll: Duration::from_micros(lanes.poll_us.into()),
        yielding: Duration::from_micros(lanes.yield_us.into()),
        sleep: lanes.sleep,
    };
    let cpu = |i| lanes.cpus.get(i).copied();
    (0..lanes.count()).map(|i| LaneSpec { cpu: cpu(i), idle }).collect()
}

/// Where the counters of a daemon with this run directory are.
pub fn counters_path(run_dir: &Path) -> PathBuf {
    run_dir.join(COUNTERS)
}

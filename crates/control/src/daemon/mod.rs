//! The daemon in the foreground: from a checked configuration to running lanes and sockets.
//!
//! One thread (the caller's) serves all vhost-user sockets by epoll; the lanes are threads of their
//! own, which it only meets at the ports. A front-end can make this thread do a bounded amount of
//! work a turn ([`attachment`]), so that no front-end keeps another from attaching.

mod attachment;
mod device;
mod offer;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Fabric, IdlePolicy, LaneSpec, NicSpec};
use nic::{NicConfig, PortId};
use rustix::event::{Timespec, epoll};

use crate::config::{Config, Function, Nic};
use attachment::Attachment;

/// The counter file's name in the run directory.
pub const COUNTERS: &str = "counters";

/// How often faults are looked for, to be logged.
const LOOK: Duration = Duration::from_millis(500);

/// How long after its start the daemon waits for guests to come back before it lets any send.
const SETTLE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile whether all are there.
const SETTLE_LOOK: Duration = Duration::from_millis(2);

/// Runs until SIGINT or SIGTERM. `ready` is called once all sockets are served.
///
/// # Errors
/// What keeps the daemon from starting: each says what is wrong, where, and the remedy.
pub fn run(config: &Config, ready: impl FnOnce()) -> Result<()> {
    let daemon = Daemon::start(config)?;
    ready();
    daemon.serve()
}

struct Daemon {
    epoll: OwnedFd,
    signals: OwnedFd,
    attachments: Vec<Attachment>,
    /// Dropped last: the lanes run while attachments detach.
    fabric: Fabric,
    counters: PathBuf,
}

/// Epoll's data for the signal pipe; attachments have their index.
const SIGNAL: u64 = u64::MAX;

impl Daemon {
    fn start(config: &Config) -> Result<Daemon> {
        let run_dir = &config.run_dir;
        std::fs::create_dir_all(run_dir).with_context(|| {
            let shown = run_dir.display();
            format!("cannot create run_dir {shown}; choose another one, or create it for this user")
        })?;
        let counters = run_dir.join(COUNTERS);
        let specs = config.nics.iter().map(nic_spec).collect::<Result<Vec<_>>>()?;
        let fabric = Fabric::start(specs, &lane_specs(config), Some(&counters))?;
        fabric.hold(true);

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = signal_pipe()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&epoll, &signals, epoll::EventData::new_u64(SIGNAL), input)?;
        let mut attachments = Vec::new();
        for nic in &config.nics {
            let soft = fabric.nic(&nic.name).expect("it was just made");
            for (id, _, attachment, function) in functions(nic) {
                let port = soft.port(id).expect("it was just made").clone();
                let device = device::GuestDevice::new(soft.clone(), port, attachment, function);
                attachments.push(Attachment::open(attachment, device)?);
            }
        }
        for (i, attachment) in attachments.iter_mut().enumerate() {
            attachment.watch(epoll.as_fd(), i as u64)?;
        }
        Ok(Daemon { epoll, signals, attachments, fabric, counters })
    }

    fn serve(mut self) -> Result<()> {
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
                if token == SIGNAL {
                    return self.stop();
                }
                if let Some(attachment) = self.attachments.get_mut(token as usize) {
                    attachment.serve(self.epoll.as_fd());
                }
            }
            let now = Instant::now();
            for attachment in &mut self.attachments {
                attachment.connect_if_due(self.epoll.as_fd(), now);
            }
            log.look(&self.fabric, now);
        }
    }

    fn stop(mut self) -> Result<()> {
        tracing::info!("stopping");
        let _ = rustix::io::read(&self.signals, &mut [0; 16]);
        self.attachments.clear(); // detaches every guest, and removes the sockets
        drop(self.fabric);
        let _ = std::fs::remove_file(&self.counters); // a leftover would do no harm
        Ok(())
    }
}

/// Every function of a NIC that has a port: its place, name, socket and settings.
fn functions(
    nic: &Nic,
) -> impl Iterator<Item = (PortId, String, &crate::config::Attachment, Option<&Function>)> {
    let uplink = nic.uplink.iter();
    let uplink = uplink.map(|uplink| (PortId::UPLINK, "uplink".into(), &uplink.attachment, None));
    let pf = nic.pf.iter().map(|pf| (PortId::PF, "pf".into(), &pf.attachment, Some(pf)));
    let vfs = nic.vfs.iter().map(|vf| {
        let (index, function) = (vf.index as u8, &vf.function);
        (PortId::vf(index), format!("vf{index}"), &function.attachment, Some(function))
    });
    uplink.chain(pf).chain(vfs)
}

fn nic_spec(nic: &Nic) -> Result<NicSpec> {
    let function = |function: &Function| nic::Function {
        mac: function.mac,
        extra_macs: function.macs.clone(),
        vlan: function.vlan,
        spoof_check: function.spoof_check,
    };
    let mut vfs = vec![None; usize::from(nic.total_vfs)];
    for vf in &nic.vfs {
        vfs[usize::from(vf.index)] = Some(function(&vf.function));
    }
    let config = NicConfig { pf: nic.pf.as_ref().map(function), vfs };
    let table = nic::Table::build(&config).with_context(|| format!("nic {}", nic.name))?;
    let port = |(id, name, attachment, _): (_, _, &crate::config::Attachment, _)| {
        (id, name, usize::from(attachment.queue_pairs))
    };
    Ok(NicSpec { name: nic.name.clone(), table, ports: functions(nic).map(port).collect() })
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

/// A descriptor that is readable once SIGINT or SIGTERM came.
fn signal_pipe() -> Result<OwnedFd> {
    let (ours, handlers) = std::os::unix::net::UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, handlers.try_clone()?)?;
    }
    Ok(ours.into())
}

/// Says which rings guests broke: once for each new fault, and a limited number of lines, for a
/// guest can break its ring as often as it likes.
#[derive(Default)]
struct FaultLog {
    next: Option<Instant>,
    said: std::collections::HashMap<(String, &'static str, virtq::Fault), u64>,
}

impl FaultLog {
    const LINES_MAX: usize = 10;

    fn look(&mut self, fabric: &Fabric, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK);
        let ports = fabric.nics().iter().flat_map(|nic| nic.ports());
        let mut lines = 0;
        for port in ports {
            for (ring, fault, count) in port.faults() {
                let said = self.said.entry((port.label.clone(), ring, fault)).or_default();
                if *said == count || lines == Self::LINES_MAX {
                    continue;
                }
                let label = &port.label;
                tracing::warn!("{label}: {ring} ring stopped: {fault} ({count} times so far)");
                *said = count;
                lines += 1;
            }
        }
    }
}

/// Where the counters of a daemon with this run directory are.
pub fn counters_path(run_dir: &Path) -> PathBuf {
    run_dir.join(COUNTERS)
}

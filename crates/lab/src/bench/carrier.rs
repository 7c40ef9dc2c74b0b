//! Carriers of frames between the kernels of two guests.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use host::CpuTime;
use host::links::Links;
use model::state::PathInForce;
use report::{PathKind, Pattern};
use traffic::Task;
use traffic::netns;
use traffic::protocol::relay::RelaySpec;

use super::{AdapterPlan, BenchAttachment, GuestProcess, SwitchedBench, SwitchedPlan, mac_text};

/// Both attached ends, and their path.
#[derive(Clone, Copy, Debug)]
pub struct CarrierSpec {
    /// Path.
    pub path: PathKind,
    /// North/south (far end outside) or east/west (another guest).
    pub pattern: Pattern,
    /// CPU of the carrier, if pinned.
    pub cpu: Option<usize>,
    /// Process id of the guest.
    pub guest: u32,
    /// Process id of the far end.
    pub far: u32,
}

/// A carrier. Dropping it detaches the guests.
#[derive(Debug)]
pub enum Carrier {
    /// Both ends are in one kernel.
    Loopback,
    /// A bridge of the kernel, and a relay for each guest.
    Bridge(Vec<GuestProcess>, Option<Wire>),
    /// The daemon, whose adapters and uplink are taps.
    Daemon(Box<SwitchedBench>),
}

impl Carrier {
    /// Attaches both ends, which have an `eth0` then.
    ///
    /// # Errors
    /// This path needs something that is missing or not permitted.
    pub fn start(program: &Path, between: &CarrierSpec) -> Result<Carrier> {
        match between.path {
            PathKind::Virtio => Carrier::bridge(program, between),
            PathKind::Vhost => Carrier::daemon(program, between, PathInForce::Synthetic),
            PathKind::Vf => Carrier::daemon(program, between, PathInForce::Vf),
        }
    }

    fn bridge(program: &Path, between: &CarrierSpec) -> Result<Carrier> {
        let CarrierSpec { pattern, cpu, guest, far, .. } = *between;
        let bridge = netns::bridge()?;
        let relay = |name: &str, guest| {
            let (name, bridge) = (name.to_owned(), bridge.to_owned());
            let spec = RelaySpec { cpu, guest, name, bridge };
            GuestProcess::start_task(program, &Task::Relay(spec))
        };
        let mut relays = vec![relay("guest0", guest)?];
        let wire = match pattern {
            Pattern::NorthSouth => Some(Wire::lay(bridge, far)?),
            Pattern::EastWest => {
                relays.push(relay("guest1", far)?);
                None
            }
        };
        Ok(Carrier::Bridge(relays, wire))
    }

    fn daemon(program: &Path, between: &CarrierSpec, path: PathInForce) -> Result<Carrier> {
        let CarrierSpec { pattern, cpu, guest, far, .. } = *between;
        let adapter = |number, of| AdapterPlan {
            attached: BenchAttachment::Tap { of },
            mac: mac_text(number, 0),
            path,
        };
        let mut adapters = vec![adapter(0, guest)];
        let uplink = match pattern {
            Pattern::NorthSouth => Some(BenchAttachment::Tap { of: far }),
            Pattern::EastWest => {
                adapters.push(adapter(1, far));
                None
            }
        };
        let plan = SwitchedPlan { cpu, uplink, adapters };
        Ok(Carrier::Daemon(Box::new(SwitchedBench::start(program, &plan)?)))
    }

    /// CPU time used.
    ///
    /// # Errors
    /// The carrier has ended.
    pub fn cpu(&self) -> Result<CpuTime> {
        let relays = match self {
            Carrier::Loopback => return Ok(CpuTime::default()),
            Carrier::Daemon(switched) => return switched.bench.cpu(),
            Carrier::Bridge(relays, _) => relays,
        };
        let mut sum = CpuTime::default();
        for relay in relays {
            let time = relay.cpu()?;
            sum.user_s += time.user_s;
            sum.system_s += time.system_s;
        }
        Ok(sum)
    }

    /// Busy and idle cycles of its lanes; `None` without lanes.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn cycles(&self) -> Result<Option<(u64, u64)>> {
        let Carrier::Daemon(switched) = self else { return Ok(None) };
        let lanes = switched.bench.stats()?.lanes;
        let sum = |name: &str| lanes.iter().filter_map(|lane| lane.values.get(name)).sum();
        Ok(Some((sum("busy_cycles"), sum("idle_cycles"))))
    }

    /// Fails if the carrier has ended unexpectedly.
    ///
    /// # Errors
    /// It has.
    pub fn check_alive(&mut self) -> Result<()> {
        match self {
            Carrier::Daemon(switched) => switched.bench.check_alive(),
            Carrier::Loopback | Carrier::Bridge(..) => self.cpu().map(drop),
        }
    }
}

/// A veth pair from the bridge to the outside: models a NIC and its wire.
///
/// Removed on drop: the kernel removes a namespace some time after its last process. Until then its
/// end would still use the addresses of the next outside.
#[derive(Debug)]
pub struct Wire(String);

impl Wire {
    fn lay(bridge: &str, outside: u32) -> Result<Wire> {
        static WIRES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("wire{}", WIRES.fetch_add(1, Ordering::Relaxed));
        let mut links = Links::open()?;
        links.add_pair(&name, "eth0", outside)?;
        let wire = Wire(name);
        links.join(&wire.0, bridge)?;
        Ok(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Already removed if the namespace at its other end was.
        let _ = Links::open().and_then(|mut links| links.remove(&self.0));
    }
}

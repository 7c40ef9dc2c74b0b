//! What carries frames between the kernels of two guests.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use host::CpuTime;

use super::{GuestProcess, arena};
use crate::bench::link::Links;
use crate::guest::Task;
use crate::guest::relay::RelaySpec;
use crate::report::{PathKind, Pattern};

/// Both ends, which are attached, and how.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The path.
    pub path: PathKind,
    /// Whether the far end is outside (north/south) or another guest (east/west).
    pub pattern: Pattern,
    /// The CPU of what carries, if it is pinned.
    pub cpu: Option<usize>,
    /// The guest's process.
    pub guest: u32,
    /// The far end's.
    pub far: u32,
}

/// A carrier. It goes when it is dropped, and so does what the guests are attached by.
#[derive(Debug)]
pub enum Carrier {
    /// Nothing: both ends are one kernel's.
    Loopback,
    /// A bridge of the kernel, and a relay for each guest, which carries its frames to it.
    Bridge(Vec<GuestProcess>),
}

impl Carrier {
    /// Attaches both ends, which have an `eth0` then.
    ///
    /// # Errors
    /// What is needed for this path is not there, or not allowed.
    pub fn start(program: &Path, between: &Between) -> Result<Carrier> {
        let Between { pattern, cpu, guest, far, .. } = *between;
        let bridge = arena::bridge()?;
        let relay = |name: &str, guest| {
            let (name, bridge) = (name.to_owned(), bridge.to_owned());
            let spec = RelaySpec { cpu, guest, name, bridge };
            GuestProcess::start_task(program, &Task::Relay(spec))
        };
        let mut relays = vec![relay("guest0", guest)?];
        match pattern {
            Pattern::EastWest => relays.push(relay("guest1", far)?),
            // The wire: the host's port is the bridge's, and the other end is outside.
            Pattern::NorthSouth => {
                // That of the measurement before goes some time after the namespace that held its end.
                static WIRES: AtomicUsize = AtomicUsize::new(0);
                let wire = format!("wire{}", WIRES.fetch_add(1, Ordering::Relaxed));
                let mut links = Links::open()?;
                links.add_pair(&wire, "eth0", far)?;
                links.join(&wire, bridge)?;
            }
        }
        Ok(Carrier::Bridge(relays))
    }

    /// What CPU time it has used.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu(&self) -> Result<CpuTime> {
        let Carrier::Bridge(relays) = self else { return Ok(CpuTime::default()) };
        let mut sum = CpuTime::default();
        for relay in relays {
            let time = relay.cpu()?;
            sum.user_s += time.user_s;
            sum.system_s += time.system_s;
        }
        Ok(sum)
    }

    /// Cycles in which its lanes moved frames, and in which they did not; `None` without lanes.
    ///
    /// # Errors
    /// Its counters cannot be read.
    pub fn cycles(&self) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Fails if it has ended by itself.
    ///
    /// # Errors
    /// It has.
    pub fn check_alive(&mut self) -> Result<()> {
        self.cpu().map(drop)
    }
}

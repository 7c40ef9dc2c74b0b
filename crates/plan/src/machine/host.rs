//! What of a host limits frames: its CPUs, what its switch costs, its memory.

use serde::{Deserialize, Serialize};

use super::{Fault, Figure, possible};
use crate::units::Hertz;

/// A host with its switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name, as commands take it.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Threads that the switch polls with, each on a core of its own.
    pub switch_cores: Figure,
    /// Cores that all guests together have; each guest has those that the workload says, of these.
    pub guest_cores: Figure,
    /// Clock of all cores, in GHz.
    pub ghz: Figure,
    /// How the switch's threads share the work.
    pub polling: Polling,
    /// What the path over the switch costs a frame, in cycles of the switch.
    pub switch: Costs,
    /// What the software NIC costs, if path `vf` is a software NIC's here; none where a card does
    /// it.
    #[serde(default)]
    pub soft_nic: Option<Costs>,
    /// What the kernel's tap and bridge cost (path `virtio`).
    pub kernel: Costs,
    /// A guest's cycles for a frame that it takes in and sends on.
    pub guest_cycles: Figure,
    /// The same for each byte.
    pub guest_cycles_per_byte: Figure,
    /// Cycles of guests' cores for each frame by the wire, where its far end runs on those cores,
    /// as the lab's generator does.
    #[serde(default)]
    pub generator_cycles: Option<Figure>,
    /// Gbit/s that the memory can be read and written with, both counted.
    pub memory_gbps: Figure,
    /// Gbit/s of the wire that one thread which polls the wire's port can take, preamble and gap
    /// counted.
    pub wire_queue_gbps: Figure,
}

/// How the switch's threads share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Polling {
    /// A port belongs to one thread, which carries what comes from it all the way.
    Port,
    /// All threads share all ports.
    Shared,
}

/// What a way through a switch costs a frame, in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// To take it from the wire or to give it there.
    pub wire: Figure,
    /// To take it from a guest's ring, and to decide where it goes.
    pub from_guest: Figure,
    /// To give it to a guest's ring.
    pub to_guest: Figure,
    /// To copy a byte once.
    pub byte: Figure,
    /// Copies of a frame that goes from guest to guest. Between wire and guest there is one.
    pub copies: u8,
    /// To begin with another receiver within a burst.
    pub receiver: Figure,
    /// To look up a destination that is not that of the frame before, where that makes a
    /// difference.
    #[serde(default)]
    pub lookup: Option<Figure>,
    /// Frames of a burst.
    pub burst: u16,
}

impl Costs {
    fn figures(&self) -> impl Iterator<Item = (&'static str, &Figure)> {
        let all = [
            ("wire", &self.wire),
            ("from_guest", &self.from_guest),
            ("to_guest", &self.to_guest),
            ("byte", &self.byte),
            ("receiver", &self.receiver),
        ];
        all.into_iter().chain(self.lookup.iter().map(|figure| ("lookup", figure)))
    }
}

impl Host {
    /// The clock of all cores.
    pub fn clock(&self) -> Hertz {
        Hertz::ghz(self.ghz.value)
    }

    /// Its figures with their names.
    pub fn figures(&self) -> Vec<(&'static str, &Figure)> {
        let own = [
            ("switch_cores", &self.switch_cores),
            ("guest_cores", &self.guest_cores),
            ("ghz", &self.ghz),
            ("guest_cycles", &self.guest_cycles),
            ("guest_cycles_per_byte", &self.guest_cycles_per_byte),
            ("memory_gbps", &self.memory_gbps),
            ("wire_queue_gbps", &self.wire_queue_gbps),
        ];
        let ways = [Some(&self.switch), self.soft_nic.as_ref(), Some(&self.kernel)];
        let generator = self.generator_cycles.iter().map(|figure| ("generator_cycles", figure));
        own.into_iter()
            .chain(generator)
            .chain(ways.into_iter().flatten().flat_map(Costs::figures))
            .collect()
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        for costs in
            [Some(&self.switch), self.soft_nic.as_ref(), Some(&self.kernel)].into_iter().flatten()
        {
            if !(1..=4).contains(&costs.copies) {
                let (field, value) = ("copies".to_owned(), costs.copies.to_string());
                return Err(Fault { field, value, allowed: "1 to 4" });
            }
            if !(1..=1024).contains(&costs.burst) {
                let (field, value) = ("burst".to_owned(), costs.burst.to_string());
                return Err(Fault { field, value, allowed: "1 to 1024" });
            }
        }
        possible(self.figures())
    }
}

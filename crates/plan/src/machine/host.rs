//! Host figures of the model: CPUs, switch costs, memory.

use model::state::{Problem, Problems};
use serde::{Deserialize, Serialize};

use super::{Figure, check_figures};
use crate::units::Hertz;

/// Host with its switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name in commands.
    pub name: String,
    /// Description.
    pub title: String,
    /// Polling threads of the switch, each on its own core.
    pub switch_cores: Figure,
    /// Cores for all guests together.
    pub guest_cores: Figure,
    /// Clock of all cores, in GHz.
    pub ghz: Figure,
    /// Division of work among the switch's threads.
    pub polling: Polling,
    /// Costs of the path through the switch, in switch cycles.
    pub switch: Costs,
    /// Costs of the software NIC, if path `vf` is one; `None` with a card.
    #[serde(default)]
    pub soft_nic: Option<Costs>,
    /// Costs of the kernel's tap and bridge (path `kernel`).
    pub kernel: Costs,
    /// Guest cycles to receive and send on a frame.
    pub guest_cycles: Figure,
    /// Additional guest cycles for each byte.
    pub guest_cycles_per_byte: Figure,
    /// Cycles on guests' cores for each frame on the wire, if the far end of the wire runs there,
    /// like the lab's generator.
    #[serde(default)]
    pub generator_cycles: Option<Figure>,
    /// Memory bandwidth in Gbit/s, reads and writes together.
    pub memory_gbps: Figure,
    /// Gbit/s from the wire that one thread polling the wire's port can take, preamble and gap
    /// included.
    pub wire_queue_gbps: Figure,
}

/// Division of work among the switch's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Polling {
    /// Each port belongs to one thread, which forwards all frames from it.
    Port,
    /// All threads share all ports.
    Shared,
}

/// Costs of a software path, in cycles for each frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Receive from the wire, or send to it.
    pub wire: Figure,
    /// Take from a guest's ring, and classify.
    pub from_guest: Figure,
    /// Write to a guest's ring.
    pub to_guest: Figure,
    /// Copy one byte once.
    pub byte: Figure,
    /// Copies of a frame between guests. Between wire and guest there is one.
    pub copies: u8,
    /// Start of another receiver within a burst.
    pub receiver: Figure,
    /// Lookup of a destination that differs from the frame before, if that has a cost.
    #[serde(default)]
    pub lookup: Option<Figure>,
    /// Frames in a burst.
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
    /// Clock of all cores.
    pub fn clock(&self) -> Hertz {
        Hertz::ghz(self.ghz.value)
    }

    /// All figures with their names.
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

    pub(super) fn check(&self) -> Result<(), Problems> {
        for costs in
            [Some(&self.switch), self.soft_nic.as_ref(), Some(&self.kernel)].into_iter().flatten()
        {
            if !(1..=4).contains(&costs.copies) {
                return Err(Problem::out_of_range("copies", costs.copies, 1, 4).into());
            }
            if !(1..=1024).contains(&costs.burst) {
                return Err(Problem::out_of_range("burst", costs.burst, 1, 1024).into());
            }
        }
        check_figures(self.figures())
    }
}

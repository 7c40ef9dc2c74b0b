//! What an operator, or a guest, can ask of a NIC.

use wire::Mac;

use crate::{Filter, Function, LinkState, Mirror, Mode, PortId, PortVlan, Vids};

/// Who holds a VF: a name that its holder chose, such as a container's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub String);

impl std::fmt::Display for Owner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// A change to a NIC. It is applied whole, or refused whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// How many VFs there are. From one number to another it goes through 0.
    NumVfs(u16),
    /// The bridge's mode.
    Mode(Mode),
    /// The uplink got or lost its link. That is an event, and never refused.
    Uplink {
        /// Whether it has one.
        up: bool,
    },
    /// A switch comes to hang on the PF, in place of the PF's settings, with the addresses behind it;
    /// or those change. `None` takes it away, and the PF is as it was made.
    Switch(Option<Vec<Filter>>),
    /// All receive queues, in place of those before.
    Queues(Vec<Option<Function>>),
    /// The operator sets something of a function.
    Set(PortId, Setting),
    /// A guest asks for something of its function.
    Ask(PortId, Wish),
    /// Somebody takes a VF, by its number; once more by the same owner changes nothing.
    Claim(u8, Owner),
    /// An owner gives a VF back: it is reset to defaults. Of one who is not the owner any more it
    /// is refused, so that a late release never resets a VF that has a new owner.
    Release(u8, Owner),
    /// Several, one after the other; all or none.
    All(Vec<Change>),
}

/// A setting of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The administrative MAC; zero gives back the one that the function was made with.
    Mac(Mac),
    /// Further MACs.
    ExtraMacs(Vec<Mac>),
    /// The access or native VLAN.
    Vlan(Option<PortVlan>),
    /// The VLANs that the guest may tag itself.
    Trunk(Vids),
    /// Whether sources are checked.
    SpoofCheck(bool),
    /// Whether the guest is trusted. When trust ends, so does what the guest got by it.
    Trust(bool),
    /// The link.
    Link(LinkState),
    /// Rates in Mbit/s, 0 for none; `None` leaves one as it is.
    TxRate {
        /// What it is assured of.
        min: Option<u32>,
        /// What it may not exceed.
        max: Option<u32>,
    },
    /// The weight for what is left, 1 to 100.
    Weight(u8),
    /// Broadcasts and multicasts, in frames a second; 0 for no limit.
    StormLimit(u32),
    /// The mirror.
    Mirror(Option<Mirror>),
    /// Everything back to defaults.
    Defaults,
}

/// What a guest can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// MACs of its own beside the administrative one; takes trust.
    Macs(Vec<Mac>),
    /// To receive what is for nobody known; takes trust.
    Promiscuous(bool),
    /// To receive all groups; takes trust.
    AllMulticast(bool),
    /// The groups that it joins; `None` for all, of a guest that cannot say.
    Groups(Option<Vec<Mac>>),
}

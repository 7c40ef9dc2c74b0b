//! What is tested: a NIC with its manager, the guests that use it, and the wire behind it.
//!
//! Tests know a NIC only by [`Subject`]. Whatever can be asked for in the words of the state
//! document, see what is in force, and carry frames to and from guests can be a subject: the soft
//! NIC is one ([`soft`](super::soft)); a card would be one with guests on its VFs and a second port
//! as the wire. What a subject cannot do it says by [`Subject::lacks`], and the tests that need it
//! are then not applicable, with the reason.

use anyhow::Result;
use api::InForce;
use api::stats::PortStats;
use serde_json::Value;
use wire::Mac;

/// The wire: the station at the far end of the NIC's uplink.
pub const WIRE: &str = "uplink";

/// What not every NIC, or not every test bed, can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// NICs of other sizes can be created.
    Create,
    /// It can refuse what cards of other makers refuse.
    Profiles,
    /// Its manager can be ended and started again.
    Restart,
    /// Guests can be there before the manager is.
    GuestFirst,
    /// The link of its uplink can be taken away.
    UplinkLink,
    /// A switch can hang on its PF.
    Switch,
    /// It has receive queues for adapters without a VF.
    Queues,
    /// VFs can be trunks of several VLANs.
    Trunk,
    /// VFs can be access ports of 802.1ad VLANs.
    ServiceTag,
    /// A minimum transmit rate can be set.
    MinRate,
    /// VFs can have further addresses.
    FurtherMacs,
    /// Adapters can follow their traffic from path to path.
    FollowTraffic,
    /// It has a switchdev mode, with representors.
    Switchdev,
    /// VFs are PCI functions in IOMMU groups.
    IommuGroups,
    /// Guests can be migrated.
    Migration,
    /// It is no hardware.
    Virtual,
}

/// The NIC that a test begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// How many VFs it can have; a NIC that cannot be created has at least as many.
    pub total_vfs: u16,
    /// How many are enabled.
    pub num_vfs: u16,
    /// The card whose refusals it shows.
    pub profile: &'static str,
    /// Whether a switch hangs on its PF, and whether that was created for IOV.
    pub switch: Option<bool>,
    /// How many receive queues it has for adapters without a VF.
    pub queues: u16,
    /// Whether it has an uplink, with the station [`WIRE`] at its far end.
    pub uplink: bool,
}

impl Setup {
    /// A NIC of so many VFs, all enabled, with the wire and without a switch.
    pub fn vfs(count: u16) -> Setup {
        Setup {
            total_vfs: count,
            num_vfs: count,
            profile: "ideal",
            switch: None,
            queues: 0,
            uplink: true,
        }
    }

    /// The same with an IOV switch, and two receive queues.
    pub fn with_switch(count: u16) -> Setup {
        Setup { switch: Some(true), queues: 2, ..Setup::vfs(count) }
    }
}

/// Where a new adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// On this VF.
    Vf(u16),
    /// On the NIC, with whichever VF is free.
    Pool,
    /// On the switch.
    Switch,
}

/// A request to the manager. Settings are merge patches in the words of the state document, where
/// null is the default.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Enables so many VFs.
    NumVfs(u16),
    /// Sets what the operator says of a VF.
    Vf {
        /// The VF.
        index: u16,
        /// The settings.
        settings: Value,
    },
    /// Gives a VF's settings up, as the owner with that token if one is given.
    ReleaseVf {
        /// The VF.
        index: u16,
        /// The token.
        owner: Option<u64>,
    },
    /// Adds an adapter for a guest.
    Add {
        /// Its name.
        name: String,
        /// Where it is.
        home: Home,
        /// Its settings; `mac` must be among them.
        settings: Value,
        /// Whether its guest waits for the manager, and not the manager for the guest.
        guest_first: bool,
    },
    /// Changes an adapter's settings.
    Adapter {
        /// Its name.
        name: String,
        /// The settings.
        settings: Value,
    },
    /// Removes an adapter, as the owner of its VF with that token if one is given.
    Remove {
        /// Its name.
        name: String,
        /// The token.
        owner: Option<u64>,
    },
    /// Has each function a representor on the host, which is a station of that name (`p0`,
    /// `pf0vf2`), or the NIC its own bridge again.
    Switchdev(bool),
    /// Applies the state that is in force once more.
    Again,
}

/// Why a manager did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The field it is about, if any.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What is wrong.
    pub error: String,
    /// What is allowed.
    pub allowed: String,
}

impl Refusal {
    /// The refusal in one line.
    pub fn text(&self) -> String {
        let Refusal { field, value, error, allowed } = self;
        let colon = if field.is_empty() { "" } else { ": " };
        let space = if value.is_empty() { "" } else { " " };
        let then = if allowed.is_empty() { "" } else { "; " };
        format!("{field}{colon}{value}{space}{error}{then}{allowed}")
    }
}

/// How a manager ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it does when it is asked to.
    Asked,
    /// By kill -9.
    Killed,
}

/// How a guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Its driver stops first.
    Orderly,
    /// Its process is gone.
    Killed,
}

/// What a guest reads of its adapter before it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestView {
    /// The address that it is to use.
    pub mac: Mac,
    /// Whether it has a link.
    pub link_up: bool,
}

/// A NIC under test. An error is one of the test bed; what the NIC answers is a value.
pub trait Subject {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Why it cannot do that; nothing if it can.
    fn lacks(&self, what: Capability) -> Option<String>;

    /// Ends whatever was before, and begins anew with this NIC, without adapters or settings of
    /// VFs.
    ///
    /// # Errors
    /// There is no such NIC.
    fn begin(&mut self, setup: &Setup) -> Result<()>;

    /// Asks the manager for a change.
    ///
    /// # Errors
    /// It did not answer, or failed over it.
    fn change(&mut self, change: &Change) -> Result<Result<(), Refusal>>;

    /// The state document, with every setting that was asked for.
    ///
    /// # Errors
    /// The manager did not answer.
    fn document(&mut self) -> Result<Value>;

    /// What is in force, and who owns which VF, by `NIC/vfN`.
    ///
    /// # Errors
    /// The manager did not answer.
    fn in_force(&mut self) -> Result<InForce>;

    /// The name of the NIC in [`in_force`](Self::in_force) and [`document`](Self::document).
    fn nic(&self) -> String;

    /// The counters of every adapter and of the wire, by their names, as the host reads them.
    ///
    /// # Errors
    /// They cannot be read.
    fn counters(&mut self) -> Result<Vec<(String, PortStats)>>;

    /// Ends the manager.
    ///
    /// # Errors
    /// It does not end.
    fn end_manager(&mut self, how: End) -> Result<()>;

    /// Starts it again, and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    fn start_manager(&mut self) -> Result<()>;

    /// Attaches a guest to its adapter, or the wire. One that has been attached before comes back
    /// as it was: with its memory, and the frames that it posted.
    ///
    /// # Errors
    /// It cannot attach.
    fn attach(&mut self, station: &str) -> Result<()>;

    /// Ends a guest.
    ///
    /// # Errors
    /// There is none.
    fn leave(&mut self, station: &str, how: Leave) -> Result<()>;

    /// Whether a guest's attachment has held since [`attach`](Self::attach).
    fn is_attached(&mut self, station: &str) -> bool;

    /// What a guest reads of its adapter.
    ///
    /// # Errors
    /// It is not attached.
    fn view(&mut self, station: &str) -> Result<GuestView>;

    /// Has a guest, or the wire, send frames; a guest that is not attached posts them for later.
    ///
    /// # Errors
    /// There is no such guest, or it cannot hold as many.
    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()>;

    /// Waits until the NIC has done with every frame that was sent: each has arrived, or never
    /// will.
    ///
    /// # Errors
    /// It does not within seconds.
    fn settle(&mut self) -> Result<()>;

    /// The frames that have arrived since this was last called, as (station, frames).
    ///
    /// # Errors
    /// What arrived is damaged.
    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>>;

    /// The devices of the machine that the NIC and its manager use, as paths.
    ///
    /// # Errors
    /// That cannot be told.
    fn devices(&mut self) -> Result<Vec<String>>;
}

//! Subject of the tests: a NIC with its manager, its guests, and the wire behind it.
//!
//! Tests know a NIC only by [`Subject`]. A subject accepts requests in the fields of the state
//! document, reports the state in force, and carries frames to and from guests. The soft NIC is one
//! ([`soft`](super::soft)), a card of the machine another ([`card`](super::card)).
//! [`Subject::lacks`] reports a missing capability, and the tests that need it are not applicable.

use anyhow::Result;
use api::InForce;
use api::stats::PortStats;
use serde_json::Value;
use wire::Mac;

/// Station at the far end of the NIC's uplink.
pub const WIRE: &str = "uplink";

/// Capability that a NIC or test bed may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Creation of NICs of other sizes.
    Create,
    /// Adapters of the manager on VFs, with their paths and reasons.
    Adapters,
    /// A station at the far end of the uplink.
    Wire,
    /// A NIC without an uplink.
    NoUplink,
    /// Card profiles: rejecting what other makers' cards reject.
    Profiles,
    /// Stop and restart of the manager.
    Restart,
    /// Guests that start before the manager.
    GuestFirst,
    /// Loss of the uplink's link.
    UplinkLink,
    /// A switch on the PF.
    Switch,
    /// Receive queues for adapters without a VF.
    Queues,
    /// VFs as trunks of several VLANs.
    Trunk,
    /// VFs as access ports of 802.1ad VLANs.
    ServiceTag,
    /// Minimum transmit rate.
    MinRate,
    /// Additional addresses of a VF.
    FurtherMacs,
    /// Adapters that change paths by their traffic.
    FollowTraffic,
    /// Switchdev mode with representors.
    Switchdev,
    /// VFs as PCI functions in IOMMU groups.
    IommuGroups,
    /// Migration of guests.
    Migration,
    /// No hardware.
    Virtual,
}

/// NIC at the start of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicSetup {
    /// Maximum number of VFs; a NIC that cannot be created has at least as many.
    pub total_vfs: u16,
    /// Number of enabled VFs.
    pub num_vfs: u16,
    /// Card profile.
    pub profile: &'static str,
    /// Switch on the PF, if any, and its IOV setting.
    pub switch: Option<bool>,
    /// Number of receive queues for adapters without a VF.
    pub queues: u16,
    /// The NIC has an uplink, with the station [`WIRE`] at its far end.
    pub uplink: bool,
}

impl NicSetup {
    /// A NIC of `count` VFs, all enabled, with the wire and without a switch.
    pub fn vfs(count: u16) -> NicSetup {
        NicSetup {
            total_vfs: count,
            num_vfs: count,
            profile: "ideal",
            switch: None,
            queues: 0,
            uplink: true,
        }
    }

    /// The same with an IOV switch, and two receive queues.
    pub fn with_switch(count: u16) -> NicSetup {
        NicSetup { switch: Some(true), queues: 2, ..NicSetup::vfs(count) }
    }
}

/// Location of a new adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterLocation {
    /// On this VF.
    Vf(u16),
    /// On the NIC, with any free VF.
    Pool,
    /// On the switch.
    Switch,
}

/// A request to the manager. Settings are merge patches of the state document; null resets to the
/// default.
#[derive(Debug, Clone, PartialEq)]
pub enum ManagerRequest {
    /// Sets the number of enabled VFs.
    NumVfs(u16),
    /// Changes the operator's settings of a VF.
    Vf {
        /// The VF.
        index: u16,
        /// The settings.
        settings: Value,
    },
    /// Releases a VF's settings, with the owner's token if given.
    ReleaseVf {
        /// The VF.
        index: u16,
        /// The token.
        owner: Option<u64>,
    },
    /// Adds an adapter for a guest.
    Add {
        /// Name of the adapter.
        name: String,
        /// Location.
        location: AdapterLocation,
        /// Settings; `mac` is required.
        settings: Value,
        /// The guest waits for the manager, not the manager for the guest.
        guest_first: bool,
    },
    /// Changes an adapter's settings.
    Adapter {
        /// Name of the adapter.
        name: String,
        /// The settings.
        settings: Value,
    },
    /// Removes an adapter, with the token of its VF's owner if given.
    Remove {
        /// Name of the adapter.
        name: String,
        /// The token.
        owner: Option<u64>,
    },
    /// Enters or leaves switchdev mode. In it, each function has a representor on the host, a
    /// station of that name (`p0`, `pf0vf2`).
    Switchdev(bool),
    /// Applies the current state once more.
    Reapply,
}

/// Error of a request that the manager rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The object, such as `VF 1 of NIC nic0`, or empty.
    pub object: String,
    /// Its rejected field, or empty.
    pub field: String,
    /// Its value.
    pub value: String,
    /// Error.
    pub error: String,
    /// Allowed values.
    pub allowed: String,
}

impl Rejection {
    /// The error in one line.
    pub fn text(&self) -> String {
        let Rejection { object, field, value, error, allowed } = self;
        let of = if object.is_empty() || field.is_empty() { "" } else { ", " };
        let colon = if object.is_empty() && field.is_empty() { "" } else { ": " };
        let space = if value.is_empty() { "" } else { " " };
        let then = if allowed.is_empty() { "" } else { "; " };
        format!("{object}{of}{field}{colon}{value}{space}{error}{then}{allowed}")
    }
}

/// Stop mode of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagerStop {
    /// Regular shutdown.
    Graceful,
    /// SIGKILL.
    Killed,
}

/// Stop mode of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestStop {
    /// The driver stops first.
    Orderly,
    /// The process is killed.
    Killed,
}

/// Configuration that a guest reads of its adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestConfig {
    /// Address of the adapter.
    pub mac: Mac,
    /// Link state.
    pub link_up: bool,
}

/// A NIC under test. Errors are those of the test bed; the NIC's answers are values.
pub trait Subject {
    /// Name for messages.
    fn name(&self) -> String;

    /// Reason why a capability is missing; `None` if it is there.
    fn lacks(&self, what: Capability) -> Option<String>;

    /// Reason why a rejected setting is one that the NIC does not have; `None` if it must have it.
    fn has_no_such_setting(&self, _: &Rejection) -> Option<String> {
        None
    }

    /// Statement about a setting that is reported in force although frames do not show it; `None`
    /// if the NIC must enforce it, or does not report it.
    ///
    /// # Errors
    /// No answer.
    fn not_enforced(&mut self, _setting: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// Ends the previous test and creates this NIC, without adapters or VF settings.
    ///
    /// # Errors
    /// The NIC cannot be created.
    fn begin(&mut self, setup: &NicSetup) -> Result<()>;

    /// Requests a change from the manager.
    ///
    /// # Errors
    /// No answer, or an internal error.
    fn change(&mut self, change: &ManagerRequest) -> Result<Result<(), Rejection>>;

    /// State document with every requested setting.
    ///
    /// # Errors
    /// No answer.
    fn document(&mut self) -> Result<Value>;

    /// State in force, and VF owners by `NIC/vfN`.
    ///
    /// # Errors
    /// No answer.
    fn in_force(&mut self) -> Result<InForce>;

    /// Name of the NIC in [`in_force`](Self::in_force) and [`document`](Self::document).
    fn nic(&self) -> String;

    /// Counters of every adapter and of the wire, by name, as the host reads them.
    ///
    /// # Errors
    /// The counters cannot be read.
    fn counters(&mut self) -> Result<Vec<(String, PortStats)>>;

    /// Stops the manager.
    ///
    /// # Errors
    /// The manager does not stop.
    fn stop_manager(&mut self, how: ManagerStop) -> Result<()>;

    /// Restarts the manager, and waits until it answers.
    ///
    /// # Errors
    /// The manager does not start.
    fn start_manager(&mut self) -> Result<()>;

    /// Attaches a guest to its adapter, or the wire. A guest that was attached before keeps its
    /// memory and its posted frames.
    ///
    /// # Errors
    /// The station cannot attach.
    fn attach(&mut self, station: &str) -> Result<()>;

    /// Stops a guest.
    ///
    /// # Errors
    /// There is no such guest.
    fn leave(&mut self, station: &str, how: GuestStop) -> Result<()>;

    /// `true` if a guest's attachment has held since [`attach`](Self::attach).
    fn is_attached(&mut self, station: &str) -> bool;

    /// Configuration that a guest reads of its adapter.
    ///
    /// # Errors
    /// The guest is not attached.
    fn view(&mut self, station: &str) -> Result<GuestConfig>;

    /// Sends frames from a guest or the wire; a detached guest posts them for later.
    ///
    /// # Errors
    /// There is no such guest, or its ring is full.
    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()>;

    /// Waits until the NIC has processed every sent frame: each has arrived, or never will.
    ///
    /// # Errors
    /// Frames are still in flight after some seconds, if the NIC tells.
    fn settle(&mut self) -> Result<()>;

    /// Frames that arrived since the last call, as (station, frames).
    ///
    /// # Errors
    /// A frame is damaged.
    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>>;

    /// Paths of the devices that the NIC and its manager use.
    ///
    /// # Errors
    /// The devices cannot be listed.
    fn devices(&mut self) -> Result<Vec<String>>;

    /// Ends the last test, and leaves nothing of the run.
    ///
    /// # Errors
    /// The manager does not answer, or rejects what is necessary; the next run then does it.
    fn finish(&mut self) -> Result<()>;
}

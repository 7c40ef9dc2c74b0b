//! The desired state: one versioned document of NICs, switches and adapters, in JSON or TOML.
//!
//! Model: a document is checked as a whole, first its form ([`schema`]), then its meaning
//! ([`validate`]); a [`State`] that was [parsed](State::parse) has passed both. Two states yield a
//! [`ChangePlan`]: the named steps from one to the other, or the reasons why there is no transition
//! ([`transition`]). [`allocate`] assigns scarce VFs and queues to adapters, with a reason where it
//! does not. All of it is pure: no I/O, no clock.
//!
//! Limits: 16 NICs, 16 switches, 255 VFs a NIC, 4096 adapters, 256 virtual PFs, 256 ACL rules a
//! port; 20 problems are shown.

mod actual;
mod adapter;
mod allocate;
mod attachment;
mod daemon;
mod fill;
mod function;
mod interface_address;
mod move_request;
mod moving;
mod nic;
mod object_name;
mod plan;
mod problem;
mod protocol;
mod reason;
mod references;
pub mod schema;
mod switch;
mod switchdev;
#[cfg(test)]
mod tests;
mod text;
mod transition;
mod validate;
mod vpf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use actual::{
    Actual, ActualAdapter, ActualCard, ActualDevice, ActualNic, ActualRepresentor, ActualTunnel,
    ActualVf, ActualVpf, ActualVpfVf, DeviceState, Difference, GuestState, VfCounters, VfSettings,
};
pub use adapter::{Adapter, WantedPath, port_of};
pub use allocate::may_ever_have_vf;
pub use allocate::{Allocation, Facts, allocate};
pub use attachment::*;
pub use daemon::{ApiSettings, DaemonSettings, Lanes, Limits};
use fill::{Filled, fill};
pub use function::{
    LinkState, Mirror, MirrorDirection, Pf, PortSettings, Vf, VfDriver, Vlan, VlanProto,
};
pub use interface_address::InterfaceAddress;
pub use move_request::{MoveRequest, MoveStep};
pub use moving::{MovePhase, Moving};
pub use nic::{Bridging, Drift, Nic, NicKind};
pub use object_name::kind_of_list;
pub(crate) use object_name::of_path;
pub use plan::{ChangePlan, FieldChange, ObjectKind, PlanAction, PlanStep};
pub(crate) use problem::cut;
pub use problem::{MAX_PROBLEMS, Problem, Problems, Remedy, printable};
pub use protocol::IpProtocol;
pub use reason::{PathInForce, Reason};
pub use switch::{AclAction, AclRule, RuleMatch, StaticEntry, Switch, SwitchPort, UPLINK, Vxlan};
pub use switchdev::{NicMode, NicRule, Representor};
pub use text::{
    AnyMacText, FunctionName, InvalidText, IpPrefix, MacPrefix, MacText, PortRange, RuleTarget,
    SocketPermissions, VlanRange,
};
pub use transition::transition;
pub use vpf::{GuestSetting, VPF_VFS_MAX, Vpf, VpfControl, VpfModel, VpfVf};

/// Version of the document format that this program writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Desired state: every NIC, switch, adapter and virtual PF with all its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the document format. Required, so that other input is not taken for a state.
    #[schema(minimum = 1, maximum = 1)]
    pub version: u32,
    /// The NICs.
    #[serde(default, rename = "nic")]
    #[schema(max_items = 16)]
    pub nics: Vec<Nic>,
    /// The switches.
    #[serde(default, rename = "switch")]
    #[schema(max_items = 16)]
    pub switches: Vec<Switch>,
    /// The adapters.
    #[serde(default, rename = "adapter")]
    #[schema(max_items = 4096)]
    pub adapters: Vec<Adapter>,
    /// The virtual PFs.
    #[serde(default, rename = "vpf")]
    #[schema(max_items = 256)]
    pub vpfs: Vec<Vpf>,
}

impl Default for State {
    /// The empty state.
    fn default() -> State {
        State {
            version: VERSION,
            nics: Vec::new(),
            switches: Vec::new(),
            adapters: Vec::new(),
            vpfs: Vec::new(),
        }
    }
}

impl State {
    /// Checks the form and then the meaning of a document.
    ///
    /// # Errors
    /// Every mistake of form, or, without any, every mistake of meaning; 20 are kept, the others
    /// counted.
    pub fn parse(document: &Value) -> Result<State, Problems> {
        State::check_form(document)?;
        State::of_form(document)
    }

    /// The same for a document of checked form.
    ///
    /// # Errors
    /// Every mistake of meaning.
    pub(crate) fn of_form(document: &Value) -> Result<State, Problems> {
        let (state, adapters) = filled(document)?;
        validate::meaning(&state, &adapters).map_err(|problems| problems.named(document))?;
        Ok(state)
    }

    /// The objects of a document of valid form. Does not check the meaning.
    ///
    /// # Errors
    /// Every mistake of form.
    pub fn read(document: &Value) -> Result<State, Problems> {
        State::check_form(document)?;
        Ok(filled(document)?.0)
    }

    /// Checks a document's version and form.
    ///
    /// # Errors
    /// Every mistake of form.
    fn check_form(document: &Value) -> Result<(), Problems> {
        if let Some(newer) = document["version"].as_u64().filter(|v| *v > u64::from(VERSION)) {
            let error = "is newer than this program";
            return Err(
                Problem::new("version", newer, error, "use version 1, or a newer shunt").into()
            );
        }
        schema::check("State", document, "").map_err(|problems| problems.named(document))
    }

    /// Checks the meaning of a state whose parts have valid form.
    ///
    /// # Errors
    /// Every mistake of meaning.
    pub fn check(&self) -> Result<(), Problems> {
        let at: Vec<String> = (0..self.adapters.len()).map(|i| format!("adapter[{i}]")).collect();
        validate::meaning(self, &at).map_err(|problems| problems.named(&self.to_document()))
    }

    /// The document with all defaults.
    pub fn to_document(&self) -> Value {
        serde_json::to_value(self).expect("a state is JSON")
    }

    /// An object of one of the document's lists, such as `adapter`, by its name, with all defaults.
    pub fn object(&self, list: &str, name: &str) -> Option<Value> {
        let object = match list {
            "nic" => self.nic(name).map(serde_json::to_value),
            "switch" => self.switch(name).map(serde_json::to_value),
            "adapter" => self.adapter(name).map(serde_json::to_value),
            "vpf" => self.vpf(name).map(serde_json::to_value),
            _ => None,
        };
        object.map(|object| object.expect("an object is JSON"))
    }

    /// `true` without any object.
    pub fn is_empty(&self) -> bool {
        let State { version: _, nics, switches, adapters, vpfs } = self;
        nics.is_empty() && switches.is_empty() && adapters.is_empty() && vpfs.is_empty()
    }

    /// The NIC of that name.
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// The switch of that name.
    pub fn switch(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().find(|switch| switch.name == name)
    }

    /// The adapter of that name.
    pub fn adapter(&self, name: &str) -> Option<&Adapter> {
        self.adapters.iter().find(|adapter| adapter.name == name)
    }

    /// The virtual PF of that name.
    pub fn vpf(&self, name: &str) -> Option<&Vpf> {
        self.vpfs.iter().find(|vpf| vpf.name == name)
    }

    /// The NIC of an adapter, directly or through its switch; `None` only in a state that was not
    /// parsed.
    pub fn nic_of(&self, adapter: &Adapter) -> Option<&Nic> {
        let through = adapter.switch.as_deref().and_then(|name| self.switch(name));
        let name = adapter.nic.as_deref().or(through.map(|switch| switch.nic.as_str()))?;
        self.nic(name)
    }
}

/// The objects of a document of checked form, and the position of each adapter.
fn filled(document: &Value) -> Result<(State, Vec<String>), Problems> {
    let Filled { document, adapters } = fill(document)?;
    let state = serde_json::from_value(document).map_err(|error| {
        // The schema accepts only what serde accepts; a test checks this.
        Problem::new("", Value::Null, format!("is not a document: {error}"), "correct it")
    })?;
    Ok((state, adapters))
}

/// Default of settings that are on.
fn yes() -> bool {
    true
}

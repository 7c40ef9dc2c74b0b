//! Configuration of a NIC, and its validation.

use wire::{Mac, Vid};

use crate::PortId;
use crate::nic::error::{ConfigError, Field, MAX_ADDRESSES, MAX_GROUPS, MAX_MACS};
use crate::nic::port::{MAX_QUEUES, MAX_VFS};
use crate::nic::{Function, MirrorTarget, QOS_MAX, Rule, VlanProtocol, WEIGHT_MAX};

/// Forwarding between functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Virtual Ethernet bridge: directly.
    #[default]
    Veb,
    /// Virtual Ethernet port aggregator: through the uplink, whose peer reflects the frames.
    Vepa,
    /// No forwarding between functions: they reach only the uplink.
    Isolated,
}

impl Mode {
    /// Name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Veb => "veb",
            Self::Vepa => "vepa",
            Self::Isolated => "isolated",
        }
    }
}

/// Address behind a PF with a switch: frames for it go to the PF without flooding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// The MAC.
    pub mac: Mac,
    /// Its VLAN, 0 to 4094; 0 for untagged.
    pub vid: u16,
}

/// The settings of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// The PF; `None` leaves its port without a function, or to the switch.
    pub pf: Option<Function>,
    /// VF 0 first; `None` leaves a VF's port without a function.
    pub vfs: Vec<Option<Function>>,
    /// Receive queues, queue 0 first; `None` for an unused one. A queue takes frames for an adapter
    /// that sends through the switch. So only its MACs, VLANs, link and mirror apply; other
    /// settings are enforced where the adapter sends.
    pub queues: Vec<Option<Function>>,
    /// Addresses behind the PF, if a switch is attached to it; then `pf` must be `None`.
    pub switch: Option<Vec<Filter>>,
    /// The bridge's mode.
    pub mode: Mode,
    /// Rules of switchdev mode, in order; `None` in the usual mode. In switchdev mode each function
    /// is connected to its representor, and there is no bridge.
    pub switchdev: Option<Vec<Rule>>,
    /// Set while the uplink has a link.
    pub uplink_up: bool,
    /// Set to also deliver unknown unicast of other functions to promiscuous functions, as that
    /// from the uplink. Bridges of real cards do not.
    pub floods_unknown: bool,
}

impl Default for NicConfig {
    /// A VEB without functions, whose uplink is up.
    fn default() -> Self {
        Self {
            pf: None,
            vfs: Vec::new(),
            queues: Vec::new(),
            switch: None,
            switchdev: None,
            mode: Mode::Veb,
            uplink_up: true,
            floods_unknown: true,
        }
    }
}

impl NicConfig {
    /// Every PF and VF that there is, with its port.
    pub fn functions(&self) -> impl Iterator<Item = (PortId, &Function)> {
        let ports = (PortId::PF.0..).map(PortId);
        let all = std::iter::once(&self.pf).chain(&self.vfs);
        ports.zip(all).filter_map(|(port, function)| Some((port, function.as_ref()?)))
    }

    /// Every receive queue that is in use, with its port.
    pub fn used_queues(&self) -> impl Iterator<Item = (PortId, &Function)> {
        let ports = (PortId::queue(0).0..).map(PortId);
        ports.zip(&self.queues).filter_map(|(port, queue)| Some((port, queue.as_ref()?)))
    }

    /// Ports with MACs: functions, then queues.
    pub(crate) fn addressed(&self) -> impl Iterator<Item = (PortId, &Function)> {
        self.functions().chain(self.used_queues())
    }

    /// The addresses behind the PF, with the field that each comes from.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (Field, Filter)> {
        let filters = self.switch.iter().flatten().enumerate();
        filters.map(|(index, filter)| (Field::Filter(index), *filter))
    }

    /// The function, or the queue's settings, at a port.
    pub fn function(&self, port: PortId) -> Option<&Function> {
        match (port.vf_index(), port.queue_index()) {
            (Some(vf), _) => self.vfs.get(usize::from(vf))?.as_ref(),
            (_, Some(queue)) => self.queues.get(usize::from(queue))?.as_ref(),
            _ if port == PortId::PF => self.pf.as_ref(),
            _ => None,
        }
    }

    /// The function, or the queue's settings, at a port, to change it.
    pub fn function_mut(&mut self, port: PortId) -> Option<&mut Function> {
        match (port.vf_index(), port.queue_index()) {
            (Some(vf), _) => self.vfs.get_mut(usize::from(vf))?.as_mut(),
            (_, Some(queue)) => self.queues.get_mut(usize::from(queue))?.as_mut(),
            _ if port == PortId::PF => self.pf.as_mut(),
            _ => None,
        }
    }

    /// Checks everything but duplicates, which show when the table is built.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.vfs.len() > MAX_VFS {
            return Err(ConfigError::TooManyVfs { vfs: self.vfs.len() });
        }
        if self.queues.len() > MAX_QUEUES {
            return Err(ConfigError::TooManyQueues { queues: self.queues.len() });
        }
        let (mut macs, mut addresses) = (0, 0);
        for (port, function) in self.addressed() {
            check_macs(port, function)?;
            check_settings(port, function)?;
            self.check_mirror(port, function)?;
            let own = function.macs().count();
            macs += own;
            if macs > MAX_MACS {
                return Err(ConfigError::TooManyMacs { port, macs });
            }
            addresses += own * function.vids().count();
            if addresses > MAX_ADDRESSES {
                return Err(ConfigError::TooManyAddresses { port, addresses });
            }
        }
        self.check_switch(addresses)?;
        self.check_switchdev()
    }

    /// Checks the switch on the PF, beside functions and queues with so many addresses.
    fn check_switch(&self, others: usize) -> Result<(), ConfigError> {
        if self.switch.is_some() && self.pf.is_some() {
            return Err(ConfigError::SwitchBesidePf);
        }
        let filters = self.switch.as_ref().map_or(0, Vec::len);
        if others + filters > MAX_ADDRESSES {
            return Err(ConfigError::TooManyFilters { filters, others });
        }
        for (field, filter) in self.filters() {
            check_mac(PortId::PF, field, filter.mac)?;
            if filter.vid > Vid::MAX {
                return Err(ConfigError::FilterVid { field, vid: filter.vid });
            }
        }
        Ok(())
    }

    fn check_mirror(&self, port: PortId, function: &Function) -> Result<(), ConfigError> {
        let Some(MirrorTarget::Port(to)) = function.mirror.map(|mirror| mirror.to) else {
            return Ok(());
        };
        // A monitor must have a guest of its own: a switch would forward the copies.
        let can_watch = to.queue_index().is_none() && self.function(to).is_some();
        if to == port || !(to == PortId::UPLINK || can_watch) {
            return Err(ConfigError::MirrorPort { port, to });
        }
        Ok(())
    }
}

fn check_macs(port: PortId, function: &Function) -> Result<(), ConfigError> {
    for (field, mac) in function.macs() {
        check_mac(port, field, mac)?;
    }
    let groups = function.groups.as_deref().unwrap_or_default();
    if groups.len() > MAX_GROUPS {
        return Err(ConfigError::TooManyGroups { port, groups: groups.len() });
    }
    match groups.iter().position(|group| !group.is_multicast()) {
        Some(index) => Err(ConfigError::NoGroup { port, index, mac: groups[index] }),
        None => Ok(()),
    }
}

fn check_mac(port: PortId, field: Field, mac: Mac) -> Result<(), ConfigError> {
    if mac.is_multicast() {
        return Err(ConfigError::MulticastMac { port, field, mac });
    }
    if mac.is_zero() {
        return Err(ConfigError::ZeroMac { port, field });
    }
    Ok(())
}

fn check_settings(port: PortId, function: &Function) -> Result<(), ConfigError> {
    if let Some(vlan) = function.vlan {
        if vlan.qos > QOS_MAX {
            return Err(ConfigError::Qos { port, qos: vlan.qos });
        }
        if vlan.protocol == VlanProtocol::Ieee8021Ad && !function.trunk.is_empty() {
            return Err(ConfigError::ServiceTrunk { port, vlans: function.trunk.len() });
        }
    }
    if !function.trust && port != PortId::PF {
        let asked = [
            ("guest_macs", !function.guest_macs.is_empty()),
            ("promiscuous", function.promiscuous),
            ("all_multicast", function.all_multicast),
        ];
        if let Some((field, _)) = asked.into_iter().find(|(_, asked)| *asked) {
            return Err(ConfigError::Untrusted { port, field });
        }
    }
    let share = function.share;
    if share.weight == 0 || share.weight > WEIGHT_MAX {
        return Err(ConfigError::Weight { port, weight: share.weight });
    }
    if share.max_mbit != 0 && share.min_mbit > share.max_mbit {
        return Err(ConfigError::Rates { port, min: share.min_mbit, max: share.max_mbit });
    }
    Ok(())
}

//! A NIC as its operator sees it: settings in force, owners of VFs, and the table made of them.
//!
//! Model: every change is tried on a copy. Only if all of it can be done, the profile accepts it
//! and a table can be built, the copy takes the place of the old state; so a change is never half
//! in force, and what is reported is what is enforced. Who calls puts [`NicState::table`] into the
//! data plane after each.
//!
//! Limits: `total_vfs` is fixed when the NIC is made. An owner's name has up to 256 bytes.

use wire::Mac;

use crate::change::{Change, Owner, Setting, Wish};
use crate::quirks::Profile;
use crate::refused::{Errno, Refused};
use crate::{Function, MAX_VFS, NicConfig, PortId, Table};

/// The longest name of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 256;

/// The state of a NIC; see the module's documentation.
#[derive(Clone, Debug)]
pub struct NicState {
    profile: &'static Profile,
    total_vfs: u8,
    num_vfs: u8,
    /// The PF's MAC, from which those of VFs are made.
    mac: Mac,
    config: NicConfig,
    /// By VF.
    owners: Vec<Option<Owner>>,
    table: Table,
}

impl NicState {
    /// A NIC without VFs, whose PF has this MAC.
    ///
    /// # Errors
    /// More VFs than the profile's card has, or a MAC that is none.
    pub fn new(profile: &'static Profile, total_vfs: u8, mac: Mac) -> Result<Self, Refused> {
        if total_vfs > profile.total_vfs_max {
            let allowed =
                format!("0 to {} with the profile {}", profile.total_vfs_max, profile.name);
            return Err(Refused::new(Errno::Erange, "total_vfs", total_vfs, allowed));
        }
        let config = NicConfig {
            pf: Some(Function::new(mac)),
            vfs: vec![None; usize::from(total_vfs)],
            floods_unknown: profile.floods_unknown,
            ..NicConfig::default()
        };
        let table = Table::build(&config)?;
        let owners = vec![None; usize::from(total_vfs)];
        Ok(Self { profile, total_vfs, num_vfs: 0, mac, config, owners, table })
    }

    /// Its profile.
    pub const fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// VFs that it can have.
    pub const fn total_vfs(&self) -> u8 {
        self.total_vfs
    }

    /// VFs that it has now.
    pub const fn num_vfs(&self) -> u8 {
        self.num_vfs
    }

    /// The settings in force.
    pub const fn config(&self) -> &NicConfig {
        &self.config
    }

    /// The classifier that enforces them.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Who holds a VF.
    pub fn owner(&self, vf: u8) -> Option<&Owner> {
        self.owners.get(usize::from(vf))?.as_ref()
    }

    /// Applies a change.
    ///
    /// # Errors
    /// Why nothing of it was applied.
    pub fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        let mut next = self.clone();
        next.try_change(change)?;
        next.check_minima(&self.config)?;
        next.table = Table::build(&next.config)?;
        *self = next;
        Ok(())
    }

    fn try_change(&mut self, change: &Change) -> Result<(), Refused> {
        match change {
            Change::NumVfs(vfs) => self.set_num_vfs(*vfs),
            Change::Mode(mode) => {
                self.profile.check_mode(*mode)?;
                self.config.mode = *mode;
                Ok(())
            }
            Change::Uplink { up } => {
                self.config.uplink_up = *up;
                Ok(())
            }
            Change::Switch(filters) => {
                self.config.pf = match (filters, self.config.pf.take()) {
                    (Some(_), _) => None,
                    (None, pf) => Some(pf.unwrap_or_else(|| self.made(PortId::PF))),
                };
                self.config.switch.clone_from(filters);
                Ok(())
            }
            Change::Queues(queues) => {
                self.config.queues.clone_from(queues);
                Ok(())
            }
            Change::Set(port, setting) => self.set(*port, setting),
            Change::Ask(port, wish) => self.ask(*port, wish),
            Change::Claim(vf, owner) => self.claim(*vf, owner),
            Change::Release(vf, owner) => self.release(*vf, owner),
            Change::All(changes) => changes.iter().try_for_each(|change| self.try_change(change)),
        }
    }

    /// As `sriov_numvfs` of sysfs does it: the same number is no change, more than there can be is
    /// out of range, and VFs are never added to others.
    fn set_num_vfs(&mut self, vfs: u16) -> Result<(), Refused> {
        let field = "num_vfs";
        if vfs == u16::from(self.num_vfs) {
            return Ok(());
        }
        let Some(count) = u8::try_from(vfs).ok().filter(|count| *count <= self.total_vfs) else {
            let allowed = format!("0 to {}", self.total_vfs);
            return Err(Refused::new(Errno::Erange, field, vfs, allowed));
        };
        if count > 0 && self.num_vfs > 0 {
            let allowed = format!("0, or {} as it is", self.num_vfs);
            return Err(Refused::new(Errno::Ebusy, field, vfs, allowed));
        }
        if let Some((vf, Some(owner))) =
            self.owners.iter().enumerate().find(|(_, owner)| owner.is_some())
        {
            let value = format!("{vfs} while VF {vf} is held by {owner}");
            let allowed = "0 when all VFs are released";
            return Err(Refused::new(self.profile.disable_in_use, field, value, allowed));
        }
        for vf in 0..self.total_vfs {
            let function = (vf < count).then(|| self.made(PortId::vf(vf)));
            self.config.vfs[usize::from(vf)] = function;
        }
        self.num_vfs = count;
        Ok(())
    }

    /// A function as it is made. A VF's MAC is the PF's, locally administered and counted up.
    fn made(&self, port: PortId) -> Function {
        let [a, b, c, d, e, f] = self.mac.0;
        Function::new(match port.vf_index() {
            None => self.mac,
            Some(vf) => {
                let low = u32::from_be_bytes([0, d, e, f]).wrapping_add(u32::from(vf) + 1);
                let [_, d, e, f] = low.to_be_bytes();
                Mac([a | 2, b, c, d, e, f])
            }
        })
    }

    fn function(&mut self, port: PortId) -> Result<&mut Function, Refused> {
        let allowed = match (self.config.switch.is_some(), self.num_vfs) {
            (false, 0) => "the PF; there are no VFs".to_string(),
            (false, vfs) => format!("the PF and VF 0 to {}", vfs - 1),
            (true, 0) => "none; a switch is on the PF, and there are no VFs".to_string(),
            (true, vfs) => format!("VF 0 to {}; a switch is on the PF", vfs - 1),
        };
        // Drivers say so of a VF that does not exist.
        let missing = || Refused::new(Errno::Einval, "function", port, allowed);
        let function = self.config.function_mut(port).filter(|_| port.queue_index().is_none());
        function.ok_or_else(missing)
    }

    fn set(&mut self, port: PortId, setting: &Setting) -> Result<(), Refused> {
        self.profile.accepts(port, setting, self.config.uplink_up)?;
        let made = self.made(port);
        let function = self.function(port)?;
        match setting {
            Setting::Mac(mac) => function.mac = if mac.is_zero() { made.mac } else { *mac },
            Setting::ExtraMacs(macs) => function.extra_macs.clone_from(macs),
            Setting::Vlan(vlan) => function.vlan = *vlan,
            Setting::Trunk(vlans) => function.trunk.clone_from(vlans),
            Setting::SpoofCheck(on) => function.spoof_check = *on,
            Setting::Trust(on) => {
                function.trust = *on;
                if !on && port != PortId::PF {
                    function.guest_macs.clear();
                    (function.promiscuous, function.all_multicast) = (false, false);
                }
            }
            Setting::Link(link) => function.link = *link,
            Setting::TxRate { min, max } => {
                let share = &mut function.share;
                share.min_mbit = min.unwrap_or(share.min_mbit);
                share.max_mbit = max.unwrap_or(share.max_mbit);
            }
            Setting::Weight(weight) => function.share.weight = *weight,
            Setting::StormLimit(limit) => function.storm_limit = *limit,
            Setting::Mirror(mirror) => function.mirror = *mirror,
            Setting::Defaults => *function = made,
        }
        Ok(())
    }

    /// All minima together must fit through the uplink, or none would mean anything.
    fn check_minima(&self, before: &NicConfig) -> Result<(), Refused> {
        let min = |function: &Function| u64::from(function.share.min_mbit);
        let all: u64 = self.config.functions().map(|(_, function)| min(function)).sum();
        let speed = u64::from(self.profile.speed_mbit);
        if all <= speed {
            return Ok(());
        }
        let grew = |(port, function): &(PortId, &Function)| {
            min(function) > before.function(*port).map_or(0, min)
        };
        let Some((port, function)) = self.config.functions().find(grew) else {
            return Ok(()); // it was so before
        };
        let left = speed.saturating_sub(all - min(function));
        let (field, value) = (format!("{port}: min_tx_rate"), format!("{} Mbit/s", min(function)));
        let allowed = format!("up to {left} Mbit/s beside the other functions' minima");
        Err(Refused::new(Errno::Einval, field, value, allowed))
    }

    fn ask(&mut self, port: PortId, wish: &Wish) -> Result<(), Refused> {
        let function = self.function(port)?;
        // Whether it is trusted enough is checked with everything else.
        match wish {
            Wish::Macs(macs) => function.guest_macs.clone_from(macs),
            Wish::Promiscuous(on) => function.promiscuous = *on,
            Wish::AllMulticast(on) => function.all_multicast = *on,
            Wish::Groups(groups) => function.groups.clone_from(groups),
        }
        Ok(())
    }

    fn claim(&mut self, vf: u8, owner: &Owner) -> Result<(), Refused> {
        self.function(PortId::vf(vf))?;
        if owner.0.is_empty() || owner.0.len() > OWNER_BYTES_MAX {
            let (field, value) = (format!("VF {vf}: owner"), format!("{} bytes", owner.0.len()));
            let allowed = format!("1 to {OWNER_BYTES_MAX} bytes");
            return Err(Refused::new(Errno::Einval, field, value, allowed));
        }
        let place = &mut self.owners[usize::from(vf)];
        match place {
            Some(other) if other != owner => {
                let allowed = format!("{other}, who holds it, until it is released");
                Err(Refused::new(Errno::Ebusy, format!("VF {vf}: owner"), owner, allowed))
            }
            _ => {
                *place = Some(owner.clone());
                Ok(())
            }
        }
    }

    fn release(&mut self, vf: u8, owner: &Owner) -> Result<(), Refused> {
        self.function(PortId::vf(vf))?;
        match self.owner(vf) {
            Some(current) if current == owner => {
                let made = self.made(PortId::vf(vf));
                *self.function(PortId::vf(vf))? = made;
                self.owners[usize::from(vf)] = None;
                Ok(())
            }
            current => {
                let allowed = current.map_or("nobody, as it has no owner".into(), Owner::to_string);
                Err(Refused::new(Errno::Eperm, format!("VF {vf}: owner"), owner, allowed))
            }
        }
    }
}

const _: () = assert!(MAX_VFS == u8::MAX as usize);

#[cfg(test)]
mod tests;

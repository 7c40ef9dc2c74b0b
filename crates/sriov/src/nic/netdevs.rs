//! Interfaces of VFs that guests have.
//!
//! Model: a guest gets the interface of a VF by [`Card::place`], once it is recorded as it was. It
//! comes back by a new binding of the VF to its driver, whatever the guest did to it.

use std::collections::{BTreeMap, BTreeSet};

use host::netlink::KernelError;
use model::state::MacText;
use rustix::io::Errno;

use super::card::Card;
use super::{ManagedNic, ObservedNic, WantedNic};
use crate::driver::{Binding, own_driver};
use crate::error::{OwnedBy, SriovError};
use crate::netdev::{HostNetdev, NetdevError, VfNetdev};
use crate::record::NicTarget;
use crate::refusals::explain;
use crate::vf::{VfSetting, VfState};

/// A refusal of another driver, with its meaning.
fn driver_error(error: &KernelError) -> NetdevError {
    let text = format!("{} ({error})", explain("driver", "", error.errno()));
    NetdevError::new(text, Some(error.errno()))
}

impl<C: Card> ManagedNic<C> {
    /// `true` if a guest has the interface of a VF with this address.
    pub(super) fn has_address(&self, vf: u16, setting: &VfSetting) -> bool {
        let placed = self.placed.get(&vf);
        placed.is_some_and(|placed| *setting == VfSetting::Mac(placed.mac))
    }

    /// Binding of VFs to the driver that makes their interfaces.
    pub(super) fn own_driver(&self) -> Binding {
        Binding::own(own_driver(&self.card.driver().unwrap_or_default()))
    }

    /// `true` if the interface of a VF is not here, though its driver makes one.
    pub(super) fn is_out(&self, vf: u16) -> bool {
        vf < self.card.num_vfs() && self.card.netdev(vf).is_none()
    }

    /// `true` if the interface of a VF is a guest's, or has vanished with the VF, as recorded.
    pub(super) fn is_given(&self, vf: u16) -> bool {
        self.record.original().is_some_and(|record| record.given.contains(&vf))
    }

    /// `true` for a VF that Shunt has bound to another driver.
    fn is_bound(&self, vf: u16) -> bool {
        self.record.original().is_some_and(|record| record.bound.contains(&vf))
    }

    /// `true` for the own driver of a VF that an operator has bound to another one, such as
    /// vfio-pci for a VM: it does not go back.
    pub(super) fn is_others(&self, observed: &ObservedNic, vf: u16, setting: &VfSetting) -> bool {
        if self.is_bound(vf) {
            return false;
        }
        let own = self.own_driver();
        let is_other = |it: &VfSetting| match it {
            VfSetting::Driver(it) => it.driver.is_some() && it.driver != own.driver,
            _ => false,
        };
        *setting == VfSetting::Driver(own.clone())
            && observed.vf(vf).is_some_and(|vf| vf.settings.iter().any(is_other))
    }

    /// As [`PciNic::vfs_of_vms`](super::PciNic::vfs_of_vms).
    pub(super) fn vfs_of_vms(&self) -> Result<BTreeSet<u16>, SriovError> {
        if !self.card.is_present() {
            return Ok(BTreeSet::new());
        }
        let failed = |error| self.refused(None, &[("num_vfs", "as it is".to_owned())], error);
        let owners = self.card.owners().map_err(failed)?.into_iter();
        Ok(owners.filter(|owner| owner.by == OwnedBy::Vfio).map(|owner| owner.vf).collect())
    }

    /// Checks that neither a VM nor the host uses a VF whose interface a guest is to get.
    pub(super) fn check_unused(&self, wanted: &WantedNic) -> Result<(), SriovError> {
        for (vf, driver) in self.other_drivers(&wanted.vfs) {
            if let Some(text) = self.card.host_use(vf) {
                let mut error = KernelError::from(Errno::BUSY);
                error.message = Some(format!("{text}: undo that, or name another VF"));
                return Err(self.refused(Some(vf), &driver.fields(), error));
            }
        }
        let is_new = |(vf, _): &(&u16, &VfNetdev)| {
            **vf < self.card.num_vfs() && !self.is_given(**vf) && !self.placed.contains_key(*vf)
        };
        let mut new = wanted.netdevs.iter().filter(is_new).peekable();
        let open = new.peek().map_or(Ok(BTreeSet::new()), |_| self.vfs_of_vms())?;
        new.try_for_each(|(vf, to)| {
            let of_vm = || open.contains(vf).then(|| driver_error(&Errno::BUSY.into()));
            let of_host = || {
                let text = format!("{}: undo that, or name another VF", self.card.host_use(*vf)?);
                Some(NetdevError::new(text, Some(Errno::BUSY)))
            };
            of_vm().or_else(of_host).map_or(Ok(()), |error| Err(self.not_moved(*vf, to, error)))
        })
    }

    /// VFs that are to have another driver than their own, and the driver.
    fn other_drivers<'a>(
        &self,
        of: &'a BTreeMap<u16, Vec<VfSetting>>,
    ) -> impl Iterator<Item = (u16, &'a VfSetting)> + use<'a, C> {
        let own = VfSetting::Driver(self.own_driver());
        of.iter().filter_map(move |(vf, all)| {
            let other = all.iter().find(|it| it.is_same_setting(&own) && **it != own)?;
            Some((*vf, other))
        })
    }

    fn not_moved(&self, vf: u16, to: &VfNetdev, source: NetdevError) -> SriovError {
        let (name, netns) = (to.name.clone(), to.netns.clone());
        SriovError::Netdev { address: self.card.address(), vf, name, netns, source }
    }

    /// Wanted interfaces, and those placed before, that are where they are to be. One that a past
    /// process may have set by half is not.
    pub(super) fn placed_of(&self, wanted: &WantedNic) -> BTreeMap<u16, VfNetdev> {
        let placing = self.record.original().map(|record| &record.placing);
        let is_half_set = |vf: &u16| placing.is_some_and(|placing| placing.contains(vf));
        let is_there = |(vf, to): &(&u16, &VfNetdev)| {
            let is_in = |netns| self.card.is_netdev_in(**vf, netns);
            self.is_out(**vf) && to.netns.as_deref().is_some_and(is_in) && !is_half_set(vf)
        };
        // An interface that a past process has placed is as that process wanted it.
        let all = wanted.netdevs.iter().chain(&self.placed).filter(is_there);
        all.map(|(vf, to)| (*vf, to.clone())).collect()
    }

    /// Moves interfaces to guests and back. Those of VFs that are new are here, and not of VFs with
    /// another driver.
    pub(super) fn move_netdevs(
        &mut self,
        target: &NicTarget,
        are_new: bool,
        refused: &mut dyn FnMut(SriovError) -> Result<(), SriovError>,
    ) -> Result<(), SriovError> {
        let original = self.record.original().cloned().unwrap_or_default();
        let other: BTreeSet<u16> = self.other_drivers(&target.vfs).map(|(vf, _)| vf).collect();
        let is_back = |(vf, _): &(&u16, &VfNetdev)| {
            let stays = other.contains(vf) && original.bound.contains(vf);
            !target.netdevs.contains_key(vf) && original.given.contains(vf) && !stays
        };
        let is_to_move = |(vf, to): &(&u16, &VfNetdev)| self.placed.get(vf) != Some(*to);
        let moves: Vec<(u16, VfNetdev)> = original
            .netdevs
            .iter()
            .filter(is_back)
            .chain(target.netdevs.iter().filter(is_to_move))
            .filter(|(vf, _)| **vf < target.num_vfs)
            .map(|(vf, to)| (*vf, to.clone()))
            .collect();
        let own = VfSetting::Driver(self.own_driver());
        let now = match moves.is_empty() {
            true => self.observed(Vec::new()),
            false => self.observed(self.vfs()?),
        };
        let has_none = |vf| match target.vfs.get(&vf) {
            Some(all) if all.iter().any(|it| it.is_same_setting(&own)) => other.contains(&vf),
            _ => self.is_others(&now, vf, &own),
        };
        let has_none: BTreeSet<u16> =
            moves.iter().map(|(vf, _)| *vf).filter(|vf| has_none(*vf)).collect();
        let (mut placed, mut back) = (Vec::new(), Vec::new());
        for (vf, to) in moves {
            // With another driver it has no interface.
            let moved =
                if has_none.contains(&vf) { Ok(()) } else { self.move_netdev(vf, &to, are_new) };
            match moved {
                Err(error) => refused(error)?,
                Ok(()) if to.netns.is_none() => back.push(vf),
                Ok(()) => placed.push(vf),
            }
        }
        if placed.is_empty() && back.is_empty() {
            return Ok(());
        }
        let mut record = self.recorded();
        record.given.retain(|vf| !back.contains(vf));
        record.bound.retain(|vf| !back.contains(vf));
        record.placing.retain(|vf| !placed.contains(vf) && !back.contains(vf));
        self.record.write(record)
    }

    fn move_netdev(&mut self, vf: u16, to: &VfNetdev, is_new: bool) -> Result<(), SriovError> {
        let is_out = to.netns.is_some();
        let here = self.card.netdev(vf);
        let mut record = self.recorded();
        let was_given = record.given.contains(&vf);
        if is_out {
            record.placing.insert(vf);
        }
        match (is_out && !was_given, &here) {
            (false, _) => self.record.write(record)?,
            (true, Some(_)) => self.record_to_bind(vf, record)?,
            (true, None) => {
                let error = "another user has it, or its driver has made none";
                return Err(self.not_moved(vf, to, NetdevError::new(error, None)));
            }
        }
        self.placed.remove(&vf);
        // Some drivers take an address only when they are bound.
        let is_as_wanted = |here: HostNetdev| to.mac.is_none_or(|mac| mac.0 == here.address);
        if (was_given && !is_new) || !here.is_some_and(is_as_wanted) {
            let bound = self.card.unbind(vf).and_then(|()| self.card.bind(vf));
            bound.map_err(|error| self.not_moved(vf, to, driver_error(&error)))?;
        }
        let placed = self.card.place(vf, to);
        let notes = placed.map_err(|error| self.not_moved(vf, to, error))?;
        self.notes.insert(vf, notes);
        if is_out {
            self.placed.insert(vf, to.clone());
        }
        Ok(())
    }

    /// Records the interfaces that guests are to have, by themselves or by another driver of the
    /// VF.
    pub(super) fn record_netdevs(
        &mut self,
        target: &NicTarget,
        vfs: &[VfState],
    ) -> Result<(), SriovError> {
        let before = self.recorded();
        let mut record = before.clone();
        for (vf, driver) in self.other_drivers(&target.vfs) {
            let now = vfs.iter().find(|now| now.index == vf).and_then(|now| now.get(driver));
            if now.is_some_and(|now| now != driver) {
                self.record_netdev(vf, &mut record);
                record.given.insert(vf);
                record.bound.insert(vf);
            }
        }
        for vf in target.netdevs.keys().filter(|vf| !before.given.contains(vf)) {
            self.record_netdev(*vf, &mut record);
        }
        if record == before { Ok(()) } else { self.record.write(record) }
    }

    /// Records the interface of a VF that is here.
    pub(super) fn record_netdev(&self, vf: u16, record: &mut NicTarget) {
        if let Some(here) = self.card.netdev(vf) {
            record.netdevs.entry(vf).or_insert(here.netdev);
        }
    }

    /// Has the driver of a VF choose another address, if its interface is here: without an
    /// administrative one it keeps that until it is bound again.
    pub(super) fn renew_netdev(&mut self, vf: u16) -> Result<(), SriovError> {
        if self.card.netdev(vf).is_none() {
            return Ok(()); // another user may have it
        }
        self.record_to_bind(vf, self.recorded())
    }

    /// Records the interface of a VF that is to be bound again, and its driver: another process may
    /// find it unbound, if this one is killed.
    fn record_to_bind(&mut self, vf: u16, mut record: NicTarget) -> Result<(), SriovError> {
        self.record_netdev(vf, &mut record);
        record.add(vf, &[VfSetting::Driver(self.own_driver())]);
        record.given.insert(vf);
        self.record.write(record)
    }

    /// Drops an address that a VF's driver has chosen at random: the VF has no administrative one.
    pub(super) fn forget_random(&self, vf: &mut VfState) {
        let Some(here) = self.card.netdev(vf.index).filter(|here| here.is_random) else { return };
        for setting in &mut vf.settings {
            if *setting == VfSetting::Mac(Some(MacText(here.address))) {
                *setting = VfSetting::Mac(None);
            }
        }
    }
}

//! Interfaces of VFs that guests have.
//!
//! Model: a guest gets the interface of a VF by [`Card::place`], once it is recorded as it was. It
//! comes back by a new binding of the VF to its driver, whatever the guest did to it.

use std::collections::BTreeMap;

use model::state::MacText;

use super::card::Card;
use super::{ManagedNic, ObservedNic, WantedNic};
use crate::driver::{Binding, own_driver};
use crate::error::SriovError;
use crate::netdev::{HostNetdev, NetdevError, VfNetdev};
use crate::record::NicTarget;
use crate::vf::{VfSetting, VfState};

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

    /// As [`PciNic::has_given`](super::PciNic::has_given).
    pub(super) fn has_given(
        &self,
        observed: &ObservedNic,
        mut vfs: impl Iterator<Item = u16>,
    ) -> bool {
        let own = self.own_driver().driver;
        let is_other =
            |setting: &VfSetting| matches!(setting, VfSetting::Driver(it) if it.driver != own);
        let has_other = |vf| observed.vf(vf).is_some_and(|vf| vf.settings.iter().any(is_other));
        vfs.all(|vf| self.is_out(vf) && !has_other(vf))
    }

    /// Wanted interfaces, and those placed before, that are where they are to be.
    pub(super) fn placed_of(&self, wanted: &WantedNic) -> BTreeMap<u16, VfNetdev> {
        let is_there = |(vf, to): &(&u16, &VfNetdev)| {
            let netns = to.netns.as_deref();
            self.is_out(**vf) && netns.is_some_and(|netns| self.card.is_netdev_in(**vf, netns))
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
        let is_back = |(vf, _): &(&u16, &VfNetdev)| {
            !target.netdevs.contains_key(vf) && original.given.contains(vf)
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
        let own = self.own_driver();
        let other_driver =
            |setting: &VfSetting| matches!(setting, VfSetting::Driver(binding) if *binding != own);
        let has_none = |vf| target.vfs.get(&vf).is_some_and(|all| all.iter().any(other_driver));
        let mut back = Vec::new();
        for (vf, to) in moves {
            // With another driver it has no interface.
            let moved = if has_none(vf) { Ok(()) } else { self.move_netdev(vf, &to, are_new) };
            match moved {
                Err(error) => refused(error)?,
                Ok(()) if to.netns.is_none() => back.push(vf),
                Ok(()) => {}
            }
        }
        let mut record = self.recorded();
        record.given.retain(|vf| !back.contains(vf));
        if back.is_empty() { Ok(()) } else { self.record.write(record) }
    }

    fn move_netdev(&mut self, vf: u16, to: &VfNetdev, is_new: bool) -> Result<(), SriovError> {
        let is_out = to.netns.is_some();
        let address = self.card.address();
        let failed = |source: NetdevError| SriovError::Netdev {
            address,
            vf,
            name: to.name.clone(),
            netns: to.netns.clone(),
            source,
        };
        let here = self.card.netdev(vf);
        let record = self.recorded();
        let was_given = record.given.contains(&vf);
        if is_out && !was_given {
            if here.is_none() {
                let error = "another user has it, or its driver has made none";
                return Err(failed(NetdevError::new(error, None)));
            }
            self.record_to_bind(vf, record)?;
        }
        self.placed.remove(&vf);
        // Some drivers take an address only when they are bound.
        let is_as_wanted = |here: HostNetdev| to.mac.is_none_or(|mac| mac.0 == here.address);
        if (was_given && !is_new) || !here.is_some_and(is_as_wanted) {
            let bound = self.card.unbind(vf).and_then(|()| self.card.bind(vf));
            bound.map_err(|error| failed(error.into()))?;
        }
        let notes = self.card.place(vf, to).map_err(failed)?;
        self.notes.insert(vf, notes);
        if is_out {
            self.placed.insert(vf, to.clone());
        }
        Ok(())
    }

    /// Records the interfaces that guests are to have.
    pub(super) fn record_netdevs(&mut self, target: &NicTarget) -> Result<(), SriovError> {
        let before = self.recorded();
        let mut record = before.clone();
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

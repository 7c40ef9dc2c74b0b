//! A NIC of kind `pci`: its PF, and the VFs that Shunt makes and sets.
//!
//! # Model
//! - [`PciNic::apply`] brings a [`WantedNic`] into force, all or nothing. It changes only what
//!   differs, one setting a request, and reads all back: what the driver accepted and does not
//!   report is a [`Difference`].
//! - The interface of a VF that a guest has is moved into the guest's network namespace, and comes
//!   back ([`VfNetdev`]).
//! - [`PciNic::observe`] reads the state in force, which others may change.
//! - [`PciNic::release`] restores the state before Shunt, from a record on disk. A setting that is
//!   back leaves the record: others may change it.
//!
//! The number of VFs and the eswitch mode change by way of no VFs, which loses the settings of all.
//! So these are read before, and made again. VFs in use are not removed.
//!
//! Limits: what a driver does not report cannot be restored. VFs that Shunt made are removed as
//! they are.

mod card;
mod netdevs;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use host::netlink::KernelError;
use model::state::{Difference, NicMode};
use rustix::io::Errno;

use crate::address::PciAddress;
use crate::driver::wait_until;
use crate::error::{OwnedBy, SriovError, VfOwner};
use crate::netdev::VfNetdev;
use crate::record::{NicTarget, Record};
use crate::sysfs::Sysfs;
use crate::vf::{VfSetting, VfState};
use card::{Card, KernelCard};

pub use wanted::WantedNic;

/// Time for a driver to report all VFs: i40e and ice leave out those that are in reset.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// State of a NIC in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNic {
    /// `true` while the PF is on the PCI bus.
    pub present: bool,
    /// Address of the PF.
    pub address: PciAddress,
    /// Interface of the PF; `None` without a driver.
    pub interface: Option<String>,
    /// Driver of the PF.
    pub driver: Option<String>,
    /// NUMA node of the PF; `None` on a machine with one.
    pub numa_node: Option<u32>,
    /// Most VFs; 0 without SR-IOV.
    pub total_vfs: u16,
    /// Enabled VFs.
    pub num_vfs: u16,
    /// Eswitch mode; `None` if the driver has none.
    pub mode: Option<NicMode>,
    /// The VFs.
    pub vfs: Vec<VfState>,
}

impl ObservedNic {
    fn vf(&self, index: u16) -> Option<&VfState> {
        self.vfs.iter().find(|vf| vf.index == index)
    }
}

/// A NIC of the machine.
#[derive(Debug)]
pub struct PciNic {
    nic: ManagedNic<KernelCard>,
}

impl PciNic {
    /// Finds a NIC by the name of its PF's interface, or by the PF's address, which it keeps from
    /// then on. Its record is in the directory `records`, which is made when needed.
    ///
    /// # Errors
    /// There is no such PF, or its record cannot be read.
    pub fn find(device: &str, records: &Path) -> Result<PciNic, SriovError> {
        let card = KernelCard::find(Sysfs::default(), device)?;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot_id = boot_id.unwrap_or_default().trim().to_owned();
        let record = Record::open(records, card.address(), &boot_id)?;
        Ok(PciNic { nic: ManagedNic::new(card, record) })
    }

    /// Address of the PF of this name or address.
    ///
    /// # Errors
    /// There is no such PF.
    pub fn address_of(device: &str) -> Result<PciAddress, SriovError> {
        KernelCard::find(Sysfs::default(), device).map(|card| card.address())
    }

    /// Address of the PF.
    pub fn address(&self) -> PciAddress {
        self.nic.card.address()
    }

    /// Brings a state into force, or changes nothing; returns what the driver accepted but does
    /// not report.
    ///
    /// # Errors
    /// Setting, value, the driver's answer and a remedy.
    pub fn apply(&mut self, wanted: &WantedNic) -> Result<Vec<Difference>, SriovError> {
        self.nic.apply(wanted)
    }

    /// VFs that processes such as QEMU have open through VFIO.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub fn vfs_of_vms(&self) -> Result<BTreeSet<u16>, SriovError> {
        self.nic.vfs_of_vms()
    }

    /// Reads the state in force.
    pub fn observe(&self) -> ObservedNic {
        self.nic.observe()
    }

    /// Settings in force that differ from the wanted ones.
    pub fn differences(&self, wanted: &WantedNic, observed: &ObservedNic) -> Vec<Difference> {
        self.nic.differences(wanted, observed)
    }

    /// `true` if the interfaces of these VFs are not here. Other namespaces are not looked at.
    pub fn has_given(&self, mut vfs: impl Iterator<Item = u16>) -> bool {
        vfs.all(|vf| self.nic.is_out(vf))
    }

    /// Notes about the interface of a VF that a guest has, for the operator.
    pub fn notes(&self, vf: u16) -> &[String] {
        self.nic.notes.get(&vf).map_or(&[], Vec::as_slice)
    }

    /// Restores the state before Shunt, and forgets it. A NIC that Shunt has not changed stays.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); the record stays, to try again.
    pub fn release(&mut self) -> Result<(), SriovError> {
        self.nic.release()
    }
}

/// A NIC by way of a [`Card`], which tests replace.
#[derive(Debug)]
struct ManagedNic<C> {
    card: C,
    record: Record,
    /// Differences that the last change left.
    accepted: Vec<Difference>,
    /// Interfaces in force that guests have.
    placed: BTreeMap<u16, VfNetdev>,
    /// Notes about interfaces, when they were last moved.
    notes: BTreeMap<u16, Vec<String>>,
}

impl<C: Card> ManagedNic<C> {
    fn new(card: C, record: Record) -> ManagedNic<C> {
        let (placed, notes) = (BTreeMap::new(), BTreeMap::new());
        ManagedNic { card, record, accepted: Vec::new(), placed, notes }
    }

    fn observe(&self) -> ObservedNic {
        let vfs = self.card.interface().and_then(|_| self.card.vfs().ok());
        self.observed(vfs.unwrap_or_default())
    }

    /// The state in force, with these VFs.
    fn observed(&self, vfs: Vec<VfState>) -> ObservedNic {
        ObservedNic {
            present: self.card.is_present(),
            address: self.card.address(),
            interface: self.card.interface(),
            driver: self.card.driver(),
            numa_node: self.card.numa_node(),
            total_vfs: self.card.total_vfs(),
            num_vfs: self.card.num_vfs(),
            mode: self.card.mode(),
            vfs,
        }
    }

    fn apply(&mut self, wanted: &WantedNic) -> Result<Vec<Difference>, SriovError> {
        let mut before = self.observed(Vec::new());
        let (address, total) = (before.address, before.total_vfs);
        if !before.present {
            return Err(SriovError::Vanished(address));
        }
        if before.interface.is_none() {
            return Err(SriovError::NoInterface(address));
        }
        if wanted.num_vfs > total {
            return Err(SriovError::TooManyVfs { address, wanted: wanted.num_vfs, total });
        }
        if let Some(vf) = wanted.vfs.keys().copied().find(|vf| *vf >= total) {
            return Err(SriovError::NoVf { address, vf, total });
        }
        before.vfs = self.vfs()?;
        before.vfs.iter_mut().for_each(|vf| self.forget_random(vf));
        let original = self.record.original().cloned();
        let WantedNic { num_vfs, mode, vfs, netdevs } = wanted.clone();
        let mut target = NicTarget { vfs, netdevs, ..NicTarget::unchanged(num_vfs, Some(mode)) };
        for vf in wanted.netdevs.keys() {
            target.add(*vf, &[VfSetting::Driver(self.own_driver())]);
        }
        let placed = self.placed_of(wanted);
        self.placed.clone_from(&placed);
        self.check_unused(wanted)?;
        if let Some(record) = self.with_removed_vfs(&before, &target) {
            self.record.write(record)?;
        }
        // Other settings than the wanted ones go back.
        for (vf, settings) in &self.recorded().vfs {
            let mut settings = settings.clone();
            settings.retain(|setting| !self.is_others(&before, *vf, setting));
            target.add(*vf, &settings);
        }
        if let Err(error) = self.reach(&target) {
            let undone = self.restore(&NicTarget { netdevs: placed, ..all_of(&before) });
            let undone = undone.and_then(|()| match original {
                Some(original) => self.record.write(original),
                None => self.record.remove(),
            });
            return Err(match undone {
                Ok(()) => error,
                Err(undo) => SriovError::NotUndone { error: error.into(), undo: undo.into() },
            });
        }
        self.accepted = Vec::new();
        let observed = self.observe();
        self.forget_restored(wanted, &observed);
        let mut differences = self.differences(wanted, &observed);
        differences.iter_mut().for_each(|difference| difference.accepted = true);
        self.accepted.clone_from(&differences);
        Ok(differences)
    }

    fn release(&mut self) -> Result<(), SriovError> {
        let Some(mut original) = self.record.original().cloned() else { return Ok(()) };
        // The VFs have vanished with their PF.
        if self.card.is_present() {
            let mut now = self.observed(self.vfs()?);
            now.vfs.iter_mut().for_each(|vf| self.forget_random(vf));
            if let Some(record) = self.with_removed_vfs(&now, &original) {
                self.record.write(record.clone())?;
                original = record;
            }
            for (vf, settings) in &mut original.vfs {
                settings.retain(|setting| !self.is_others(&now, *vf, setting));
            }
            self.restore(&NicTarget { netdevs: BTreeMap::new(), ..original })?;
        }
        self.placed.clear();
        self.accepted.clear();
        self.record.remove()
    }

    fn differences(&self, wanted: &WantedNic, observed: &ObservedNic) -> Vec<Difference> {
        let mut all = Vec::new();
        let mut differ = |vf, setting: &str, wanted: String, actual: String| {
            if wanted != actual {
                let setting = setting.to_owned();
                let mut found = Difference { vf, setting, wanted, actual, accepted: true };
                found.accepted = self.accepted.contains(&found);
                all.push(found);
            }
        };
        differ(None, "num_vfs", wanted.num_vfs.to_string(), observed.num_vfs.to_string());
        let mode = observed.mode.unwrap_or_default();
        differ(None, "mode", mode_name(wanted.mode).into(), mode_name(mode).into());
        for vf in &observed.vfs {
            // An interface that a guest has is gone with another driver.
            let driver = (self.is_given(vf.index) && wanted.netdevs.contains_key(&vf.index))
                .then(|| VfSetting::Driver(self.own_driver()));
            for setting in wanted.vfs.get(&vf.index).into_iter().flatten().chain(&driver) {
                let is_known = setting.is_default() || self.has_address(vf.index, setting);
                if vf.get(setting).is_none() && is_known {
                    continue;
                }
                let actual = vf.get(setting).map(VfSetting::fields).unwrap_or_default();
                let mut actual = actual.into_iter().map(|(_, value)| value);
                for (name, value) in setting.fields() {
                    let actual = actual.next().unwrap_or_else(|| "not reported".to_owned());
                    differ(Some(vf.index), name, value, actual);
                }
            }
        }
        all
    }

    /// Changes the NIC to a state; ends with the first setting of a VF that is refused.
    fn reach(&mut self, target: &NicTarget) -> Result<(), SriovError> {
        self.change(target, &mut Err)
    }

    /// Changes the NIC back to a state, as far as its driver lets it.
    fn restore(&mut self, target: &NicTarget) -> Result<(), SriovError> {
        let mut first = Ok(());
        self.change(target, &mut |error| {
            if first.is_ok() {
                first = Err(error);
            }
            Ok(())
        })?;
        first
    }

    /// Changes the NIC to a state; `refused` says whether to go on after a VF's setting.
    fn change(
        &mut self,
        target: &NicTarget,
        refused: &mut dyn FnMut(SriovError) -> Result<(), SriovError>,
    ) -> Result<(), SriovError> {
        let now = self.observe();
        let mode = target.mode.filter(|mode| *mode != now.mode.unwrap_or_default());
        if let (Some(mode), None) = (mode, now.mode) {
            // Known before any VF is removed.
            let setting = [("mode", mode_name(mode).to_owned())];
            return Err(self.refused(None, &setting, Errno::OPNOTSUPP.into()));
        }
        if now.num_vfs > 0 && (mode.is_some() || now.num_vfs != target.num_vfs) {
            self.remove_vfs(target)?;
        }
        // With its VFs a driver may lose the mode.
        let now = self.card.mode();
        if let Some(mode) = target.mode.filter(|mode| now.is_some_and(|now| now != *mode)) {
            self.card.set_mode(mode).map_err(|source| {
                let setting = [("mode", mode_name(mode).to_owned())];
                self.refused(None, &setting, source)
            })?;
        }
        let are_new = target.num_vfs != self.card.num_vfs();
        if are_new {
            self.set_num_vfs(target.num_vfs)?;
        }
        self.set_vfs(target, refused)?;
        self.move_netdevs(target, are_new, refused)
    }

    /// Makes the settings of VFs.
    fn set_vfs(
        &mut self,
        target: &NicTarget,
        refused: &mut dyn FnMut(SriovError) -> Result<(), SriovError>,
    ) -> Result<(), SriovError> {
        let mut vfs = match target.vfs.range(..target.num_vfs).next() {
            None => return Ok(()),
            Some(_) if self.card.interface().is_none() => {
                return Err(SriovError::NoInterface(self.card.address()));
            }
            Some((vf, _)) => self.reported_vfs(target).map_err(|source| {
                let setting = [("num_vfs", target.num_vfs.to_string())];
                self.refused(Some(*vf), &setting, source)
            })?,
        };
        for (vf, _) in target.vfs.range(..target.num_vfs) {
            if vfs.iter().all(|reported| reported.index != *vf) {
                refused(SriovError::NotReported { address: self.card.address(), vf: *vf })?;
            }
        }
        vfs.iter_mut().for_each(|vf| self.forget_random(vf));
        self.record_netdevs(target, &vfs)?;
        self.record_settings(&vfs, target)?;
        for vf in &vfs {
            for setting in target.vfs.get(&vf.index).into_iter().flatten() {
                let is_known = vf.get(setting).is_none() && self.has_address(vf.index, setting);
                if !differs(vf, setting) || is_known {
                    continue;
                }
                if matches!(setting, VfSetting::Driver(_)) {
                    self.placed.remove(&vf.index); // the interface goes with its driver
                }
                match self.card.set_vf(vf.index, setting) {
                    Ok(()) if *setting == VfSetting::Mac(None) => self.renew_netdev(vf.index)?,
                    Ok(()) => {}
                    Err(source) => {
                        refused(self.refused(Some(vf.index), &setting.fields(), source))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the VFs, once those that have settings are all reported, or after a time-out.
    fn reported_vfs(&self, target: &NicTarget) -> Result<Vec<VfState>, KernelError> {
        let is_whole = |vfs: Vec<VfState>| {
            let is_reported = |index| vfs.iter().any(|vf| vf.index == index);
            target.vfs.range(..target.num_vfs).all(|(vf, _)| is_reported(*vf))
        };
        wait_until(REPORT_TIMEOUT, || self.card.vfs().map_or(true, is_whole));
        self.card.vfs()
    }

    fn vfs(&self) -> Result<Vec<VfState>, SriovError> {
        let setting = || [("num_vfs", self.card.num_vfs().to_string())];
        self.card.vfs().map_err(|source| self.refused(None, &setting(), source))
    }

    /// Drops from the record what is back as it was, or was left to others: it is theirs to change
    /// from now on. A setting that is wanted again is recorded again.
    fn forget_restored(&mut self, wanted: &WantedNic, observed: &ObservedNic) {
        let Some(mut record) = self.record.original().cloned() else { return };
        for vf in &observed.vfs {
            let mut vf = vf.clone();
            self.forget_random(&mut vf);
            let Some(settings) = record.vfs.get_mut(&vf.index) else { continue };
            settings.retain(|it| {
                let is_back = vf.get(it) == Some(it) || self.is_others(observed, vf.index, it);
                let is_wanted = wanted.vfs.contains_key(&vf.index);
                let is_driver = matches!(it, VfSetting::Driver(_));
                !is_back || self.is_given(vf.index) || (is_wanted && !is_driver)
            });
        }
        record.vfs.retain(|_, settings| !settings.is_empty());
        // A longer record restores more, and is no reason for undoing a change.
        let _ = self.record.write(record);
    }

    /// The record, or a new one.
    fn recorded(&self) -> NicTarget {
        let unchanged = || NicTarget::unchanged(self.card.num_vfs(), self.card.mode());
        self.record.original().cloned().unwrap_or_else(unchanged)
    }

    /// The record that a new number of VFs or a new mode needs, which remove all VFs; `None` if
    /// neither is new. VFs that Shunt made are as new if it makes them again.
    fn with_removed_vfs(&self, before: &ObservedNic, target: &NicTarget) -> Option<NicTarget> {
        let changes_mode = target.mode.is_some_and(|mode| mode != before.mode.unwrap_or_default());
        if !changes_mode && target.num_vfs == before.num_vfs {
            return None;
        }
        let mut record = self.recorded();
        let own = record.num_vfs;
        record.vfs.retain(|vf, _| *vf < own);
        record.netdevs.retain(|vf, _| *vf < own || record.given.contains(vf));
        for vf in before.vfs.iter().filter(|vf| vf.index < own) {
            self.record_netdev(vf.index, &mut record);
            record.add(vf.index, &vf.settings);
        }
        Some(record)
    }

    /// Records the settings of VFs that are to change; the first value seen of each stays.
    fn record_settings(&mut self, vfs: &[VfState], target: &NicTarget) -> Result<(), SriovError> {
        let mut record = self.recorded();
        let mut changes = false;
        for vf in vfs {
            for setting in target.vfs.get(&vf.index).into_iter().flatten() {
                if differs(vf, setting) {
                    changes = true;
                    record.add(
                        vf.index,
                        vf.get(setting).map(std::slice::from_ref).unwrap_or_default(),
                    );
                }
            }
        }
        if changes { self.record.write(record) } else { Ok(()) }
    }

    /// Removes all VFs, unless guests are to keep some.
    fn remove_vfs(&mut self, target: &NicTarget) -> Result<(), SriovError> {
        let now = self.card.num_vfs();
        let stay = target.netdevs.keys().filter(|vf| self.placed.contains_key(vf));
        let owners: Vec<VfOwner> = stay.map(|vf| VfOwner { vf: *vf, by: OwnedBy::Shunt }).collect();
        if !owners.is_empty() {
            return Err(SriovError::InUse { address: self.card.address(), owners });
        }
        let given = self.record.original().map(|record| record.given.clone()).unwrap_or_default();
        for vf in given.into_iter().filter(|vf| *vf < now) {
            if self.is_out(vf) {
                self.placed.remove(&vf);
                self.card.unbind(vf).map_err(|source| {
                    self.refused(Some(vf), &[("driver", "none".to_owned())], source)
                })?;
            }
        }
        let record = self.record.original().cloned();
        if let Some(mut record) = record.clone() {
            record.given.extend(record.netdevs.keys());
            self.record.write(record)?;
        }
        let removed = self.set_num_vfs(0);
        if let (Err(_), Some(record)) = (&removed, record)
            && self.card.num_vfs() == now
        {
            self.record.write(record)?;
        }
        removed?;
        self.placed.clear();
        Ok(())
    }

    fn set_num_vfs(&mut self, num_vfs: u16) -> Result<(), SriovError> {
        let address = self.card.address();
        match self.card.set_num_vfs(num_vfs) {
            Ok(()) => match self.card.num_vfs() {
                enabled if enabled == num_vfs => Ok(()),
                enabled => Err(SriovError::NotEnabled { address, wanted: num_vfs, enabled }),
            },
            Err(NumVfsError::InUse(owners)) => Err(SriovError::InUse { address, owners }),
            Err(NumVfsError::Late) => Err(SriovError::Late { address, wanted: num_vfs }),
            Err(NumVfsError::Kernel(source)) => {
                Err(self.refused(None, &[("num_vfs", num_vfs.to_string())], source))
            }
        }
    }

    fn refused(
        &self,
        vf: Option<u16>,
        settings: &[(&'static str, String)],
        source: KernelError,
    ) -> SriovError {
        if !self.card.is_present() {
            return SriovError::Vanished(self.card.address());
        }
        let driver = self.card.driver().unwrap_or_default();
        SriovError::refused((self.card.address(), vf), &driver, settings, source)
    }
}

/// `true` if a setting is to be made. What a driver does not report has the default.
fn differs(vf: &VfState, setting: &VfSetting) -> bool {
    match vf.get(setting) {
        Some(reported) => reported != setting,
        None => !setting.is_default(),
    }
}

/// All that is in force, to come back to.
fn all_of(observed: &ObservedNic) -> NicTarget {
    let vfs = observed.vfs.iter().map(|vf| (vf.index, vf.settings.clone())).collect();
    NicTarget { num_vfs: observed.num_vfs, mode: observed.mode, vfs, ..NicTarget::default() }
}

fn mode_name(mode: NicMode) -> &'static str {
    match mode {
        NicMode::Legacy => "legacy",
        NicMode::Switchdev => "switchdev",
    }
}

/// A number of VFs that is not in force.
#[derive(Debug)]
enum NumVfsError {
    InUse(Vec<VfOwner>),
    Kernel(KernelError),
    /// The functions have not followed.
    Late,
}

impl From<Errno> for NumVfsError {
    fn from(errno: Errno) -> NumVfsError {
        NumVfsError::Kernel(errno.into())
    }
}

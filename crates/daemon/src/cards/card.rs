//! A card in use.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use api::clock::unix_ms;
use host::netns::{self, Identity};
use model::state::{ActualDevice, DeviceState, Difference, Drift, State, WantedPath};
use sriov::{ObservedNic, PciAddress, PciNic, SriovError, VfNetdev, WantedNic};

/// Time until the next try to set up a card, or to give an interface to a guest: twice the last
/// one, up to the second.
const RETRY: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// End of the reason of a device whose namespace is missing.
const MISSING: &str = "does not exist";

/// A card in use.
#[derive(Debug)]
pub(super) struct Card {
    /// `device` of the document.
    pub(super) device: String,
    /// `None` before the device was there.
    pub(super) nic: Option<PciNic>,
    pub(super) wanted: WantedNic,
    pub(super) drift: Drift,
    pub(super) observed: Option<ObservedNic>,
    pub(super) differences: Vec<Difference>,
    /// Adapters that have its VFs, by index of the VF.
    pub(super) holders: BTreeMap<u16, String>,
    /// Interfaces of adapters' VFs, by index of the VF.
    pub(super) netdevs: BTreeMap<u16, ActualDevice>,
    /// Namespaces in which they were, by index of the VF: name and identity.
    pub(super) namespaces: BTreeMap<u16, (String, Identity)>,
    /// Next try after a failure, or for interfaces that are not where they are wanted, and the time
    /// before it.
    pub(super) retry: Option<(Instant, Duration)>,
    /// Last error of setting it up.
    pub(super) failed: Option<String>,
}

impl Card {
    pub(super) fn new(device: &str, wanted: WantedNic, drift: Drift) -> Card {
        let device = device.to_owned();
        Card {
            device,
            nic: None,
            wanted,
            drift,
            observed: None,
            differences: Vec::new(),
            holders: BTreeMap::new(),
            netdevs: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            retry: None,
            failed: None,
        }
    }

    /// Address of its PF, once that was there.
    pub(super) fn address(&self) -> Option<PciAddress> {
        self.nic.as_ref().map(PciNic::address)
    }

    /// `true` if a change goes by way of no VFs.
    pub(super) fn removes_vfs(&self, to: &WantedNic) -> bool {
        self.wanted.num_vfs > 0 && (self.wanted.num_vfs, self.wanted.mode) != (to.num_vfs, to.mode)
    }

    /// The device, if it is there.
    pub(super) fn find(&mut self, records: &Path) -> Result<&mut PciNic, SriovError> {
        let nic = match self.nic.take() {
            Some(nic) => nic,
            None => PciNic::find(&self.device, records)?,
        };
        Ok(self.nic.insert(nic))
    }

    /// Brings a state into force, or changes nothing.
    pub(super) fn apply(&mut self, wanted: WantedNic, records: &Path) -> Result<(), SriovError> {
        let before = std::mem::replace(&mut self.wanted, wanted);
        let applied = self.set_up(records, &|vf, netdev| before.netdevs.get(&vf) == Some(netdev));
        if applied.is_err() {
            self.wanted = before;
        }
        applied
    }

    /// Brings the wanted state into force. An interface stays here while its namespace is missing;
    /// one that may wait also if its namespace cannot have it.
    pub(super) fn set_up(
        &mut self,
        records: &Path,
        may_wait: &dyn Fn(u16, &VfNetdev) -> bool,
    ) -> Result<(), SriovError> {
        let mut wanted = self.wanted.clone();
        let mut waiting = BTreeMap::new();
        let mut namespaces = BTreeMap::new();
        for (vf, netdev) in &self.wanted.netdevs {
            match self.namespace(*vf, netdev) {
                Ok(namespace) => drop(namespaces.insert(*vf, namespace)),
                Err(reason) => drop(waiting.insert(*vf, reason)),
            }
        }
        wanted.netdevs.retain(|vf, _| !waiting.contains_key(vf));
        let nic = self.find(records)?;
        let differences = loop {
            match nic.apply(&wanted) {
                Err(SriovError::Netdev { vf, source, .. })
                    if wanted.netdevs.get(&vf).is_some_and(|netdev| may_wait(vf, netdev)) =>
                {
                    wanted.netdevs.remove(&vf);
                    waiting.insert(vf, source.to_string());
                }
                applied => break applied?,
            }
        };
        let observed = nic.observe();
        self.differences = differences;
        self.observed = Some(observed);
        self.failed = None;
        // Those that have left are remembered, not to be followed elsewhere.
        self.namespaces.retain(|vf, _| self.wanted.netdevs.contains_key(vf));
        namespaces.retain(|vf, _| !waiting.contains_key(vf));
        self.namespaces.extend(namespaces);
        if waiting.is_empty() {
            self.retry = None;
        } else {
            self.retry_later();
        }
        self.note_netdevs(&waiting);
        Ok(())
    }

    /// Namespace for the interface of a VF, or the reason for having none: it does not exist, or
    /// the process that the path names is another one than before.
    pub(super) fn namespace(
        &self,
        vf: u16,
        netdev: &VfNetdev,
    ) -> Result<(String, Identity), String> {
        let netns = netdev.netns.clone().unwrap_or_default();
        let identity = netns::identity(netdev.netns.as_deref());
        let before = self.namespaces.get(&vf).filter(|(name, _)| *name == netns);
        match (&identity, before) {
            (Identity::Missing(_), _) => Err(format!("network namespace {netns} {MISSING}")),
            (_, Some((_, before))) if netns.starts_with("/proc/") && *before != identity => {
                Err(format!("{netns} is the namespace of another process now: set netns again"))
            }
            _ => Ok((netns, identity)),
        }
    }

    /// Sets the next try.
    fn retry_later(&mut self) {
        let wait = self.retry.map_or(RETRY[0], |(_, last)| (2 * last).min(RETRY[1]));
        self.retry = Some((Instant::now() + wait, wait));
    }

    /// Tries at the next reading, if something has failed.
    pub(super) fn retry_now(&mut self) {
        self.retry = None;
    }

    /// `true` if a next try is due.
    fn is_due(&self) -> bool {
        self.retry.is_none_or(|(due, _)| Instant::now() >= due)
    }

    /// Notes that it cannot be set up, which is tried again later; returns the text if it is new.
    pub(super) fn note_failure(&mut self, error: &SriovError) -> Option<String> {
        let text = format!("cannot be set up: {error}");
        self.observed = self.nic.as_ref().map(PciNic::observe).or(self.observed.take());
        self.lose_netdevs(&text, |card, vf| !card.is_up(vf));
        self.retry_later();
        let is_new = self.failed.as_ref() != Some(&text);
        self.failed = Some(text.clone());
        is_new.then_some(text)
    }

    /// Sets the card up, or notes the failure and returns its text if it is new.
    fn try_set_up(&mut self, records: &Path) -> Result<(), Option<String>> {
        self.set_up(records, &|_, _| true).map_err(|error| self.note_failure(&error))
    }

    /// First VF that a change takes from an adapter while a process such as QEMU has it open, and
    /// the adapter. Path `synthetic` takes it all the same: `shunt vm attach` goes back by it.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub(super) fn taken_from_vm(
        &self,
        holders: &BTreeMap<u16, String>,
        to: &State,
    ) -> Result<Option<(u16, String)>, SriovError> {
        let mut taken = self.taken(holders, to).peekable();
        let open = match (&self.nic, taken.peek()) {
            (Some(nic), Some(_)) => nic.vfs_of_vms()?,
            _ => return Ok(None),
        };
        Ok(taken.find(|(vf, _)| open.contains(vf)))
    }

    /// VFs that a change takes from adapters, but by their path `synthetic`.
    pub(super) fn taken(
        &self,
        holders: &BTreeMap<u16, String>,
        to: &State,
    ) -> impl Iterator<Item = (u16, String)> {
        let leaves = |name: &str| {
            to.adapter(name).is_some_and(|adapter| adapter.path == WantedPath::Synthetic)
        };
        let is_taken =
            move |(vf, name): &(&u16, &String)| holders.get(vf) != Some(name) && !leaves(name);
        let taken = self.holders.iter().filter(is_taken);
        taken.map(|(vf, name)| (*vf, name.clone()))
    }

    /// Notes which interfaces are where they are wanted; the others have a reason.
    fn note_netdevs(&mut self, waiting: &BTreeMap<u16, String>) {
        let before = std::mem::take(&mut self.netdevs);
        for vf in self.wanted.netdevs.keys() {
            let reason = waiting.get(vf).cloned();
            let state = if reason.is_none() { DeviceState::Up } else { DeviceState::Gone };
            let same = before.get(vf).filter(|before| before.state == state);
            let since_ms = same.map_or_else(unix_ms, |before| before.since_ms);
            let notes = self.nic.as_ref().map_or(&[][..], |nic| nic.notes(*vf)).to_vec();
            self.netdevs.insert(*vf, ActualDevice { state, since_ms, reason, notes });
        }
    }

    /// Notes that interfaces are not where they are wanted.
    fn lose_netdevs(&mut self, reason: &str, is_lost: impl Fn(&Card, u16) -> bool) {
        let mut waiting = BTreeMap::new();
        for vf in self.wanted.netdevs.keys() {
            if is_lost(self, *vf) {
                waiting.insert(*vf, reason.to_owned());
            } else if let Some(known) = self.netdevs.get(vf).and_then(|it| it.reason.clone()) {
                waiting.insert(*vf, known);
            }
        }
        self.note_netdevs(&waiting);
    }

    fn is_up(&self, vf: u16) -> bool {
        self.netdevs.get(&vf).is_some_and(|it| it.state == DeviceState::Up)
    }

    /// `true` if an interface is not where it is wanted, and may be by now.
    fn has_lost_netdevs(&self) -> bool {
        let is_due = self.is_due();
        let may_come = |(vf, netdev): (&u16, &VfNetdev)| {
            // A namespace that has just come is used at once.
            let is_missing = self.netdevs.get(vf).and_then(|it| it.reason.as_ref());
            let was_missing = is_missing.is_some_and(|reason| reason.ends_with(MISSING));
            let may_try = || is_due || (was_missing && self.namespace(*vf, netdev).is_ok());
            !self.is_up(*vf) && may_try()
        };
        let given = self.wanted.netdevs.keys().copied().filter(|vf| self.is_up(*vf));
        let lost = self.nic.as_ref().is_some_and(|nic| !nic.has_given(given));
        lost || self.wanted.netdevs.iter().any(may_come)
    }

    pub(super) fn release(&mut self) -> Result<(), SriovError> {
        self.nic.as_mut().map_or(Ok(()), PciNic::release)
    }

    /// Reads the card; returns what is new, for the operator. A card that was missing must not be
    /// one of those held by other NICs.
    pub(super) fn poll(&mut self, records: &Path, held: &[PciAddress]) -> Vec<String> {
        let is_ready = |observed: &ObservedNic| observed.present && observed.interface.is_some();
        let was_ready = self.observed.as_ref().is_some_and(is_ready);
        self.observed = self.nic.as_ref().map(PciNic::observe).or(self.observed.take());
        let mut new = Vec::new();
        let ready = match (&self.nic, &self.observed) {
            (Some(nic), Some(observed)) if is_ready(observed) => Some((nic, observed)),
            _ => None,
        };
        let Some((nic, observed)) = ready else {
            self.differences.clear();
            let missing = match &self.observed {
                Some(observed) if observed.present => "has no driver or no interface",
                _ => "is not on the PCI bus",
            };
            let text = format!("{} {missing}", self.device);
            if was_ready {
                new.push(format!("{text}; it is set up when it comes back"));
                self.lose_netdevs(&text, |_, _| true);
            } else if self.nic.is_none() {
                new.extend(self.take_up(records, held));
            }
            return new;
        };
        let found = nic.differences(&self.wanted, observed);
        let known = std::mem::replace(&mut self.differences, found);
        let drifted: Vec<&Difference> = self.differences.iter().filter(|it| !it.accepted).collect();
        if was_ready {
            new.extend(drifted.iter().filter(|it| !known.contains(it)).map(ToString::to_string));
        }
        let is_to_repair = self.drift == Drift::Repair && !drifted.is_empty();
        // Another driver leaves no interface to a guest.
        let drivers = drifted.iter().filter(|it| it.setting == "driver");
        let drivers: BTreeMap<u16, String> =
            drivers.filter_map(|it| Some((it.vf?, it.actual.clone()))).collect();
        for (vf, driver) in &drivers {
            let reason = format!("VF {vf} is bound to {driver}");
            self.lose_netdevs(&reason, |card, of| of == *vf && card.is_up(of));
        }
        let is_to_try = match self.failed {
            Some(_) => self.is_due(),
            None => is_to_repair || self.has_lost_netdevs(),
        };
        // An operator's driver stays, unless the document says otherwise.
        let is_left = self.drift == Drift::Report && !drivers.is_empty();
        if !is_left && (!was_ready || is_to_try) {
            let (netdevs, had_failed) = (self.netdevs.clone(), self.failed.is_some());
            match self.try_set_up(records) {
                Ok(()) if !was_ready => new.push(format!("{} is back, and set up", self.device)),
                Ok(()) if is_to_repair => new.push("set again, as in the document".to_owned()),
                Ok(()) => {
                    new.extend(had_failed.then(|| "is set up, after a failure".to_owned()));
                    new.extend(self.moved_netdevs(&netdevs));
                }
                Err(text) => new.extend(text),
            }
        }
        new
    }

    /// Sets up a card that was missing until now; returns what is new.
    fn take_up(&mut self, records: &Path, held: &[PciAddress]) -> Option<String> {
        let address = self.find(records).ok()?.address();
        if !held.contains(&address) {
            return match self.try_set_up(records) {
                Ok(()) => Some(format!("{} is there, and set up", self.device)),
                Err(text) => text,
            };
        }
        self.nic = None;
        let text = format!("{} is the card of another NIC already: choose another", self.device);
        // A failure is told once.
        let is_new = self.failed.as_ref() != Some(&text);
        self.failed = Some(text.clone());
        is_new.then_some(text)
    }

    /// Texts on interfaces that have come to their guests, or were taken back.
    fn moved_netdevs(&self, before: &BTreeMap<u16, ActualDevice>) -> Vec<String> {
        let mut texts = Vec::new();
        for (vf, netdev) in &self.wanted.netdevs {
            let (netns, now) = (netdev.netns.as_deref().unwrap_or_default(), &self.netdevs[vf]);
            match &now.reason {
                Some(reason)
                    if before.get(vf).and_then(|it| it.reason.as_ref()) != Some(reason) =>
                {
                    texts.push(format!("VF {vf}: its interface is back here: {reason}"));
                }
                None => texts.push(format!("VF {vf}: its interface is in {netns} now")),
                Some(_) => {}
            }
        }
        texts
    }
}

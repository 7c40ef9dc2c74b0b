//! Cards: NICs of kind `pci`, set up through their drivers.
//!
//! # Model
//! [`Cards::change`] brings all cards of a state into force, or none. [`Cards::poll`] reads them
//! twice a second, and reports settings that others changed; with `drift = "repair"` it sets them
//! again. A card that vanished, or is missing at the start, is set up when it comes. So is the
//! interface of an adapter's VF whose namespace is missing.
//!
//! The state of a card before Shunt is in a file of the run directory until the card is released,
//! which is when no NIC of the document has it. So a daemon that was killed leaves what the next
//! one needs. A card stays as it is while no daemon runs.
//!
//! # Limits
//! A driver that answers late delays the thread that serves guests, never a lane.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::clock::unix_ms;
use api::{EventKind, Events};
use host::netns;
use model::state::{ActualCard, ActualDevice, ActualNic, ActualVf, Adapter, Allocation};
use model::state::{DeviceState, Difference, Drift, Nic, Problem, Problems, Reason, State};
use sriov::{ObservedNic, PciAddress, PciNic, SriovError, VfNetdev, WantedNic};

/// Time between two readings of a card.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time until the next try to give an interface to a guest: twice the last one, up to the second.
const RETRY: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// End of the reason of a device whose namespace is missing.
const MISSING: &str = "does not exist";
/// Directory of the original states, in the run directory.
const DIRECTORY: &str = "cards";

/// All cards of the daemon, by the name of their NIC.
#[derive(Debug)]
pub(super) struct Cards {
    records: PathBuf,
    cards: BTreeMap<String, Card>,
    due: Option<Instant>,
}

/// A card in use.
#[derive(Debug)]
struct Card {
    /// `device` of the document.
    device: String,
    /// `None` before the device was there.
    nic: Option<PciNic>,
    wanted: WantedNic,
    drift: Drift,
    observed: Option<ObservedNic>,
    differences: Vec<Difference>,
    /// Adapters that have its VFs, by index of the VF.
    holders: BTreeMap<u16, String>,
    /// Interfaces of adapters' VFs, by index of the VF.
    netdevs: BTreeMap<u16, ActualDevice>,
    /// Next try for those that are not where they are wanted, and the time before it.
    retry: Option<(Instant, Duration)>,
    /// Last error of setting it up.
    failed: Option<String>,
}

impl Cards {
    /// No cards; their original states are below the run directory.
    pub(super) fn new(run_dir: &Path) -> Cards {
        let records = run_dir.join(DIRECTORY);
        Cards { records, cards: BTreeMap::new(), due: None }
    }

    /// Brings the cards of a state into force, and releases all others. At the start of the daemon
    /// a card may be missing.
    ///
    /// # Errors
    /// The first NIC whose card is missing, or whose driver refuses. Nothing has changed then.
    pub(super) fn change(
        &mut self,
        to: &State,
        allocations: &[Allocation],
        is_start: bool,
    ) -> Result<(), Problems> {
        let mut before = Vec::new();
        let done = self.release_others(to, &mut before);
        let done = done.and_then(|()| self.apply(to, allocations, is_start, &mut before));
        if let Err(problem) = done {
            for (name, wanted) in before.into_iter().rev() {
                self.undo(&name, wanted);
            }
            return Err((*problem).into());
        }
        self.cards.retain(|name, _| to.nic(name).is_some_and(Nic::is_pci));
        self.due = (!self.cards.is_empty()).then(|| Instant::now() + POLL_INTERVAL);
        Ok(())
    }

    /// Applies the state's cards; `before` receives what to undo.
    fn apply(
        &mut self,
        to: &State,
        allocations: &[Allocation],
        is_start: bool,
        before: &mut Vec<(String, Option<WantedNic>)>,
    ) -> Result<(), Box<Problem>> {
        for (i, nic) in to.nics.iter().enumerate() {
            let Some(device) = nic.device.as_ref().filter(|_| nic.is_pci()) else { continue };
            let (mut wanted, mut adapters) = (WantedNic::from(nic), BTreeMap::new());
            let mut holders = BTreeMap::new();
            for (at, vf, adapter) in on_vfs(to, nic, allocations) {
                wanted.give(vf, adapter);
                holders.insert(vf, adapter.name.clone());
                if adapter.attachment.is_vf() {
                    adapters.insert(vf, format!("adapter[{at}].attachment.netns"));
                }
            }
            let refused = |error: SriovError| match &error {
                SriovError::Netdev { vf, netns, source, .. } if adapters.contains_key(vf) => {
                    let text = format!("cannot have the interface of VF {vf}: {source}");
                    let remedy = "correct that, and retry";
                    Box::new(Problem::new(adapters[vf].as_str(), netns.as_deref(), text, remedy))
                }
                _ => refused(&format!("nic[{i}]"), nic, error),
            };
            match self.cards.get_mut(&nic.name) {
                // Changes by others are the business of `poll`.
                Some(card) if card.wanted == wanted => card.drift = nic.drift,
                Some(card) => {
                    let stays = |name: &&String| {
                        let on = to.adapter(name).and_then(|it| to.nic_of(it));
                        on.is_some_and(|on| on.name == nic.name)
                    };
                    if let (Some(name), true) =
                        (card.holders.values().find(stays), card.removes_vfs(&wanted))
                    {
                        let error = format!("would remove the VFs, and adapter {name} has one");
                        let remedy = "delete the adapters on the NIC first";
                        let field = format!("nic[{i}].num_vfs");
                        return Err(Problem::new(field, nic.num_vfs, error, remedy).into());
                    }
                    before.push((nic.name.clone(), Some(card.wanted.clone())));
                    card.apply(wanted, &self.records).map_err(refused)?;
                    card.drift = nic.drift;
                }
                None => {
                    let mut card = Card::new(device, wanted.clone(), nic.drift);
                    let found = card.find(&self.records).map(drop);
                    if let Some(other) = self.holder(&card, to) {
                        let error = format!("is the card of NIC {other} already");
                        let field = format!("nic[{i}].device");
                        let problem = Problem::new(field, device.as_str(), error, "choose another");
                        return Err(problem.into());
                    }
                    // At the start of the daemon a guest may be missing too.
                    let may_wait = |_, _: &VfNetdev| is_start;
                    let set_up = found.and_then(|()| card.set_up(&self.records, &may_wait));
                    if let Err(error) = set_up {
                        if !(is_start && error.may_end()) {
                            return Err(refused(error));
                        }
                        tracing::warn!("NIC {}: {error}; it is set up when it comes", nic.name);
                    }
                    before.push((nic.name.clone(), None));
                    self.cards.insert(nic.name.clone(), card);
                }
            }
            if let Some(card) = self.cards.get_mut(&nic.name) {
                card.holders = holders;
            }
        }
        Ok(())
    }

    /// NIC of the state that has this card under another name of the device.
    fn holder(&self, card: &Card, to: &State) -> Option<&str> {
        let address = card.address()?;
        let mut cards = self.cards.iter().filter(|(name, _)| to.nic(name).is_some());
        cards.find(|(_, card)| card.address() == Some(address)).map(|(name, _)| name.as_str())
    }

    /// Releases cards that no NIC of the state has.
    fn release_others(
        &mut self,
        to: &State,
        before: &mut Vec<(String, Option<WantedNic>)>,
    ) -> Result<(), Box<Problem>> {
        for (name, card) in &mut self.cards {
            if to.nic(name).is_none_or(|nic| !nic.is_pci()) {
                before.push((name.clone(), Some(card.wanted.clone())));
                card.release().map_err(|error| {
                    let text = format!("cannot be given back: {error}");
                    let remedy = "correct that, and retry";
                    let problem = Problem::new("device", card.device.as_str(), text, remedy);
                    Box::new(problem.of(format!("NIC {name}")))
                })?;
            }
        }
        Ok(())
    }

    /// Releases the cards of a past daemon that no NIC has, once the start is complete.
    pub(super) fn release_leftovers(&self) {
        let in_use =
            |address: &PciAddress| self.cards.values().any(|card| card.address() == Some(*address));
        let all = sriov::recorded(&self.records).into_iter();
        for address in all.filter(|address| !in_use(address)) {
            let device = address.to_string();
            let released = PciNic::find(&device, &self.records);
            match released.and_then(|mut nic| nic.release()) {
                Ok(()) => tracing::info!("{device}: given back, as it was before a past daemon"),
                Err(error) => tracing::warn!("{device}: not given back: {error}"),
            }
        }
    }

    /// Goes back to the state before a change that failed.
    fn undo(&mut self, name: &str, wanted: Option<WantedNic>) {
        let Some(card) = self.cards.get_mut(name) else { return };
        let undone = match wanted {
            Some(wanted) => {
                card.wanted = wanted;
                card.set_up(&self.records, &|_, _| true)
            }
            None => {
                let released = card.release();
                self.cards.remove(name);
                released
            }
        };
        if let Err(error) = undone {
            tracing::error!("NIC {name} is not as before the change: {error}");
        }
    }

    /// Reads the cards, if due.
    pub(super) fn poll(&mut self, events: &Events, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = Some(now + POLL_INTERVAL);
        let mut held: Vec<PciAddress> = self.cards.values().filter_map(Card::address).collect();
        for (name, card) in &mut self.cards {
            let is_missing = card.nic.is_none();
            let new = card.poll(&self.records, &held);
            held.extend(card.address().filter(|_| is_missing));
            for text in new {
                tracing::warn!("NIC {name}: {text}");
                events.caused(EventKind::Card, format!("NIC {name}"), text, now);
            }
        }
    }

    /// The interface of an adapter's VF.
    pub(super) fn netdev(&self, nic: &str, vf: u16) -> Option<ActualDevice> {
        self.cards.get(nic)?.netdevs.get(&vf).cloned()
    }

    /// Time until the next reading.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// State of a NIC with a card; `None` of kind `soft`.
    pub(super) fn actual(&self, nic: &Nic) -> Option<ActualNic> {
        let Card { device, observed, differences, .. } = self.cards.get(&nic.name)?;
        let observed = observed.as_ref();
        let present = observed.is_some_and(|observed| observed.present);
        let address = observed.map_or(device.clone(), |observed| observed.address.to_string());
        let vfs = observed.map_or(&[][..], |observed| &observed.vfs);
        let vf = |vf: &sriov::VfState| {
            let fields = vf.settings.iter().flat_map(sriov::VfSetting::fields);
            let reported: BTreeMap<String, String> =
                fields.map(|(name, value)| (name.to_owned(), value)).collect();
            ActualVf {
                index: vf.index,
                adapter: None,
                mac: reported.get("mac").filter(|mac| *mac != "none").cloned(),
                vlan: vf.settings.iter().find_map(sriov::VfSetting::vlan_id),
                link_up: reported.get("link_state").is_none_or(|state| state != "disable"),
                reported,
            }
        };
        Some(ActualNic {
            name: nic.name.clone(),
            support: if present { Reason::Supported } else { Reason::Unknown },
            total_vfs: observed.map_or(0, |observed| observed.total_vfs),
            vfs: vfs.iter().map(vf).collect(),
            uplink: None,
            pf: None,
            representors: Vec::new(),
            card: Some(ActualCard {
                address,
                present,
                interface: observed.and_then(|observed| observed.interface.clone()),
                driver: observed.and_then(|observed| observed.driver.clone()),
                differences: differences.clone(),
            }),
        })
    }
}

impl Card {
    fn new(device: &str, wanted: WantedNic, drift: Drift) -> Card {
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
            retry: None,
            failed: None,
        }
    }

    /// Address of its PF, once that was there.
    fn address(&self) -> Option<PciAddress> {
        self.nic.as_ref().map(PciNic::address)
    }

    /// `true` if a change goes by way of no VFs.
    fn removes_vfs(&self, to: &WantedNic) -> bool {
        self.wanted.num_vfs > 0 && (self.wanted.num_vfs, self.wanted.mode) != (to.num_vfs, to.mode)
    }

    /// The device, if it is there.
    fn find(&mut self, records: &Path) -> Result<&mut PciNic, SriovError> {
        let nic = match self.nic.take() {
            Some(nic) => nic,
            None => PciNic::find(&self.device, records)?,
        };
        Ok(self.nic.insert(nic))
    }

    /// Brings a state into force, or changes nothing.
    fn apply(&mut self, wanted: WantedNic, records: &Path) -> Result<(), SriovError> {
        let before = std::mem::replace(&mut self.wanted, wanted);
        let applied = self.set_up(records, &|vf, netdev| before.netdevs.get(&vf) == Some(netdev));
        if applied.is_err() {
            self.wanted = before;
        }
        applied
    }

    /// Brings the wanted state into force. An interface stays here while its namespace is missing;
    /// one that may wait also if its namespace cannot have it.
    fn set_up(
        &mut self,
        records: &Path,
        may_wait: &dyn Fn(u16, &VfNetdev) -> bool,
    ) -> Result<(), SriovError> {
        let mut wanted = self.wanted.clone();
        let mut waiting = BTreeMap::new();
        for (vf, netdev) in &self.wanted.netdevs {
            if !is_there(netdev) {
                let netns = netdev.netns.as_deref().unwrap_or_default();
                waiting.insert(*vf, format!("network namespace {netns} {MISSING}"));
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
        let last = self.retry.take().map(|(_, last)| last);
        self.retry = (!waiting.is_empty()).then(|| {
            let wait = last.map_or(RETRY[0], |last| (2 * last).min(RETRY[1]));
            (Instant::now() + wait, wait)
        });
        self.note_netdevs(&waiting);
        Ok(())
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

    /// `true` if an interface is not where it is wanted, and may be by now.
    fn has_lost_netdevs(&self) -> bool {
        let is_up = |vf: &u16| self.netdevs.get(vf).is_some_and(|it| it.state == DeviceState::Up);
        let is_due = self.retry.is_some_and(|(retry, _)| Instant::now() >= retry);
        let may_come = |(vf, netdev): (&u16, &VfNetdev)| {
            // A namespace that has just come is used at once.
            let is_missing = self.netdevs.get(vf).and_then(|it| it.reason.as_ref());
            let was_missing = is_missing.is_some_and(|reason| reason.ends_with(MISSING));
            !is_up(vf) && is_there(netdev) && (is_due || was_missing)
        };
        let given = self.wanted.netdevs.keys().copied().filter(|vf| is_up(vf));
        let seen = self.nic.as_ref().zip(self.observed.as_ref());
        let lost = seen.is_some_and(|(nic, observed)| !nic.has_given(observed, given));
        lost || self.wanted.netdevs.iter().any(may_come)
    }

    fn release(&mut self) -> Result<(), SriovError> {
        self.nic.as_mut().map_or(Ok(()), PciNic::release)
    }

    /// Reads the card; returns what is new, for the operator. A card that was missing must not be
    /// one of those held by other NICs.
    fn poll(&mut self, records: &Path, held: &[PciAddress]) -> Vec<String> {
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
            if was_ready {
                new.push(format!("{} {missing}; it is set up when it comes back", self.device));
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
        if is_to_repair || !was_ready || self.has_lost_netdevs() {
            let netdevs = self.netdevs.clone();
            match self.set_up(records, &|_, _| true) {
                Ok(()) if !was_ready => new.push(format!("{} is back, and set up", self.device)),
                Ok(()) if is_to_repair => new.push("set again, as in the document".to_owned()),
                Ok(()) => new.extend(self.moved_netdevs(&netdevs)),
                Err(error) => {
                    let text = format!("cannot be set up: {error}");
                    if self.failed.as_ref() != Some(&text) {
                        new.push(text.clone());
                    }
                    self.failed = Some(text);
                }
            }
        }
        new
    }

    /// Sets up a card that was missing until now; returns what is new.
    fn take_up(&mut self, records: &Path, held: &[PciAddress]) -> Option<String> {
        let address = self.find(records).ok()?.address();
        let text = if held.contains(&address) {
            self.nic = None;
            format!("{} is the card of another NIC already: choose another", self.device)
        } else {
            self.set_up(records, &|_, _| true).ok()?;
            format!("{} is there, and set up", self.device)
        };
        // A failure is told once.
        let is_new = self.nic.is_some() || self.failed.as_ref() != Some(&text);
        self.failed = self.nic.is_none().then(|| text.clone());
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

/// `true` if the namespace for an interface exists.
fn is_there(netdev: &VfNetdev) -> bool {
    matches!(netns::identity(netdev.netns.as_deref()), netns::Identity::Existing(..))
}

/// Adapters with a VF of a card: index in the document, and the VF.
fn on_vfs<'a>(
    state: &'a State,
    nic: &'a Nic,
    allocations: &'a [Allocation],
) -> impl Iterator<Item = (usize, u16, &'a Adapter)> {
    let adapters = state.adapters.iter().enumerate();
    let is_on_it = |adapter: &Adapter| state.nic_of(adapter).is_some_and(|on| on.name == nic.name);
    let on_it = adapters.filter(move |(_, adapter)| is_on_it(adapter));
    on_it.filter_map(|(at, adapter)| {
        let given = allocations.iter().find(|given| given.adapter == adapter.name)?;
        Some((at, given.vf?, adapter))
    })
}

/// Problem of a NIC whose card cannot be as wanted.
fn refused(at: &str, nic: &Nic, error: SriovError) -> Box<Problem> {
    let device = nic.device.as_deref().unwrap_or_default();
    let (cause, remedy) = match &error {
        SriovError::Refused { place, setting, advice, source } => {
            let (meaning, remedy) = advice.split_once(": ").unwrap_or((advice, "see dmesg"));
            (format!("({place}) refuses {setting}: {meaning} ({source})"), remedy.to_owned())
        }
        error => (format!("cannot be set up: {error}"), "correct that, and retry".to_owned()),
    };
    Box::new(Problem::new(format!("{at}.device"), device, cause, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(names: &[&str]) -> State {
        let nic = |name: &&str| {
            let device = format!("{name}-none");
            json!({"name": name, "kind": "pci", "device": device, "num_vfs": 2})
        };
        let nics: Vec<_> = names.iter().map(nic).collect();
        State::parse(&json!({"version": 1, "nic": nics})).unwrap()
    }

    #[test]
    fn a_missing_card_keeps_no_daemon_from_its_start_but_refuses_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut cards = Cards::new(dir.path());
        cards.change(&state(&["a"]), &[], true).unwrap();
        let nic = &state(&["a"]).nics[0];
        let card = || cards.actual(nic).unwrap().card.unwrap();
        assert_eq!((card().address.as_str(), card().present), ("a-none", false));
        let refused = cards.change(&state(&["a", "b"]), &[], false).unwrap_err().to_string();
        assert!(refused.contains("b-none is no PCI NIC of this machine"), "{refused}");
        assert!(cards.actual(&state(&["b"]).nics[0]).is_none());
        let events = Events::default();
        cards.poll(&events, Instant::now() + POLL_INTERVAL);
        assert_eq!(events.since(0).events.len(), 0, "nothing is new");
        cards.change(&State::default(), &[], false).unwrap();
        assert!(cards.actual(nic).is_none() && cards.wait(Instant::now()).is_none());
        cards.release_leftovers();
    }
}

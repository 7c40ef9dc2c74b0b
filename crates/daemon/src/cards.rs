//! Cards: NICs of kind `pci`, set up through their drivers.
//!
//! # Model
//! [`Cards::change`] brings all cards of a state into force, or none. [`Cards::poll`] reads them
//! twice a second, and reports settings that others changed; with `drift = "repair"` it sets them
//! again. A card that vanished, or is missing at the start, is set up when it comes. So is the
//! interface of an adapter's VF whose namespace is missing. A card that its driver refuses to set
//! up, at the start or later, is tried again after 5 to 60 s, and by the next apply.
//!
//! The state of a card before Shunt is in a file of the run directory until the card is released,
//! which is when no NIC of the document has it. So a daemon that was killed leaves what the next
//! one needs. A card stays as it is while no daemon runs.
//!
//! # Limits
//! A driver that answers late delays the thread that serves guests, never a lane.

mod card;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use model::state::{ActualCard, ActualDevice, ActualNic, ActualVf, Adapter, Allocation};
use model::state::{Nic, Problem, Problems, Reason, State};
use sriov::{PciAddress, PciNic, SriovError, VfNetdev, WantedNic};

use card::Card;

/// Time between two readings of a card.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Directory of the original states, in the run directory.
const DIRECTORY: &str = "cards";

/// All cards of the daemon, by the name of their NIC.
#[derive(Debug)]
pub(super) struct Cards {
    records: PathBuf,
    cards: BTreeMap<String, Card>,
    due: Option<Instant>,
}

impl Cards {
    /// No cards; their original states are below the run directory.
    pub(super) fn new(run_dir: &Path) -> Cards {
        let records = run_dir.join(DIRECTORY);
        Cards { records, cards: BTreeMap::new(), due: None }
    }

    /// Brings the cards of a state into force, and releases all others. At the start of the daemon
    /// a card may be missing, or its driver may refuse.
    ///
    /// # Errors
    /// The first NIC whose card is missing, whose driver refuses, or whose VF a VM would lose.
    /// Nothing has changed then.
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
        let mut all_holders = Vec::new();
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
                Some(card) if card.wanted == wanted => {
                    card.drift = nic.drift;
                    card.retry_now();
                }
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
                    if let Some(taken) = card.taken_from_vm(&holders, to).map_err(refused)? {
                        return Err(in_use(taken));
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
                        if !is_start {
                            return Err(refused(error));
                        }
                        let text = card.note_failure(&error).unwrap_or_default();
                        tracing::warn!("NIC {}: {text}; it is tried again", nic.name);
                    }
                    before.push((nic.name.clone(), None));
                    self.cards.insert(nic.name.clone(), card);
                }
            }
            all_holders.push((&nic.name, holders));
        }
        for (name, holders) in all_holders {
            if let Some(card) = self.cards.get_mut(name) {
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
                let device = card.device.clone();
                let kept = |error: SriovError| {
                    let text = format!("cannot be given back: {error}");
                    let remedy = "correct that, and retry";
                    let problem = Problem::new("device", device.as_str(), text, remedy);
                    Box::new(problem.of(format!("NIC {name}")))
                };
                if let Some(taken) = card.taken_from_vm(&BTreeMap::new(), to).map_err(kept)? {
                    return Err(in_use(taken));
                }
                before.push((name.clone(), Some(card.wanted.clone())));
                card.release().map_err(kept)?;
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
                let undone = card.set_up(&self.records, &|_, _| true);
                undone.inspect_err(|error| drop(card.note_failure(error)))
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

    /// Has the next reading try again what has failed.
    pub(super) fn retry(&mut self) {
        self.cards.values_mut().for_each(Card::retry_now);
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
                address: vf.address.map(|address| address.to_string()),
                adapter: None,
                mac: reported.get("mac").filter(|mac| *mac != "none").cloned(),
                vlan: vf.settings.iter().find_map(sriov::VfSetting::vlan_id),
                link_up: reported.get("link_state").is_none_or(|state| state != "disable"),
                reported,
                counters: vf.counters,
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
                numa_node: observed.and_then(|observed| observed.numa_node),
                differences: differences.clone(),
            }),
        })
    }
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

/// Problem of an adapter whose VF a VM would keep, without its address and VLAN.
fn in_use((vf, adapter): (u16, String)) -> Box<Problem> {
    let text = format!("would lose VF {vf}, which a VM has open");
    let remedy = format!("unplug it first: shunt vm detach {adapter}");
    Box::new(Problem::new("", (), text, remedy).of(format!("adapter {adapter}")))
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

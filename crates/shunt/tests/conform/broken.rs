//! A subject between the suite and the soft NIC that breaks one behaviour.

use std::collections::BTreeMap;

use anyhow::Result;
use api::InForce;
use api::stats::PortStats;
use conform::soft::SoftNic;
use conform::subject::{
    AdapterLocation, Capability, GuestConfig, GuestStop, ManagerRequest, ManagerStop, NicSetup,
    Rejection, Subject, WIRE,
};
use model::state::{FunctionName, Reason};
use serde_json::{Value, json};

/// Broken behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A release shows no proof of ownership.
    IgnoresOwner,
    /// Rejected changes report success.
    SwallowsRefusals,
    /// Removal of an adapter reports success and does nothing.
    KeepsAdapters,
    /// Release of a VF's settings reports success and does nothing.
    KeepsSettings,
    /// The next user of a VF gets the last one's VLAN.
    KeepsVlan,
    /// Messages of guests are lost while there is no manager.
    LosesPosted,
    /// After a restart no frame arrives.
    DeafAfterRestart,
    /// VFs are missing from the state in force.
    ForgetsVfs,
    /// There is a port without an owner.
    StalePort,
    /// num_vfs passes through 0 without a request.
    GoesThroughZero,
    /// No frame arrives.
    Deaf,
    /// Every setting detaches guests.
    Detaches,
    /// Minimum and maximum rate are swapped.
    SwapsRates,
    /// Setting one rate clears the other.
    ClearsOtherRate,
    /// Clearing the VLAN clears the trunks.
    ClearsTrunk,
    /// Tags are missing on the wire.
    StripsTags,
    /// Any value other than on means off.
    TakesAnyWord,
    /// The spoof check is always off.
    NeverChecks,
    /// The spoof check never changes.
    IgnoresSpoofCheck,
    /// Promiscuous is accepted without effect.
    IgnoresPromiscuous,
    /// All counters are 0.
    CountsNothing,
    /// Multicast is not delivered.
    DropsMulticast,
    /// Further addresses are not set.
    IgnoresMacs,
    /// Guests always see a link.
    LinkAlwaysUp,
    /// `a` and `b` do not reach each other.
    KeepsApart,
    /// Frames for a station behind a bridge are dropped.
    DropsUnknown,
    /// After a restart adapters report other VFs.
    Renumbers,
    /// VFs have other names than their NIC.
    Renames,
    /// VFs cannot be set before they are enabled.
    NeedsPf,
    /// All guests read the same address.
    OneMac,
    /// Every reason says that all is well.
    GivesNoReasons,
    /// A device of the machine is in use.
    UsesDevice,
    /// Applying the same state takes VFs away for a moment.
    Reshuffles,
    /// The first frame after a change of an adapter is lost.
    LosesFirst,
    /// Multicast frames arrive twice.
    Doubles,
    /// Switchdev mode cannot be left.
    StaysInSwitchdev,
    /// VFs that appear in switchdev mode have no representors.
    RepresentsNothing,
    /// Representors are renumbered by a restart.
    RenamesRepresentors,
}

/// The soft NIC, broken.
pub(crate) struct Broken {
    inner: SoftNic,
    fault: Fault,
    restarted: bool,
    /// The VLAN of each VF's last user.
    vlans: BTreeMap<u16, Value>,
    /// `true` if an adapter was changed, and no frame sent since.
    changed: bool,
    /// `true` if there is a manager.
    managed: bool,
    /// `true` if it need not enforce what it reports in force, as a card.
    pub(crate) is_card: bool,
}

impl Broken {
    pub(crate) fn new(inner: SoftNic, fault: Fault) -> Broken {
        Broken {
            inner,
            fault,
            restarted: false,
            vlans: BTreeMap::new(),
            changed: false,
            managed: true,
            is_card: false,
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Settings as the broken manager sees them.
    fn spoil(&self, settings: &mut Value) {
        let Some(fields) = settings.as_object_mut() else { return };
        match self.fault {
            Fault::IgnoresSpoofCheck => drop(fields.remove("spoof_check")),
            Fault::NeverChecks => drop(fields.insert("spoof_check".to_owned(), json!(false))),
            Fault::IgnoresPromiscuous => drop(fields.remove("promiscuous")),
            Fault::IgnoresMacs => drop(fields.remove("macs")),
            Fault::SwapsRates => {
                let (min, max) = (fields.remove("min_tx_mbps"), fields.remove("max_tx_mbps"));
                fields.extend(min.map(|min| ("max_tx_mbps".to_owned(), min)));
                fields.extend(max.map(|max| ("min_tx_mbps".to_owned(), max)));
            }
            Fault::ClearsOtherRate => {
                for (given, other) in
                    [("min_tx_mbps", "max_tx_mbps"), ("max_tx_mbps", "min_tx_mbps")]
                {
                    if fields.contains_key(given) && !fields.contains_key(other) {
                        fields.insert(other.to_owned(), Value::Null);
                        break;
                    }
                }
            }
            Fault::ClearsTrunk if fields.get("vlan") == Some(&Value::Null) => {
                fields.insert("trunks".to_owned(), Value::Null);
            }
            Fault::TakesAnyWord => {
                for word in ["spoof_check", "trust"] {
                    if let Some(value) = fields.get_mut(word) {
                        *value = json!(*value == json!(true));
                    }
                }
            }
            _ => {}
        }
    }

    /// The change as the broken manager sees it; `None` if it only reports success.
    fn spoiled(&mut self, change: &ManagerRequest) -> Result<Option<ManagerRequest>> {
        let mut change = change.clone();
        match &mut change {
            ManagerRequest::Vf { settings, .. } | ManagerRequest::Adapter { settings, .. } => {
                self.spoil(settings)
            }
            ManagerRequest::Remove { .. } if self.is(Fault::KeepsAdapters) => return Ok(None),
            ManagerRequest::ReleaseVf { .. } if self.is(Fault::KeepsSettings) => return Ok(None),
            ManagerRequest::Remove { owner, .. } | ManagerRequest::ReleaseVf { owner, .. } => {
                *owner = owner.filter(|_| !self.is(Fault::IgnoresOwner));
            }
            ManagerRequest::Add { location, settings, .. } => {
                self.spoil(settings);
                if let (AdapterLocation::Vf(index), true) = (*location, self.is(Fault::KeepsVlan)) {
                    if let Some(vlan) = self.vlans.get(&index) {
                        settings["vlan"] = vlan.clone();
                    }
                    self.vlans.insert(index, settings["vlan"].clone());
                }
            }
            ManagerRequest::NumVfs(_) if self.is(Fault::GoesThroughZero) => {
                let _ = self.inner.change(&ManagerRequest::NumVfs(0))?;
            }
            ManagerRequest::Switchdev(false) if self.is(Fault::StaysInSwitchdev) => {
                return Ok(None);
            }
            ManagerRequest::Reapply if self.is(Fault::Reshuffles) => {
                for (path, name) in [("synthetic", "b"), ("synthetic", "a"), ("vf", "b")] {
                    let (name, settings) = (name.to_owned(), json!({"path": path}));
                    let _ = self.inner.change(&ManagerRequest::Adapter { name, settings })?;
                }
                let (name, settings) = ("a".to_owned(), json!({"path": "vf"}));
                change = ManagerRequest::Adapter { name, settings };
            }
            _ => {}
        }
        Ok(Some(change))
    }

    /// Returns `true` if a frame is lost at a station.
    fn loses(&self, station: &str, frame: &[u8]) -> bool {
        let (to, from) = (&frame[..6], &frame[6..12]);
        let is_group = to[0] & 1 != 0;
        match self.fault {
            Fault::Deaf => true,
            Fault::DeafAfterRestart => self.restarted,
            Fault::DropsMulticast => is_group && to != [0xff; 6],
            Fault::DropsUnknown => to[5] == 0x44,
            Fault::KeepsApart => {
                matches!((station, from[5]), ("a", 0xb) | ("b", 0xa))
            }
            _ => false,
        }
    }
}

/// A frame without its tag.
fn untagged(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    if matches!(bytes[12..14], [0x81, 0x00] | [0x88, 0xa8]) {
        bytes.drain(12..16);
    }
    bytes
}

impl Subject for Broken {
    fn name(&self) -> String {
        format!("soft NIC with {:?}", self.fault)
    }

    fn lacks(&self, what: Capability) -> Option<String> {
        self.inner.lacks(what)
    }

    fn not_enforced(&mut self, setting: &str) -> Result<Option<String>> {
        Ok(self.is_card.then(|| format!("{setting} is reported in force")))
    }

    fn begin(&mut self, setup: &NicSetup) -> Result<()> {
        (self.restarted, self.changed, self.managed) = (false, false, true);
        self.vlans.clear();
        self.inner.begin(setup)
    }

    fn change(&mut self, change: &ManagerRequest) -> Result<Result<(), Rejection>> {
        if self.is(Fault::NeedsPf) && matches!(change, ManagerRequest::Vf { .. }) {
            let nics = self.inner.in_force()?.actual.nics;
            if nics.iter().all(|nic| nic.vfs.is_empty()) {
                let (object, field, value, allowed) = Default::default();
                let error = "the PF is down".to_owned();
                return Ok(Err(Rejection { object, field, value, error, allowed }));
            }
        }
        let Some(spoiled) = self.spoiled(change)? else { return Ok(Ok(())) };
        let said = self.inner.change(&spoiled)?;
        self.changed = matches!(change, ManagerRequest::Adapter { .. });
        if self.is(Fault::Detaches) && matches!(change, ManagerRequest::Vf { .. }) {
            self.inner.leave("a", GuestStop::Killed)?;
        }
        if self.is(Fault::SwallowsRefusals) { Ok(Ok(())) } else { Ok(said) }
    }

    fn document(&mut self) -> Result<Value> {
        self.inner.document()
    }

    fn in_force(&mut self) -> Result<InForce> {
        let mut in_force = self.inner.in_force()?;
        let nics = &mut in_force.actual.nics;
        let adapters = &mut in_force.actual.adapters;
        match self.fault {
            Fault::ForgetsVfs => nics.iter_mut().for_each(|nic| drop(nic.vfs.pop())),
            Fault::Renumbers if self.restarted => {
                adapters.iter_mut().for_each(|one| one.vf = one.vf.map(|vf| vf + 1));
            }
            Fault::Renames => {
                let owners = std::mem::take(&mut in_force.owners);
                let named = |(name, owner): (String, _)| (name.replace("nic0", "enp1s0"), owner);
                in_force.owners = owners.into_iter().map(named).collect();
            }
            Fault::RepresentsNothing => nics.iter_mut().for_each(|nic| {
                nic.representors.retain(|one| one.of == FunctionName::Uplink || one.up);
            }),
            Fault::RenamesRepresentors if self.restarted => {
                let all = nics.iter_mut().flat_map(|nic| &mut nic.representors);
                (0..).zip(all).for_each(|(n, one)| one.name = format!("eth{n}"));
            }
            Fault::GivesNoReasons => adapters.iter_mut().for_each(|one| {
                (one.reason, one.vf_reason) = (Reason::Supported, Reason::Supported);
            }),
            _ => {}
        }
        Ok(in_force)
    }

    fn nic(&self) -> String {
        self.inner.nic()
    }

    fn counters(&mut self) -> Result<Vec<(String, PortStats)>> {
        let mut counters = self.inner.counters()?;
        if self.is(Fault::CountsNothing) {
            for (_, port) in &mut counters {
                (port.rx_frames, port.tx_frames) = (0, 0);
                port.drops.clear();
            }
        }
        if self.is(Fault::StalePort) {
            let stale = counters.first().map(|(_, port)| ("gone".to_owned(), port.clone()));
            counters.extend(stale);
        }
        Ok(counters)
    }

    fn stop_manager(&mut self, how: ManagerStop) -> Result<()> {
        self.managed = false;
        self.inner.stop_manager(how)
    }

    fn start_manager(&mut self) -> Result<()> {
        (self.restarted, self.managed) = (true, true);
        self.inner.start_manager()
    }

    fn attach(&mut self, station: &str) -> Result<()> {
        self.inner.attach(station)
    }

    fn leave(&mut self, station: &str, how: GuestStop) -> Result<()> {
        self.inner.leave(station, how)
    }

    fn is_attached(&mut self, station: &str) -> bool {
        self.inner.is_attached(station)
    }

    fn view(&mut self, station: &str) -> Result<GuestConfig> {
        let mut view = self.inner.view(station)?;
        if self.is(Fault::OneMac) {
            view.mac.0[5] = 0x99;
        }
        view.link_up |= self.is(Fault::LinkAlwaysUp);
        Ok(view)
    }

    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()> {
        let first_lost = self.is(Fault::LosesFirst) && std::mem::take(&mut self.changed);
        if self.is(Fault::LosesPosted) && !self.managed {
            return Ok(());
        }
        self.inner.send(station, &frames[usize::from(first_lost)..])
    }

    fn settle(&mut self) -> Result<()> {
        self.inner.settle()
    }

    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>> {
        let mut taken = self.inner.take()?;
        for (station, frames) in &mut taken {
            frames.retain(|frame| !self.loses(station, frame));
            if self.is(Fault::StripsTags) && station == WIRE {
                frames.iter_mut().for_each(|frame| *frame = untagged(frame));
            }
            if self.is(Fault::Doubles) {
                let twice = |frame: Vec<u8>| vec![frame.clone(); 1 + usize::from(frame[0] & 1)];
                *frames = std::mem::take(frames).into_iter().flat_map(twice).collect();
            }
        }
        Ok(taken)
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        let mut devices = self.inner.devices()?;
        devices.extend(self.is(Fault::UsesDevice).then(|| "/dev/vfio/7".to_owned()));
        Ok(devices)
    }

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
}

//! Settings of a NIC as an immutable table, shared by lanes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::{FrameHeader, Mac};

use crate::nic::edit::Tagging;
use crate::nic::error::{ConfigError, Field};
use crate::nic::function::FunctionMirror;
use crate::nic::map::{MacMap, key};
use crate::nic::source::Source;
use crate::nic::switchdev::Rules;
use crate::nic::{Filter, Function, Mode, NicConfig, Share, Vids};
use crate::{DropReason, PortId, Verdict};

/// Number of the next table; 0 is never used.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
/// VLAN ids, 0 (untagged) included; no function is ever in 4095.
pub(crate) const VIDS: usize = 4096;

/// A function as a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) up: bool,
    pub(crate) promiscuous: bool,
    pub(crate) mirror: Option<FunctionMirror>,
    share: Share,
    storm_limit: u32,
    tagging: Tagging,
    /// Joined groups, sorted; `None` for all.
    groups: Option<Box<[Mac]>>,
}

impl Port {
    /// The PF with the switch: up, receives all multicast in every VLAN, and sees all tags.
    const SWITCH: Self = Self {
        up: true,
        promiscuous: true,
        mirror: None,
        share: Share::DEFAULT,
        storm_limit: 0,
        tagging: Tagging::UPLINK,
        groups: None,
    };

    /// A receive queue never receives floods, whatever its owner joined.
    fn queue(function: &Function, uplink_up: bool) -> Self {
        let queue = Self::new(function, uplink_up);
        Self { promiscuous: false, groups: None, share: Share::default(), storm_limit: 0, ..queue }
    }

    fn new(function: &Function, uplink_up: bool) -> Self {
        let all = function.all_multicast || function.promiscuous;
        let sorted = |groups: &Vec<Mac>| {
            let mut groups = groups.clone();
            groups.sort_unstable();
            groups.into_boxed_slice()
        };
        Self {
            up: function.is_up(uplink_up),
            promiscuous: function.promiscuous,
            mirror: function.mirror,
            share: function.share,
            storm_limit: function.storm_limit,
            tagging: Tagging::of(function),
            groups: function.groups.as_ref().filter(|_| !all).map(sorted),
        }
    }

    /// Returns `true` if it receives frames for this group.
    pub(crate) fn hears(&self, group: Mac) -> bool {
        let listed = |groups: &[Mac]| groups.binary_search(&group).is_ok();
        self.groups.as_deref().is_none_or(|groups| group.is_broadcast() || listed(groups))
    }
}

/// The bridge's tables, built from a [`NicConfig`].
#[derive(Clone, Debug)]
pub struct Table {
    /// Unique number, by which a cache recognises its table.
    pub(crate) number: u64,
    pub(crate) macs: MacMap,
    /// By port: its source, or the reason for which all of its frames are dropped. Queues have
    /// none.
    sources: Vec<Result<Source, DropReason>>,
    /// By port; `None` without a function, and of the uplink.
    ports: Vec<Option<Port>>,
    pub(crate) trunks: Vec<Vids>,
    /// The members of each VLAN in turn, the uplink first; only those whose links are up.
    members: Vec<PortId>,
    /// By VID: range in `members`.
    groups: Box<[(u32, u32)]>,
    /// By VID: verdict on unknown unicast from the uplink. `None` without a promiscuous function;
    /// then all are dropped.
    pub(crate) unknown: Option<Box<[Verdict; VIDS]>>,
    pub(crate) mode: Mode,
    pub(crate) floods_unknown: bool,
    pub(crate) mirrored: bool,
    /// Set if every member of each VLAN receives all multicast from the uplink.
    pub(crate) all_hear: bool,
    /// Set if a switch is attached to the PF.
    pub(crate) has_switch: bool,
    uplink_up: bool,
    /// Rules of switchdev mode.
    pub(crate) rules: Option<Box<Rules>>,
}

impl Table {
    /// Builds the tables.
    ///
    /// # Errors
    /// See [`ConfigError`]; each names function and field.
    pub fn build(config: &NicConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let ports = ports(config);
        let (sources, trunks) = sources(config);
        let sources_len = sources.len();
        let (members, groups) = groups(config);
        let mut table = Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            macs: MacMap::build(&entries(config)?),
            sources,
            trunks,
            members,
            groups,
            unknown: None,
            mode: config.mode,
            floods_unknown: config.floods_unknown,
            all_hear: config.mode != Mode::Vepa
                && ports.iter().flatten().all(|port| port.groups.is_none()),
            mirrored: ports.iter().flatten().any(|port| port.mirror.is_some()),
            ports,
            has_switch: config.switch.is_some(),
            uplink_up: config.uplink_up,
            rules: config
                .switchdev
                .as_ref()
                .map(|rules| Box::new(Rules::build(rules, sources_len))),
        };
        table.find_misses();
        Ok(table)
    }

    /// Computes the verdicts on unknown unicast, once for each source.
    fn find_misses(&mut self) {
        for index in 0..self.sources.len() {
            let port = PortId(index as u16);
            let miss = self.miss(port, &[0; 16]);
            if let Some(Ok(source)) = self.sources.get_mut(index) {
                source.miss = miss;
            }
        }
        if self.ports.iter().flatten().any(|port| port.promiscuous) {
            let tagged = |vid: usize| {
                let [high, low] = (vid as u16).to_be_bytes();
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, high, low]
            };
            let miss = |vid| self.miss(PortId::UPLINK, &tagged(vid));
            self.unknown = Some(Box::new(std::array::from_fn(miss)));
        }
    }

    /// Source of a port, or the reason for which all of its frames are dropped.
    #[inline]
    pub(crate) fn source(&self, port: PortId) -> Result<&Source, DropReason> {
        match self.sources.get(port.index()) {
            Some(Ok(source)) => Ok(source),
            Some(Err(reason)) => Err(*reason),
            None => Err(DropReason::NoFunction),
        }
    }

    /// A function or a queue as a receiver.
    pub(crate) fn port(&self, port: PortId) -> Option<&Port> {
        self.ports.get(port.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn tagging(&self, port: PortId) -> Tagging {
        self.port(port).map_or(Tagging::UPLINK, |port| port.tagging)
    }

    /// Returns `true` for the uplink and for ports with a function, the switch, or a queue's owner.
    pub fn has(&self, port: PortId) -> bool {
        port == PortId::UPLINK || self.port(port).is_some()
    }

    /// A number that no other table has.
    #[inline]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The port's part of the transmit capacity; an uplink has the usual weight and no limits.
    pub fn share(&self, port: PortId) -> Share {
        self.port(port).map_or_else(Share::default, |port| port.share)
    }

    /// Broadcasts and multicasts that the port may send, in frames a second; 0 for no limit.
    pub fn storm_limit(&self, port: PortId) -> u32 {
        self.port(port).map_or(0, |port| port.storm_limit)
    }

    /// Link state of the port, as its guest sees it.
    #[inline]
    pub fn is_up(&self, port: PortId) -> bool {
        match port {
            PortId::UPLINK => self.uplink_up,
            _ => self.port(port).is_some_and(|port| port.up),
        }
    }

    /// The VLAN that a frame from a port belongs to; 0 is "untagged".
    ///
    /// Of a frame that [`classify`](Self::classify) drops, the answer has no meaning.
    #[inline]
    pub fn vid(&self, from: PortId, header: &[u8; 16]) -> u16 {
        self.source(from).map_or(0, |source| source.vid_of(FrameHeader(*header).tag_bits()))
    }

    /// The members of a VLAN whose links are up, the uplink first. Empty if none but the uplink can
    /// have a frame of it.
    #[inline]
    pub(crate) fn members(&self, vid: u16) -> &[PortId] {
        let (start, end) = self.groups.get(usize::from(vid)).copied().unwrap_or((0, 0));
        self.members.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Every port as a receiver; queues take room only if there are any.
fn ports(config: &NicConfig) -> Vec<Option<Port>> {
    let queues = config.queues.len();
    let without = PortId::vf(0).index() + config.vfs.len();
    let count = if queues > 0 { PortId::queue(0).index() + queues } else { without };
    let mut ports = vec![None; count];
    if config.switch.is_some() {
        ports[PortId::PF.index()] = Some(Port::SWITCH);
    }
    for (port, function) in config.functions() {
        ports[port.index()] = Some(Port::new(function, config.uplink_up));
    }
    for (port, function) in config.used_queues() {
        ports[port.index()] = Some(Port::queue(function, config.uplink_up));
    }
    ports
}

/// Every port as a source, and the trunks that they speak of.
fn sources(config: &NicConfig) -> (Vec<Result<Source, DropReason>>, Vec<Vids>) {
    let mut sources = vec![Err(DropReason::NoFunction); 2 + config.vfs.len()];
    let mut trunks = Vec::new();
    sources[PortId::UPLINK.index()] = match config.uplink_up {
        true => Ok(Source::uplink(config.mode)),
        false => Err(DropReason::LinkDown),
    };
    if config.switch.is_some() {
        sources[PortId::PF.index()] = Ok(Source::switch(config));
    }
    for (port, function) in config.functions() {
        let mut trunk = None;
        if !function.trunk.is_empty() {
            trunk = Some(trunks.len() as u16);
            trunks.push(function.trunk.clone());
        }
        sources[port.index()] = match function.is_up(config.uplink_up) {
            true => Ok(Source::function(port, function, trunk, config.mode)),
            false => Err(DropReason::LinkDown),
        };
    }
    (sources, trunks)
}

/// Every (MAC, VLAN) with its verdict, each once.
fn entries(config: &NicConfig) -> Result<Vec<(u64, Verdict)>, ConfigError> {
    let mut seen: HashMap<u64, (PortId, Field)> = HashMap::new();
    let mut entries = Vec::new();
    let mut add = |port, (field, mac): (Field, Mac), vid, verdict| {
        let key = key(mac.key(), vid);
        entries.push((key, verdict));
        match seen.insert(key, (port, field)) {
            None => Ok(()),
            Some((other, other_field)) => {
                Err(ConfigError::DuplicateMac { port, field, mac, vid, other, other_field })
            }
        }
    };
    for (port, function) in config.addressed() {
        let verdict = match function.is_up(config.uplink_up) {
            true => Verdict::port(port),
            false => Verdict::drop(DropReason::LinkDown),
        };
        for vid in function.vids() {
            function.macs().try_for_each(|mac| add(port, mac, vid, verdict))?;
        }
    }
    for (field, Filter { mac, vid }) in config.filters() {
        add(PortId::PF, (field, mac), vid, Verdict::port(PortId::PF))?;
    }
    Ok(entries)
}

/// The members of every VLAN that has some, and where each VLAN's begin and end.
fn groups(config: &NicConfig) -> (Vec<PortId>, Box<[(u32, u32)]>) {
    let up = config.functions().filter(|(_, function)| function.is_up(config.uplink_up));
    let mut by_vid: Vec<(u16, PortId)> =
        up.flat_map(|(port, function)| function.vids().map(move |vid| (vid, port))).collect();
    by_vid.sort_unstable();
    let mut everywhere = Vec::new();
    everywhere.extend(config.uplink_up.then_some(PortId::UPLINK));
    everywhere.extend(config.switch.as_ref().map(|_| PortId::PF));
    let mut members = Vec::new();
    let mut groups = vec![(0, 0); VIDS].into_boxed_slice();
    if config.switch.is_some() {
        // VLANs without a function share one list. 4095 names none, so that the PF has no part in
        // it; but it may send such tags, to the uplink.
        members.extend(&everywhere);
        groups.fill((0, members.len() as u32));
        groups[VIDS - 1] = (0, u32::from(config.uplink_up));
    }
    for group in by_vid.chunk_by(|a, b| a.0 == b.0) {
        let start = members.len() as u32;
        members.extend(&everywhere);
        members.extend(group.iter().map(|(_, port)| *port));
        groups[usize::from(group[0].0)] = (start, members.len() as u32);
    }
    (members, groups)
}

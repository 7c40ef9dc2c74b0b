//! A model of the bridge that is slow and obvious.

use std::collections::HashMap;

use wire::ethernet::Frame;
use wire::vlan::Tag;
use wire::{HeaderSnapshot, Mac};

use crate::nic::*;
use crate::*;

/// The rules as a reader of the module's documentation would write them down.
pub struct Model<'a> {
    config: &'a NicConfig,
    macs: HashMap<(Mac, u16), PortId>,
}

/// VLANs of a function: that of its untagged frames first, 0 for untagged.
pub(crate) fn vlans(function: &Function) -> Vec<u16> {
    let own = function.vlan.map_or(0, |vlan| vlan.vid.get());
    let others = (1..4095).filter(|vid| function.trunk.contains(*vid) && *vid != own);
    std::iter::once(own).chain(others).collect()
}

pub(crate) fn macs(function: &Function) -> Vec<Mac> {
    [&[function.mac][..], &function.extra_macs, &function.guest_macs].concat()
}

pub(crate) fn is_member(function: &Function, vid: u16) -> bool {
    let own = function.vlan.map_or(0, |vlan| vlan.vid.get());
    own == vid || function.trunk.contains(vid)
}

impl<'a> Model<'a> {
    /// `None` if two functions, queues or filters share a MAC in a VLAN.
    pub fn new(config: &'a NicConfig) -> Option<Self> {
        let mut known = HashMap::new();
        for n in 1..PORTS as u16 {
            let Some(function) = of(config, PortId(n)) else {
                continue;
            };
            for vid in vlans(function) {
                for mac in macs(function) {
                    if known.insert((mac, vid), PortId(n)).is_some() {
                        return None;
                    }
                }
            }
        }
        for filter in config.switch.iter().flatten() {
            if known.insert((filter.mac, filter.vid), PortId::PF).is_some() {
                return None;
            }
        }
        Some(Self { config, macs: known })
    }

    fn is_switch(&self, port: PortId) -> bool {
        port == PortId::PF && self.config.switch.is_some()
    }

    /// Returns `true` if the owner of an address sends through this port.
    fn sends_at(&self, mac: Mac, vid: u16, port: PortId) -> bool {
        self.macs.get(&(mac, vid)).is_some_and(|at| {
            *at == port || self.is_switch(port) && at.queue_index().is_some() && self.is_up(*at)
        })
    }

    /// Returns `true` if a port is a member of a VLAN.
    pub fn is_in(&self, port: PortId, vid: u16) -> bool {
        match of(self.config, port) {
            Some(function) => is_member(function, vid),
            None => port == PortId::UPLINK || self.is_switch(port) && vid < 4095,
        }
    }

    /// Returns `true` if frames may pass a port.
    pub fn is_up(&self, port: PortId) -> bool {
        if self.is_switch(port) {
            return true;
        }
        match of(self.config, port).map(|function| function.link) {
            None | Some(LinkState::Auto) => self.config.uplink_up,
            Some(LinkState::Enable) => true,
            Some(LinkState::Disable) => false,
        }
    }

    /// The VLAN of a frame, or `None` if its tag is not allowed; a second tag is payload.
    fn vlan(&self, from: PortId, header: &[u8; 16]) -> Option<u16> {
        let tag = Tag::parse(header).unwrap();
        let Some(function) = of(self.config, from) else {
            return Some(tag.map_or(0, |tag| tag.vid));
        };
        let own = function.vlan.map_or(0, |vlan| vlan.vid.get());
        let Some(tag) = tag else { return Some(own) };
        let allowed = match function.vlan {
            _ if !function.trunk.is_empty() => tag.vid == 0 || function.trunk.contains(tag.vid),
            Some(vlan) => vlan.protocol == VlanProtocol::Ieee8021Ad && tag.tpid == 0x8100,
            None => tag.vid == 0,
        };
        let in_tag = !function.trunk.is_empty() && tag.vid != 0;
        allowed.then_some(if in_tag { tag.vid } else { own })
    }

    /// Receivers of a multicast frame, or of unknown unicast.
    pub fn receivers(&self, from: PortId, header: &[u8; 16], vid: u16) -> Vec<PortId> {
        let frame = Frame::new(header).unwrap();
        let dst = frame.dst();
        let apart = from != PortId::UPLINK && self.config.mode != Mode::Veb;
        let reflected = from == PortId::UPLINK && self.config.mode == Mode::Vepa;
        let wants = |to: PortId| {
            let switch = Function { promiscuous: true, ..Function::new(Mac::ZERO) };
            let function = of(self.config, to).or(self.is_switch(to).then_some(&switch));
            let Some(function) = function else { return false };
            let own = self.sends_at(frame.src(), vid, to);
            let hears = match &function.groups {
                None => true,
                Some(groups) => groups.contains(&dst) || dst.is_broadcast(),
            };
            let group = hears || function.all_multicast || function.promiscuous;
            let open = from == PortId::UPLINK || self.config.floods_unknown;
            let unknown = function.promiscuous && open;
            self.is_in(to, vid)
                && !apart
                && !(reflected && own)
                && if dst.is_multicast() { group } else { unknown }
        };
        let ports = 0..2 + self.config.vfs.len() as u16;
        ports
            .map(PortId)
            .filter(|to| *to != from && self.is_up(*to))
            .filter(|to| *to == PortId::UPLINK || wants(*to))
            .collect()
    }

    /// Verdict of a frame; with `second`, a second tag follows the first, where there is one.
    pub fn action(&self, from: PortId, header: &[u8; 16], second: bool) -> Action {
        let frame = Frame::new(header).unwrap();
        let function = of(self.config, from);
        let is_source = match from {
            PortId::UPLINK => true,
            PortId::PF => function.is_some() || self.is_switch(from),
            _ => function.is_some() && from.queue_index().is_none(),
        };
        if !is_source {
            return Action::Drop(DropReason::NoFunction);
        }
        if !self.is_up(from) {
            return Action::Drop(DropReason::LinkDown);
        }
        let foreign = |function: &Function| !macs(function).contains(&frame.src());
        if function.is_some_and(|function| function.spoof_check && foreign(function)) {
            return Action::Drop(DropReason::SpoofedMac);
        }
        if frame.src().is_multicast() {
            return Action::Drop(DropReason::SourceMulticast);
        }
        let is_priority = Tag::parse(header).unwrap().is_some_and(|tag| tag.vid == 0);
        let hops = is_priority && second && function.is_some();
        let Some(vid) = self.vlan(from, header).filter(|_| !hops) else {
            return Action::Drop(DropReason::VlanForbidden);
        };
        let receivers = self.receivers(from, header, vid);
        let no_receiver = match from {
            PortId::UPLINK => Action::Drop(DropReason::NoMatch),
            _ => Action::Drop(DropReason::LinkDown),
        };
        if frame.dst().is_multicast() {
            return if receivers.is_empty() { no_receiver } else { Action::Flood(Flood::Group) };
        }
        let known = self.macs.get(&(frame.dst(), vid)).copied();
        // The owner of a queue is on the switch, from which the frame comes.
        let is_neighbour = |to: PortId| to.queue_index().is_some() && self.is_up(to);
        if known == Some(from) || self.is_switch(from) && known.is_some_and(is_neighbour) {
            return Action::Drop(DropReason::Hairpin);
        }
        match (known, self.config.mode) {
            (Some(_), Mode::Isolated) if from != PortId::UPLINK => {
                return Action::Drop(DropReason::Isolated);
            }
            (Some(_), Mode::Vepa) if from != PortId::UPLINK => (),
            (Some(to), _) if !self.is_up(to) => return Action::Drop(DropReason::LinkDown),
            (Some(to), Mode::Vepa) => {
                let by_switch = to.queue_index().is_some() && self.config.switch.is_some();
                let home = if by_switch { PortId::PF } else { to };
                return match self.sends_at(frame.src(), vid, home) {
                    true => Action::Drop(DropReason::Hairpin),
                    false => Action::Port(to),
                };
            }
            (Some(to), _) => return Action::Port(to),
            (None, _) => (),
        }
        match receivers[..] {
            [] => no_receiver,
            [to] => Action::Port(to),
            _ => Action::Flood(Flood::Group),
        }
    }

    /// The frame as a receiver gets it: tags are taken off and put on as on a bridge.
    pub fn edited(&self, from: PortId, to: PortId, header: &[u8; 16]) -> Vec<u8> {
        let vid = self.vlan(from, header).unwrap();
        let tag = Tag::parse(header).unwrap();
        let payload = |function: &Function| function.trunk.is_empty();
        let is_payload = of(self.config, from).is_some_and(payload);
        if vid == 0 {
            return header.to_vec();
        }
        let bare = match tag {
            Some(_) if !is_payload => [&header[..12], &header[16..]].concat(),
            _ => header.to_vec(),
        };
        let tagged = match of(self.config, to) {
            None => true,
            Some(to) => to.trunk.contains(vid) && to.vlan.is_none_or(|vlan| vlan.vid.get() != vid),
        };
        if !tagged {
            return bare;
        }
        let own = tag.filter(|tag| !is_payload && tag.vid != 0);
        let put_on = own.unwrap_or_else(|| {
            let vlan = of(self.config, from).unwrap().vlan.unwrap();
            let tpid = match vlan.protocol {
                VlanProtocol::Ieee8021Q => 0x8100,
                VlanProtocol::Ieee8021Ad => 0x88a8,
            };
            Tag { tpid, pcp: vlan.qos, dei: false, vid }
        });
        [&bare[..12], &put_on.to_bytes(), &bare[12..]].concat()
    }
}

pub(crate) fn of(config: &NicConfig, port: PortId) -> Option<&Function> {
    match port {
        PortId::UPLINK => None,
        PortId::PF => config.pf.as_ref(),
        PortId(n @ 257..) => config.queues.get(usize::from(n) - 257)?.as_ref(),
        _ => config.vfs.get(usize::from(port.vf_index()?))?.as_ref(),
    }
}

/// A header; a tag is a TPID and a TCI.
pub fn header(dst: Mac, src: Mac, tag: Option<(u16, u16)>) -> [u8; 16] {
    let (kind, next) = tag.unwrap_or((0x0800, 0x4500));
    let mut header = [0; 16];
    header[..6].copy_from_slice(&dst.0);
    header[6..12].copy_from_slice(&src.0);
    header[12..14].copy_from_slice(&kind.to_be_bytes());
    header[14..].copy_from_slice(&next.to_be_bytes());
    header
}

/// The longer snapshot of a frame in which a second tag follows, or none.
pub fn with_second(header: &[u8; 16], second: bool) -> HeaderSnapshot {
    let behind: [u8; 4] = if second { [0x81, 0, 0, 2] } else { [0x08, 0, 0x45, 0] };
    HeaderSnapshot::of_frame(&[&header[..], &behind].concat())
}

/// A header after an edit.
pub fn apply(edit: VlanEdit, header: &[u8; 16]) -> Vec<u8> {
    let (addresses, rest) = header.split_at(12);
    match edit {
        VlanEdit::None => header.to_vec(),
        VlanEdit::Pop => [addresses, &rest[4..]].concat(),
        VlanEdit::Push(tag) => [addresses, &tag, rest].concat(),
        VlanEdit::Retag(tag) => [addresses, &tag].concat(),
    }
}

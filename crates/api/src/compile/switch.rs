//! The switch on a NIC's PF: ports, known addresses, rules and mirrors.

use std::collections::BTreeSet;
use std::sync::Arc;

use bridge::PortId;
use bridge::nic::Filter;
use bridge::switch::{
    Beyond, Learning, Native, PortConfig, StaticEntry, Storm, SwitchConfig, SwitchMirror, VidSet,
    Vlans,
};
use model::state::{
    self, MirrorDirection, PathInForce, Problem, Problems, SwitchPort, UPLINK, Vxlan,
};
use wire::{Mac, Vid};

use super::fields::Fields;
use super::function::{FunctionEntry, Member, NicScope};
use super::ports::{MonitorList, function_port, plain_port};
use super::{CompiledPort, CompiledSwitch, Numbers, PortLocation, PortOwner, acl};

/// Default limit of addresses learned at a port.
const MAX_MACS_USUAL: u32 = 256;

/// A compiled switch, and the filters that the NIC needs for it.
pub(super) struct BuiltSwitch {
    pub(super) switch: CompiledSwitch,
    /// Addresses behind the PF, each with its field in the document.
    pub(super) filters: Vec<(Filter, String)>,
    pub(super) ports: Vec<CompiledPort>,
}

/// Compiles the switch of a NIC. `vfs` are the NIC's VFs, which are behind port 0.
pub(super) fn switch(
    scope: &NicScope<'_>,
    vfs: &[&FunctionEntry<'_>],
    monitors: &mut MonitorList,
    old: Option<&CompiledSwitch>,
) -> Result<BuiltSwitch, Problems> {
    let (wanted, at) = scope.switch.as_ref().expect("the caller has seen a switch");
    let old = old.filter(|old| old.name == wanted.name);
    let none = Numbers::default();
    let before = old.map_or(&none, |old| &old.numbers);
    let mut build = Build {
        scope,
        wanted,
        at,
        numbers: numbers(scope, wanted, at, before)?,
        config: SwitchConfig::default(),
        fields: Fields { at: at.clone(), ..Fields::default() },
        filters: Vec::new(),
        ports: Vec::new(),
        taps: Vec::new(),
    };
    build.uplink();
    for member in scope.members.iter().filter(|member| is_switched(member, wanted)) {
        build.adapter(*member, monitors);
    }
    wanted.tunnels.iter().enumerate().for_each(|(i, tunnel)| build.tunnel(tunnel, i));
    build.vfs(vfs);
    build.statics();
    let table = bridge::switch::Table::build(&build.config)
        .map_err(|error| build.fields.problem(&build.config, error))?;
    let left = forgotten(&build, before, old);
    let switch = CompiledSwitch {
        name: wanted.name.clone(),
        config: build.config,
        table: Arc::new(table),
        ageing_s: wanted.ageing_s,
        taps: build.taps,
        acls: build.fields.acls.into_iter().map(|(name, _)| name).collect(),
        left,
        numbers: build.numbers,
    };
    Ok(BuiltSwitch { switch, filters: build.filters, ports: build.ports })
}

/// Ports whose learned addresses must be flushed: freed ports, ports with a lower limit, and ports
/// that return and may learn nothing.
fn forgotten(build: &Build<'_, '_>, before: &Numbers, old: Option<&CompiledSwitch>) -> Vec<PortId> {
    let limits = |config: &SwitchConfig| -> Vec<Option<u32>> {
        config.ports.iter().map(|port| port.as_ref().map(|port| port.learning.limit)).collect()
    };
    let earlier = old.map_or_else(Vec::new, |old| limits(&old.config));
    let now = limits(&build.config).into_iter().enumerate();
    let narrowed = now.filter(|(index, limit)| {
        let earlier = earlier.get(*index).copied().flatten();
        limit.is_some_and(|limit| earlier.map_or(limit == 0, |earlier| limit < earlier))
    });
    let mut all = build.numbers.left(before);
    all.extend(narrowed.map(|(index, _)| PortId(index as u16)));
    all
}

/// `true` if an adapter sends through the switch.
fn is_switched(member: &Member<'_>, switch: &state::Switch) -> bool {
    let on_it = member.adapter.switch.as_deref() == Some(&switch.name);
    on_it && matches!(member.given.path, PathInForce::Vmq | PathInForce::Synthetic)
}

/// Name of the port that receives copies of an adapter's frames. Contains a space, so it differs
/// from every adapter's name.
fn tap_name(adapter: &str) -> String {
    format!("mirror {adapter}")
}

/// Name of a tunnel's port; contains a space too.
fn tunnel_name(tunnel: &str) -> String {
    format!("vxlan {tunnel}")
}

fn numbers(
    scope: &NicScope<'_>,
    switch: &state::Switch,
    at: &str,
    before: &Numbers,
) -> Result<Numbers, Problems> {
    let on_it = |member: &&Member<'_>| member.adapter.switch.as_deref() == Some(&switch.name);
    let members: Vec<&Member<'_>> = scope.members.iter().filter(on_it).collect();
    let stay: BTreeSet<&str> = members.iter().map(|member| &*member.adapter.name).collect();
    let here = members.iter().filter(|member| is_switched(member, switch));
    let mirrored = here.clone().filter(|member| member.adapter.settings.mirror.is_some());
    let taps: Vec<String> = mirrored.map(|member| tap_name(&member.adapter.name)).collect();
    let tunnels: Vec<String> =
        switch.tunnels.iter().map(|tunnel| tunnel_name(&tunnel.name)).collect();
    let names = here.map(|member| member.adapter.name.as_str());
    let need = names.chain(taps.iter().chain(&tunnels).map(String::as_str));
    let need: Vec<&str> = need.collect();
    before.next(&need, &stay).map_err(|ports| {
        let error = format!("has {ports} adapters, tunnels and mirrors of adapters on it");
        let most = bridge::switch::MAX_PORTS - 1;
        let allowed = format!("put some on another switch or on VFs; {most} is the most");
        Problem::new(at, (), error, allowed).into()
    })
}

struct Build<'s, 'a> {
    scope: &'s NicScope<'a>,
    wanted: &'a state::Switch,
    /// `switch[0]`.
    at: &'s str,
    numbers: Numbers,
    config: SwitchConfig,
    fields: Fields,
    filters: Vec<(Filter, String)>,
    ports: Vec<CompiledPort>,
    taps: Vec<(PortId, usize)>,
}

impl<'a> Build<'_, 'a> {
    fn uplink(&mut self) {
        let mut port = PortConfig::uplink();
        if let Some(wanted) = self.wanted.port(UPLINK) {
            if !wanted.trunks.is_empty() {
                let allowed = wanted.trunks.iter().flat_map(|range| range.first..=range.last);
                let native = wanted.native_vlan.and_then(|vlan| Vid::new(vlan).ok());
                port.vlans = Vlans::Trunk {
                    allowed: allowed.filter_map(|vlan| Vid::new(vlan).ok()).collect(),
                    native: native.map_or(Native::Untagged, Native::Vlan),
                };
            }
            let limit = wanted.max_macs.map_or(u32::MAX, u32::from);
            port.learning = Learning { limit, beyond: Beyond::Forward };
            self.policy(&mut port, wanted);
        }
        self.put(PortId::UPLINK, port);
    }

    /// Settings of a switch port, apart from the adapter's own.
    fn policy(&mut self, port: &mut PortConfig, wanted: &SwitchPort) {
        port.flood_unknown = wanted.unknown_unicast;
        port.isolated = wanted.isolated;
        port.dhcp_guard = wanted.dhcp_guard;
        port.router_guard = wanted.router_guard;
        if !wanted.acl.is_empty() {
            let entry = self.wanted.ports.iter().position(|one| one.adapter == wanted.adapter);
            let entry = format!("{}.port[{}]", self.at, entry.unwrap_or(0));
            port.acl = Some(self.config.acls.len());
            self.config.acls.push(acl::acl(&wanted.acl));
            self.fields.acls.push((wanted.adapter.clone(), entry));
        }
    }

    /// An adapter on path `synthetic` or `vmq`.
    fn adapter(&mut self, member: Member<'a>, monitors: &mut MonitorList) {
        let entry = self.scope.adapter(member);
        let name = &member.adapter.name;
        let up = entry.link.is_up(self.scope.uplink_up);
        let id = self.numbers.get(name).expect("each adapter in the switch has a number");
        self.fields.ports.push((id, entry.at.clone()));
        let queue = member.given.queue.map(|queue| bridge::PortId::queue(queue as u8));
        let location = PortLocation::Switch(id);
        let of = PortOwner::Adapter(name.clone());
        self.ports.push(CompiledPort {
            queue,
            ..function_port(of, location, &entry, self.scope.uplink_up)
        });
        if up {
            let port = self.port(&entry, self.wanted.port(name));
            self.put(id, port);
            self.mirror(&entry, id, monitors);
        }
        let vids = entry.settings.vids();
        for (mac, field) in &entry.macs {
            for vid in &vids {
                self.know(*mac, *vid, if up { id } else { PortId::UPLINK }, field);
                if up && queue.is_none() {
                    self.filter(*mac, *vid, field);
                }
            }
        }
    }

    /// A tunnel: an access port of its VLAN without a limit of learned addresses.
    fn tunnel(&mut self, tunnel: &Vxlan, index: usize) {
        let id = self.numbers.get(&tunnel_name(&tunnel.name)).expect("each tunnel has a number");
        self.fields.ports.push((id, format!("{}.vxlan[{index}]", self.at)));
        let wanted = self.wanted.port(&tunnel.name);
        let mut port = PortConfig::access(tunnel.vlan.and_then(|vlan| Vid::new(vlan).ok()));
        let limit = wanted.and_then(|wanted| wanted.max_macs).map_or(u32::MAX, u32::from);
        port.learning = Learning { limit, beyond: Beyond::Forward };
        if let Some(wanted) = wanted {
            self.policy(&mut port, wanted);
        }
        self.put(id, port);
        self.ports.push(plain_port(
            PortOwner::Tunnel(tunnel.name.clone()),
            PortLocation::Switch(id),
            true,
        ));
    }

    fn port(&mut self, entry: &FunctionEntry<'_>, wanted: Option<&SwitchPort>) -> PortConfig {
        let settings = entry.settings;
        let mut port = PortConfig::access(settings.native());
        if !settings.trunks.is_empty() {
            let native = settings.native().map_or(Native::Untagged, Native::Vlan);
            port.vlans = Vlans::Trunk { allowed: settings.tagged().collect::<VidSet>(), native };
        }
        port.tagging = entry.tagging();
        let max_macs = wanted.and_then(|wanted| wanted.max_macs);
        port.learning = match settings.spoof_check {
            true => Learning { limit: 0, beyond: Beyond::Drop },
            false => Learning {
                limit: max_macs.map_or(MAX_MACS_USUAL, u32::from),
                beyond: Beyond::Forward,
            },
        };
        let limit = Some(settings.storm_limit_pps).filter(|limit| *limit > 0);
        port.storm = Storm { broadcast: limit, multicast: limit, unknown: limit };
        if let Some(wanted) = wanted {
            self.policy(&mut port, wanted);
        }
        port
    }

    /// Mirrors an adapter's frames. The NIC mirrors frames that it receives through a queue.
    fn mirror(&mut self, entry: &FunctionEntry<'_>, id: PortId, monitors: &mut MonitorList) {
        let Some(mirror) = &entry.settings.mirror else {
            return;
        };
        let to = self.numbers.get(&tap_name(&entry.label)).expect("each mirror has a number");
        let tap = PortConfig {
            vlans: Vlans::Trunk { allowed: VidSet::new(), native: Native::Refused },
            flood_unknown: false,
            ..PortConfig::access(None)
        };
        self.put(to, tap);
        self.taps.push((to, monitors.number(entry, mirror)));
        let ports = |wanted: bool| if wanted { vec![id] } else { Vec::new() };
        let (sends, receives) =
            (mirror.direction != MirrorDirection::Rx, mirror.direction != MirrorDirection::Tx);
        self.config.mirrors.push(SwitchMirror {
            to,
            ingress: ports(sends),
            egress: ports(receives),
        });
        self.fields.mirrors.push(format!("{}.mirror", entry.at));
    }

    /// The NIC's VFs are behind port 0.
    fn vfs(&mut self, vfs: &[&FunctionEntry<'_>]) {
        for entry in vfs {
            let vids = entry.settings.vids();
            for (mac, field) in &entry.macs {
                for vid in &vids {
                    self.know(*mac, self.inward(*vid), PortId::UPLINK, field);
                }
            }
        }
    }

    /// Static addresses of the document. Those of an adapter on a VF are added with the VF.
    fn statics(&mut self) {
        for (field, entry) in self.scope.statics() {
            let (mac, vid) = (entry.mac.0, entry.vlan.unwrap_or(0));
            let mut members = self.scope.members.iter();
            let member = members.find(|member| member.adapter.name == entry.port);
            if member.is_some_and(|member| member.given.path == PathInForce::Vf) {
                continue;
            }
            let id = self
                .numbers
                .get(&entry.port)
                .or_else(|| self.numbers.get(&tunnel_name(&entry.port)));
            let id = id.filter(|id| self.has(*id));
            if entry.port == UPLINK {
                self.keep(mac, vid, PortId::UPLINK, &field);
            } else if let Some(id) = id {
                self.keep(mac, vid, id, &field);
                self.filter(mac, vid, &field);
            } else {
                self.know(mac, vid, PortId::UPLINK, &field);
            }
        }
    }

    fn has(&self, port: PortId) -> bool {
        self.config.ports.get(port.index()).is_some_and(Option::is_some)
    }

    fn put(&mut self, id: PortId, port: PortConfig) {
        if self.config.ports.len() <= id.index() {
            self.config.ports.resize(id.index() + 1, None);
        }
        self.config.ports[id.index()] = Some(port);
    }

    /// Adds a static address at a port, if the port is in its VLAN.
    fn know(&mut self, mac: Mac, vid: u16, port: PortId, field: &str) {
        let config = self.config.ports.get(port.index()).and_then(Option::as_ref);
        if config.is_some_and(|config| config.vlans.contains(vid)) {
            self.keep(mac, vid, port, field);
        }
    }

    /// Stores an entry, up to one more than the table takes: that one makes the table refuse. Long
    /// lists of addresses and VLANs in a small document can yield a billion entries.
    fn keep(&mut self, mac: Mac, vid: u16, port: PortId, field: &str) {
        if self.config.statics.len() > bridge::switch::MAX_STATICS {
            return;
        }
        self.config.statics.push(StaticEntry { mac, vlan: Vid::new(vid).ok(), port });
        self.fields.statics.push(field.to_owned());
    }

    /// Adds a NIC filter for an address behind the PF, if port 0 is in its VLAN.
    fn filter(&mut self, mac: Mac, vid: u16, field: &str) {
        if let Some(vid) =
            self.outward(vid).filter(|_| self.filters.len() <= bridge::nic::MAX_ADDRESSES)
        {
            self.filters.push((Filter { mac, vid }, field.to_owned()));
        }
    }

    /// VLAN of the switch as the NIC sees it: the native VLAN of port 0 is untagged there.
    fn outward(&self, vid: u16) -> Option<u16> {
        let vlans = &self.config.ports.first()?.as_ref()?.vlans;
        let untagged = vid == 0
            || matches!(vlans, Vlans::Trunk { native: Native::Vlan(native), .. } if native.get() == vid);
        vlans.contains(vid).then_some(if untagged { 0 } else { vid })
    }

    /// The inverse of [`outward`](Self::outward).
    fn inward(&self, vid: u16) -> u16 {
        let vlans = self.config.ports.first().and_then(Option::as_ref).map(|port| &port.vlans);
        match vlans {
            Some(Vlans::Trunk { native: Native::Vlan(native), .. }) if vid == 0 => native.get(),
            _ => vid,
        }
    }
}

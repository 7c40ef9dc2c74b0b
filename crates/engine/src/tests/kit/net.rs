//! A soft NIC with a switch on its PF, and adapters whose paths may change.

use std::sync::Arc;

use bridge::PortId;
use bridge::nic::{Budget, Filter, Function, NicConfig, PortVlan, Share, Vids, VlanProtocol};
use bridge::switch::{
    Beyond, Fdb, Learning, Native, PortConfig, State, StaticEntry, SwitchConfig, Tagging, Vlans,
};
use wire::{Mac, Vid};

use super::{Bench, Guest, mac};
use crate::{AclHits, ForwardingSnapshot, Plug, Port, PortLocation, SnapshotSpec, SwitchSpec};

/// The path of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Vf,
    Vmq,
    Synthetic,
}

/// The VLANs of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    /// It sends no tags: access port of this VLAN, or untagged for 0.
    Access(u16),
    /// It sends these tags; untagged frames are in `native`, or untagged if that is 0.
    Trunk { native: u16, vids: Vec<u16> },
}

impl Tags {
    /// Every VLAN that it is a member of.
    pub(crate) fn vids(&self) -> Vec<u16> {
        match self {
            Tags::Access(vid) => vec![*vid],
            Tags::Trunk { native, vids } => {
                [&[*native], &vids[..]].concat().into_iter().collect::<Set>().into_iter().collect()
            }
        }
    }
}

type Set = std::collections::BTreeSet<u16>;

/// An adapter; number n has the MAC `mac(n)`.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    pub(crate) path: Path,
    pub(crate) tags: Tags,
    /// The priority of the tag that is put on its untagged frames.
    pub(crate) qos: u8,
    /// The tag is a service tag, and the guest's customer tags are payload.
    pub(crate) service: bool,
}

impl Adapter {
    pub(crate) fn new(path: Path, tags: Tags) -> Adapter {
        Adapter { path, tags, qos: 0, service: false }
    }

    /// An untagged one.
    pub(crate) fn plain(path: Path) -> Adapter {
        Adapter::new(path, Tags::Access(0))
    }
}

/// Settings of a snapshot, before the tables are built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) nic: NicConfig,
    pub(crate) switch: SwitchConfig,
}

/// A bench of which adapter n is VF n, port n + 1 of the switch, or that and queue n.
pub(crate) struct Net {
    pub(crate) bench: Bench,
    pub(crate) uplink: Arc<Port>,
    pub(crate) ports: Vec<Arc<Port>>,
    pub(crate) state: Arc<State>,
    pub(crate) hits: Arc<AclHits>,
    pub(crate) budget: Option<Arc<std::sync::Mutex<Budget>>>,
    /// Behind the numbers of [`bridge::nic::MirrorTarget::Capture`].
    pub(crate) captures: Vec<Arc<Port>>,
    /// At ports of the switch.
    pub(crate) taps: Vec<(bridge::PortId, Arc<Port>)>,
    /// Unknown unicast is flooded; else it goes to the uplink only.
    pub(crate) floods_unknown: bool,
}

fn vid(vid: u16) -> Vid {
    Vid::new(vid).unwrap()
}

/// Adapter n's port on the switch.
pub(crate) fn switch_port(n: usize) -> bridge::PortId {
    bridge::PortId(n as u16 + 1)
}

fn function(mac: Mac, Adapter { tags, qos, service, .. }: &Adapter) -> Function {
    let protocol = if *service { VlanProtocol::Ieee8021Ad } else { VlanProtocol::Ieee8021Q };
    let vlan =
        |native: &u16| (*native > 0).then(|| PortVlan { vid: vid(*native), qos: *qos, protocol });
    match tags {
        Tags::Access(native) => Function { vlan: vlan(native), ..Function::new(mac) },
        Tags::Trunk { native, vids } => {
            // The NIC takes its tag for the native VLAN only if that is on the list; the switch
            // does.
            let all = vids.iter().chain(Some(native).filter(|native| **native > 0));
            let trunk: Vids = all.map(|n| vid(*n)).collect();
            Function { vlan: vlan(native), trunk, ..Function::new(mac) }
        }
    }
}

fn vlans(tags: &Tags) -> Vlans {
    match tags {
        Tags::Access(0) => Vlans::Access(None),
        Tags::Access(native) => Vlans::Access(Some(vid(*native))),
        Tags::Trunk { native, vids } => Vlans::Trunk {
            allowed: vids.iter().map(|n| vid(*n)).collect(),
            native: if *native == 0 { Native::Untagged } else { Native::Vlan(vid(*native)) },
        },
    }
}

impl Net {
    /// An uplink and ports for so many adapters, on no path yet.
    pub(crate) fn new(adapters: usize, lanes: usize, pairs: usize) -> Net {
        let mut bench = Bench::bare(lanes);
        let nic = bench.fabric.nics()[0].clone();
        let mut add = |name: &str| bench.fabric.add_port(&nic, name, pairs).unwrap();
        let uplink = add("n/uplink");
        let ports = (0..adapters).map(|n| add(&format!("n/a{n}"))).collect();
        Net {
            bench,
            uplink,
            ports,
            state: Arc::new(State::new(Fdb::new(1024, 7).unwrap())),
            hits: Arc::default(),
            budget: None,
            captures: Vec::new(),
            taps: Vec::new(),
            floods_unknown: false,
        }
    }

    /// A net with these adapters.
    pub(crate) fn of(adapters: &[Adapter], lanes: usize) -> Net {
        let net = Net::new(adapters.len(), lanes, 1);
        net.apply(adapters);
        net
    }

    /// Settings for the paths and VLANs of these adapters.
    pub(crate) fn settings(&self, adapters: &[Adapter]) -> Settings {
        let mut made = Settings::default();
        let mut filters = Vec::new();
        made.nic.floods_unknown = self.floods_unknown;
        made.switch.ports.push(Some(PortConfig::uplink()));
        for (n, adapter) in adapters.iter().enumerate() {
            let Adapter { path, tags, qos, service } = adapter;
            let (own, at) = (mac(n as u8), function(mac(n as u8), adapter));
            made.nic.vfs.push((*path == Path::Vf).then(|| at.clone()));
            made.nic.queues.push((*path == Path::Vmq).then_some(at));
            let on_switch = (*path != Path::Vf).then(|| PortConfig {
                vlans: vlans(tags),
                tagging: Tagging { qos: *qos, service: *service },
                learning: Learning { limit: 0, beyond: Beyond::Drop },
                flood_unknown: self.floods_unknown,
                ..PortConfig::access(None)
            });
            let port = if on_switch.is_some() { switch_port(n) } else { bridge::PortId::UPLINK };
            made.switch.ports.push(on_switch);
            for n in tags.vids() {
                let vlan = Vid::new(n).ok();
                made.switch.statics.push(StaticEntry { mac: own, vlan, port });
                filters.extend((*path == Path::Synthetic).then_some(Filter { mac: own, vid: n }));
            }
        }
        made.nic.switch = Some(filters);
        made
    }

    /// Puts the adapters on their paths.
    pub(crate) fn apply(&self, adapters: &[Adapter]) {
        self.put(self.snapshot(adapters, self.settings(adapters)));
    }

    /// As [`apply`](Self::apply), after a change to the settings.
    pub(crate) fn apply_with(&self, adapters: &[Adapter], change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings(adapters);
        change(&mut settings);
        self.put(self.snapshot(adapters, settings));
    }

    pub(crate) fn put(&self, snapshot: ForwardingSnapshot) {
        self.bench.fabric.nics()[0].set_snapshot(snapshot);
    }

    pub(crate) fn snapshot(&self, adapters: &[Adapter], settings: Settings) -> ForwardingSnapshot {
        let table = bridge::switch::Table::build(&settings.switch).unwrap();
        let plug = |port: &Arc<Port>, location| Plug {
            port: port.clone(),
            location,
            share: Share::default(),
        };
        let mut plugs = vec![plug(&self.uplink, PortLocation::Function(PortId::UPLINK))];
        let mut queues = Vec::new();
        for (n, adapter) in adapters.iter().enumerate() {
            plugs.push(plug(
                &self.ports[n],
                match adapter.path {
                    Path::Vf => PortLocation::Function(PortId::vf(n as u8)),
                    Path::Vmq | Path::Synthetic => PortLocation::Switch(switch_port(n)),
                },
            ));
            if adapter.path == Path::Vmq {
                queues.push((PortId::queue(n as u8), self.ports[n].clone()));
            }
        }
        ForwardingSnapshot::new(SnapshotSpec {
            switch: Some(SwitchSpec {
                table: Arc::new(table),
                state: self.state.clone(),
                hits: self.hits.clone(),
                monitors: self.taps.clone(),
            }),
            queues,
            monitors: self.captures.iter().cloned().map(Some).collect(),
            budget: self.budget.clone(),
            ..SnapshotSpec::new(bridge::nic::Table::build(&settings.nic).unwrap(), plugs)
        })
    }

    /// A port that only receives, and the guest that listens there.
    pub(crate) fn listener(&mut self, label: &str) -> (Arc<Port>, Guest) {
        let nic = self.bench.fabric.nics()[0].clone();
        let port = self.bench.fabric.add_monitor(&nic, label).unwrap();
        let guest = Guest::new();
        guest.attach_receive(&port, 0);
        (port, guest)
    }

    /// The port of an adapter, or after the last that of the uplink.
    pub(crate) fn port(&self, n: usize) -> &Arc<Port> {
        self.ports.get(n).unwrap_or(&self.uplink)
    }

    /// A guest on each adapter, and after these one on the uplink.
    pub(crate) fn guests(&self) -> Vec<Guest> {
        (0..=self.ports.len())
            .map(|n| {
                let guest = Guest::new();
                guest.attach(self.port(n));
                guest
            })
            .collect()
    }
}

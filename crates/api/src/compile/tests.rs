//! Documents, compiled; and frames that go through the tables that came of it.

mod errors;
mod paths;
mod settings;
mod switchdev;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet};

use bridge::switch::{Fdb, HeaderSnapshot};
use model::state::{Facts, allocate};
use model::testing::{state, with};
use serde_json::{Value, json};
use wire::{FrameHeader, Mac};

use super::*;

/// The `n`th MAC.
fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, n])
}

/// Adapter `name` with the `n`th MAC on `sw0`, on this path.
fn adapter(name: &str, n: u8, path: &str) -> Value {
    json!({
        "name": name, "switch": "sw0", "mac": mac(n).to_string(), "path": path,
        "iov_weight": if path == "vf" { 10 } else { 0 },
        "attachment": {"socket": format!("/run/shunt/{name}.sock")},
    })
}

/// A NIC of four VFs with an iov switch, and adapters on all paths: `v`, `w` on VFs, `q` on a
/// queue, `s`, `t` on the switch.
fn document() -> Value {
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "total_vfs": 4, "num_vfs": 4, "vmq_queues": 2,
            "uplink": {"socket": "/run/shunt/wire.sock"},
        }],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
        "adapter": [
            adapter("v", 1, "vf"), adapter("w", 2, "vf"), adapter("q", 3, "vmq"),
            adapter("s", 4, "synthetic"), adapter("t", 5, "synthetic"),
        ],
    })
}

/// The same with one adapter's field set.
fn but(n: usize, field: &str, value: Value) -> Value {
    with(document(), &format!("/adapter/{n}/{field}"), value)
}

fn compiled(document: &Value) -> Compiled {
    compiled_after(document, &LiveLinks::default(), None)
}

fn compiled_after(document: &Value, live: &LiveLinks, before: Option<&Compiled>) -> Compiled {
    tried(document, live, before).unwrap_or_else(|problems| panic!("{problems}"))
}

fn tried(
    document: &Value,
    live: &LiveLinks,
    before: Option<&Compiled>,
) -> Result<Compiled, Problems> {
    let state = state(document);
    let given = allocate(&state, &Facts::default());
    compile(&state, &given, live, before)
}

/// A NIC as its lanes would drive it, of which the way of each frame is followed to its end.
struct World<'a> {
    nic: &'a CompiledNic,
    switch: bridge::switch::State,
    /// Reasons of drops since the last call.
    drops: BTreeSet<&'static str>,
    /// Labels of monitors that received copies.
    copies: Vec<String>,
    /// Matches of each rule.
    counters: Vec<u64>,
}

/// Receivers of a frame, with the number of copies. A tagged frame adds VLAN and priority, and `s`
/// for a service tag: `web`, `web@5`, `web@5/3`, `web@s5`.
type Got = BTreeMap<String, usize>;

fn got(names: &[&str]) -> Got {
    let mut got = Got::new();
    names.iter().for_each(|name| *got.entry((*name).to_owned()).or_default() += 1);
    got
}

/// A frame; a tag is a VLAN.
fn frame(dst: Mac, src: Mac, tag: Option<u16>, rest: &[u8]) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    frame.extend(tag.iter().flat_map(|vlan| [0x81, 0, (vlan >> 8) as u8, *vlan as u8]));
    frame.extend(if rest.is_empty() { &[0x08, 0x06] } else { rest });
    frame.resize(64, 0);
    frame
}

/// UDP over IPv4 from port 67, without its Ethernet addresses.
const DHCP_ANSWER: [u8; 30] = [
    8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 67, 0, 68, 0, 8,
    0, 0,
];

impl<'a> World<'a> {
    /// The wire's address, the 99th, has been seen already.
    fn new(nic: &'a CompiledNic) -> Self {
        let mut world = World::silent(nic);
        world.send("wire", Mac::BROADCAST, mac(99));
        world
    }

    fn silent(nic: &'a CompiledNic) -> Self {
        World {
            nic,
            switch: bridge::switch::State::new(Fdb::new(1024, 7).unwrap()),
            drops: BTreeSet::new(),
            copies: Vec::new(),
            counters: vec![0; nic.switch.as_ref().map_or(0, |one| one.table.counters_len())],
        }
    }

    /// Receivers of an untagged frame from `from`: an adapter, `wire` or `pf`.
    fn send(&mut self, from: &str, dst: Mac, src: Mac) -> Got {
        self.send_frame(from, &frame(dst, src, None, &[]))
    }

    fn send_tagged(&mut self, from: &str, dst: Mac, src: Mac, vlan: u16) -> Got {
        self.send_frame(from, &frame(dst, src, Some(vlan), &[]))
    }

    fn send_frame(&mut self, from: &str, frame: &[u8]) -> Got {
        let (mut got, location) = (Got::new(), self.location(from));
        (self.drops, self.copies) = (BTreeSet::new(), Vec::new());
        match location {
            Some(PortLocation::Function(port)) => self.in_nic(port, frame, &mut got),
            Some(PortLocation::Switch(port)) => self.in_switch(port, frame, &mut got),
            Some(PortLocation::Piped(port)) => self.in_pipe(port, frame, &mut got),
            Some(PortLocation::Representor(of)) => {
                self.arrives(PortLocation::Piped(of), None, frame, &mut got)
            }
            None => {}
        }
        got
    }

    fn location(&self, name: &str) -> Option<PortLocation> {
        let is_it = |plug: &&CompiledPort| match &plug.of {
            PortOwner::Uplink => name == "wire",
            PortOwner::Pf => name == "pf",
            PortOwner::Adapter(is) | PortOwner::Tunnel(is) => is == name,
            PortOwner::Representor(of) => of.port_name() == name,
        };
        self.nic.ports.iter().find(is_it).map(|plug| plug.location)
    }

    /// Why the last frame was dropped somewhere.
    fn dropped(&self) -> Vec<&str> {
        self.drops.iter().copied().collect()
    }

    fn arrives(
        &self,
        location: PortLocation,
        queue: Option<bridge::PortId>,
        frame: &[u8],
        got: &mut Got,
    ) {
        let here = |plug: &&CompiledPort| match queue {
            Some(_) => plug.queue == queue,
            None => plug.location == location,
        };
        let Some(plug) = self.nic.ports.iter().find(here) else { return };
        let name = match &plug.of {
            PortOwner::Uplink => "wire".to_owned(),
            PortOwner::Pf => "pf".to_owned(),
            PortOwner::Adapter(name) | PortOwner::Tunnel(name) => name.clone(),
            PortOwner::Representor(of) => of.port_name(),
        };
        let tag = FrameHeader::of_frame(frame).unwrap().tag();
        let name = tag.map_or(name.clone(), |tag| {
            let service = if tag.tpid == 0x88a8 { "s" } else { "" };
            let priority = if tag.pcp > 0 { format!("/{}", tag.pcp) } else { String::new() };
            format!("{name}@{service}{}{priority}", tag.vid)
        });
        *got.entry(name).or_default() += 1;
    }

    /// The way of a frame in switchdev mode, tags aside.
    fn in_pipe(&mut self, from: bridge::PortId, frame: &[u8], got: &mut Got) {
        let (header, snapshot) =
            (FrameHeader::of_frame(frame).unwrap().0, HeaderSnapshot::of_frame(frame));
        let (mut actions, table) = (bridge::nic::SwitchdevActions::new(), &self.nic.table);
        table.sort(from, &[header], &[snapshot], &mut actions);
        let to = match actions.as_slice()[0] {
            bridge::nic::SwitchdevAction::Drop(reason) => {
                self.drops.insert(reason.name());
                return;
            }
            bridge::nic::SwitchdevAction::Slow => bridge::nic::RuleTarget::Representor,
            bridge::nic::SwitchdevAction::Rule(number) => table.rule(number).unwrap().to,
        };
        match to {
            bridge::nic::RuleTarget::Port(to) => {
                self.arrives(PortLocation::Piped(to), None, frame, got)
            }
            bridge::nic::RuleTarget::Representor => {
                self.arrives(PortLocation::Representor(from), None, frame, got)
            }
            bridge::nic::RuleTarget::Drop => drop(self.drops.insert("rule")),
        }
    }

    fn in_nic(&mut self, from: bridge::PortId, frame: &[u8], got: &mut Got) {
        let header = FrameHeader::of_frame(frame).unwrap().0;
        let (mut flows, mut out) = (bridge::nic::Flows::new(), bridge::Verdicts::new());
        let table = &self.nic.table;
        table.classify(from, &[header], &mut flows, &mut out);
        let verdict = out.as_slice()[0];
        let monitors = &self.nic.monitors;
        table.mirror(from, &header, verdict, |copy| match copy.to {
            bridge::nic::MirrorTarget::Capture(n) => {
                self.copies.push(monitors[usize::from(n)].label.clone())
            }
            bridge::nic::MirrorTarget::Port(port) => panic!("a copy for {port}"),
        });
        let to: Vec<bridge::PortId> = match verdict.action() {
            bridge::Action::Port(port) => vec![port],
            bridge::Action::Flood(_) => table.receivers(from, &header).collect(),
            bridge::Action::Drop(reason) => {
                self.drops.insert(reason.name());
                return;
            }
        };
        for port in to {
            let edit = match table.edit_of(from, port, &header) {
                bridge::VlanEdit::None => Edit::None,
                bridge::VlanEdit::Pop => Edit::Pop,
                bridge::VlanEdit::Push(tag) => Edit::Push(tag),
                bridge::VlanEdit::Retag(tag) => Edit::Retag(tag),
            };
            let frame = edit.of(frame);
            match port {
                bridge::PortId::PF if self.nic.switch.is_some() => {
                    self.in_switch(bridge::PortId::UPLINK, &frame, got);
                }
                port => {
                    let queue = port.queue_index().map(|_| port);
                    self.arrives(PortLocation::Function(port), queue, &frame, got);
                }
            }
        }
    }

    fn in_switch(&mut self, from: bridge::PortId, frame: &[u8], got: &mut Got) {
        let switch = self.nic.switch.as_ref().unwrap();
        let header = FrameHeader::of_frame(frame).unwrap().0;
        let snapshots = [HeaderSnapshot::of_frame(frame)];
        let snapshots = switch.table.needs_snapshots(from).then_some(&snapshots[..]);
        let burst = bridge::switch::Burst { from, headers: &[header], snapshots, now_ns: 1 << 40 };
        let (mut flows, mut out) =
            (bridge::switch::Flows::default(), bridge::switch::SwitchVerdicts::new());
        let table = &switch.table;
        table.classify(&self.switch, &burst, &mut flows, &mut self.counters, &mut out);
        for mirror in 0..32 {
            if out.mirrors().first().is_some_and(|mask| mask >> mirror & 1 == 1) {
                let to = table.mirror_port(mirror).unwrap();
                let (_, monitor) = switch.taps.iter().find(|(port, _)| *port == to).unwrap();
                self.copies.push(self.nic.monitors[*monitor].label.clone());
            }
        }
        let to: Vec<bridge::PortId> = match out.as_slice()[0].action() {
            bridge::Action::Port(port) => vec![port],
            bridge::Action::Flood(flood) => {
                let vid = table.vid(from, &header);
                table
                    .flood_ports(from, vid, flood)
                    .iter()
                    .copied()
                    .filter(|to| *to != from)
                    .collect()
            }
            bridge::Action::Drop(reason) => {
                self.drops.insert(reason.name());
                return;
            }
        };
        for port in to {
            let edit = match table.edit(from, port, &header) {
                bridge::VlanEdit::None => Edit::None,
                bridge::VlanEdit::Pop => Edit::Pop,
                bridge::VlanEdit::Push(tag) => Edit::Push(tag),
                bridge::VlanEdit::Retag(tag) => Edit::Retag(tag),
            };
            let frame = edit.of(frame);
            match port {
                bridge::PortId::UPLINK => self.in_nic(bridge::PortId::PF, &frame, got),
                port => self.arrives(PortLocation::Switch(port), None, &frame, got),
            }
        }
    }
}

/// Edit of a frame's tag, by either table.
enum Edit {
    None,
    Pop,
    Push([u8; 4]),
    Retag([u8; 4]),
}

impl Edit {
    fn of(&self, frame: &[u8]) -> Vec<u8> {
        match self {
            Edit::None => frame.to_vec(),
            Edit::Pop => [&frame[..12], &frame[16..]].concat(),
            Edit::Push(tag) => [&frame[..12], tag, &frame[12..]].concat(),
            Edit::Retag(tag) => [&frame[..12], tag, &frame[16..]].concat(),
        }
    }
}

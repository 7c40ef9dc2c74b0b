//! Compiles a NIC: functions, queues, filters and attachments.

use std::sync::Arc;

use bridge::PortId;
use bridge::nic::{Filter, MirroredFrames, Mode};
use model::state::{Bridging, FunctionName, MirrorDirection, PathInForce, Problems};

use super::function::{FunctionEntry, Member, NicScope};
use super::origin::Origins;
use super::ports::{MonitorList, function_port, plain_port};
use super::{CompiledNic, CompiledPort, PortLocation, PortOwner, switch, switchdev};

/// Compiles a NIC; `old` is the previous result.
pub(super) fn nic(
    scope: &NicScope<'_>,
    old: Option<&CompiledNic>,
) -> Result<CompiledNic, Problems> {
    let mut build = Build {
        scope,
        config: bridge::nic::NicConfig {
            mode: mode(scope.nic.bridging),
            uplink_up: scope.uplink_up,
            ..bridge::nic::NicConfig::default()
        },
        origins: Origins { nic: scope.at.clone(), ..Origins::default() },
        ports: Vec::new(),
        monitors: MonitorList::default(),
    };
    build.uplink_and_pf();
    build.vfs();
    build.queues();
    let mut rules = Vec::new();
    if scope.nic.is_switchdev() {
        build.ports.extend(switchdev::representors(scope));
        let (table, numbers) = switchdev::rules(scope);
        build.config.switchdev = Some(table);
        build.origins.rules.clone_from(&numbers);
        rules = numbers;
    }
    let card = &scope.nic.profile.soft;
    let floods = card.floods_unknown;
    build.config.floods_unknown = floods && build.is_unknown_wanted();
    let mut switch = None;
    if scope.switch.is_some() {
        let old = old.and_then(|old| old.switch.as_ref());
        let vfs = build.origins.entries.iter().filter(|(port, _)| port.vf_index().is_some());
        let vfs: Vec<&FunctionEntry<'_>> = vfs.map(|(_, entry)| entry).collect();
        let built = switch::switch(scope, &vfs, &mut build.monitors, old)?;
        let (filters, fields): (Vec<Filter>, Vec<String>) = built.filters.into_iter().unzip();
        build.config.switch = Some(filters);
        build.origins.filters = fields;
        build.ports.extend(built.ports);
        switch = Some(built.switch);
    }
    let table =
        bridge::nic::Table::build(&build.config).map_err(|error| build.origins.problem(error))?;
    let budget = scope.nic.budget_permille;
    let capacity = bridge::nic::Capacity {
        wire_mbit: card.capacity.wire_mbps,
        pcie_mbit: card.capacity.pcie_mbps,
        packets_per_second: card.capacity.frames_per_s,
    };
    Ok(CompiledNic {
        name: scope.nic.name.clone(),
        config: build.config,
        table: Arc::new(table),
        capacity: (budget > 0).then(|| capacity.scaled(budget)),
        switch,
        ports: build.ports,
        monitors: build.monitors.0,
        rules,
    })
}

struct Build<'s, 'a> {
    scope: &'s NicScope<'a>,
    config: bridge::nic::NicConfig,
    origins: Origins<'a>,
    ports: Vec<CompiledPort>,
    monitors: MonitorList,
}

impl<'a> Build<'_, 'a> {
    fn uplink_and_pf(&mut self) {
        if self.scope.nic.uplink.is_some() {
            let location = self.location(PortId::UPLINK);
            self.ports.push(plain_port(PortOwner::Uplink, location, self.scope.uplink_up));
        }
        if let Some(entry) = self.scope.pf() {
            let entry = self.linked(entry, FunctionName::Pf);
            self.config.pf = Some(self.function(&entry));
            let location = self.location(PortId::PF);
            self.ports.push(function_port(PortOwner::Pf, location, &entry, self.scope.uplink_up));
            self.origins.entries.push((PortId::PF, entry));
        }
    }

    fn vfs(&mut self) {
        if self.scope.nic.is_pci() {
            // The card has them: the adapters' addresses are at the wire.
            for member in &self.scope.members {
                if let Some(index) = member.given.vf {
                    let entry = self.scope.adapter_on(*member, Some(index));
                    self.origins.entries.push((PortId::vf(index as u8), entry));
                }
            }
            return;
        }
        let total = self.scope.nic.total_vfs;
        for index in 0..total.min(bridge::nic::MAX_VFS as u16) {
            if index >= self.scope.nic.num_vfs {
                self.config.vfs.push(None);
                continue;
            }
            let port = PortId::vf(index as u8);
            let mut members = self.scope.members.iter();
            let holder = members.find(|member| member.given.vf == Some(index)).copied();
            let entry = match holder {
                Some(member) => self.scope.adapter_on(member, Some(index)),
                None => self.scope.vacant(index),
            };
            let entry = self.linked(entry, FunctionName::Vf(index));
            let function = self.function(&entry);
            self.config.vfs.push(Some(function));
            if let Some(Member { adapter, .. }) = holder {
                let of = PortOwner::Adapter(adapter.name.clone());
                let location = self.location(port);
                self.ports.push(function_port(of, location, &entry, self.scope.uplink_up));
            }
            self.origins.entries.push((port, entry));
        }
    }

    /// Location of a function.
    fn location(&self, port: PortId) -> PortLocation {
        if self.scope.nic.is_switchdev() {
            PortLocation::Piped(port)
        } else {
            PortLocation::Function(port)
        }
    }

    /// A function with the link state of the NIC's mode.
    fn linked(&self, mut entry: FunctionEntry<'a>, name: FunctionName) -> FunctionEntry<'a> {
        if self.scope.nic.is_switchdev() {
            entry.link = switchdev::link(self.scope, name);
        }
        entry
    }

    fn queues(&mut self) {
        for member in &self.scope.members {
            let on_vmq = member.given.path == PathInForce::Vmq;
            let Some(index) = member.given.queue.filter(|_| on_vmq) else {
                continue;
            };
            let entry = self.scope.adapter(*member);
            let mut queue = entry.queue();
            let receives =
                entry.settings.mirror.as_ref().filter(|it| it.direction != MirrorDirection::Tx);
            queue.mirror = receives.map(|mirror| {
                let number = self.monitors.number(&entry, mirror);
                bridge::nic::FunctionMirror {
                    way: MirroredFrames::Ingress,
                    to: bridge::nic::MirrorTarget::Capture(number as u16),
                }
            });
            let index = usize::from(index);
            if self.config.queues.len() <= index {
                self.config.queues.resize(index + 1, None);
            }
            self.config.queues[index] = Some(queue);
            self.origins.entries.push((PortId::queue(index as u8), entry));
        }
    }

    /// `true` if the switch must see unknown unicast from functions. If not, such frames bypass the
    /// switch: a NIC learns nothing, so nearly all traffic from VFs to the wire is unknown unicast.
    fn is_unknown_wanted(&self) -> bool {
        let switched = |member: &&Member<'_>| member.given.path != PathInForce::Vf;
        let behind = self.scope.members.iter().filter(switched).map(|member| member.adapter);
        let promiscuous = self.config.functions().any(|(_, function)| function.promiscuous);
        let mut behind = behind.filter(|adapter| adapter.switch.is_some());
        let tunnels =
            self.scope.switch.as_ref().is_some_and(|(switch, _)| !switch.tunnels.is_empty());
        tunnels
            || promiscuous
            || behind.any(|adapter| adapter.settings.promiscuous || !adapter.settings.spoof_check)
    }

    fn function(&mut self, entry: &FunctionEntry<'a>) -> bridge::nic::Function {
        let mirror = entry.settings.mirror.as_ref().map(|mirror| {
            let way = match mirror.direction {
                MirrorDirection::Rx => MirroredFrames::Ingress,
                MirrorDirection::Tx => MirroredFrames::Egress,
                MirrorDirection::Both => MirroredFrames::Both,
            };
            let number = self.monitors.number(entry, mirror);
            bridge::nic::FunctionMirror {
                way,
                to: bridge::nic::MirrorTarget::Capture(number as u16),
            }
        });
        bridge::nic::Function { mirror, ..entry.function() }
    }
}

fn mode(bridging: Bridging) -> Mode {
    match bridging {
        Bridging::Veb => Mode::Veb,
        Bridging::Vepa => Mode::Vepa,
        Bridging::Isolated => Mode::Isolated,
    }
}

//! A NIC: its functions, queues, filters and plugs.

use std::sync::Arc;

use model::state::{Bridging, FunctionName, Mirror, MirrorDirection, PathInForce, Problem};
use nic::{Filter, Mode, PortId, Way};

use super::function::{Member, Owner, Scope};
use super::origin::Origins;
use super::{Attached, Monitor, Nic, Plug, PortLocation, Target, switch, switchdev};

/// Compiles a NIC; `old` is what it was.
pub(super) fn nic(scope: &Scope<'_>, old: Option<&Nic>) -> Result<Nic, Problem> {
    let mut build = Build {
        scope,
        config: nic::NicConfig {
            mode: mode(scope.nic.bridging),
            uplink_up: scope.uplink_up,
            ..nic::NicConfig::default()
        },
        origins: Origins { nic: scope.at.clone(), ..Origins::default() },
        plugs: Vec::new(),
        monitors: Monitors::default(),
    };
    build.uplink_and_pf();
    build.vfs();
    build.queues();
    let mut rules = Vec::new();
    if scope.nic.is_switchdev() {
        build.plugs.extend(switchdev::representors(scope));
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
        let vfs = build.origins.owners.iter().filter(|(port, _)| port.vf_index().is_some());
        let vfs: Vec<&Owner<'_>> = vfs.map(|(_, owner)| owner).collect();
        let made = switch::switch(scope, &vfs, &mut build.monitors, old)?;
        let (filters, fields): (Vec<Filter>, Vec<String>) = made.filters.into_iter().unzip();
        build.config.switch = Some(filters);
        build.origins.filters = fields;
        build.plugs.extend(made.plugs);
        switch = Some(made.switch);
    }
    let table = nic::Table::build(&build.config).map_err(|error| build.origins.problem(error))?;
    let budget = scope.nic.budget_permille;
    let capacity = nic::Capacity {
        wire_mbit: card.capacity.wire_mbps,
        pcie_mbit: card.capacity.pcie_mbps,
        packets_per_second: card.capacity.frames_per_s,
    };
    Ok(Nic {
        name: scope.nic.name.clone(),
        config: build.config,
        table: Arc::new(table),
        capacity: (budget > 0).then(|| capacity.scaled(budget)),
        switch,
        plugs: build.plugs,
        monitors: build.monitors.0,
        rules,
    })
}

struct Build<'s, 'a> {
    scope: &'s Scope<'a>,
    config: nic::NicConfig,
    origins: Origins<'a>,
    plugs: Vec<Plug>,
    monitors: Monitors,
}

impl<'a> Build<'_, 'a> {
    fn uplink_and_pf(&mut self) {
        if self.scope.nic.uplink.is_some() {
            let place = self.place(PortId::UPLINK);
            self.plugs.push(free_plug(Attached::Uplink, place, self.scope.uplink_up));
        }
        if let Some(owner) = self.scope.pf() {
            let owner = self.linked(owner, FunctionName::Pf);
            self.config.pf = Some(self.function(&owner));
            let place = self.place(PortId::PF);
            self.plugs.push(plug(Attached::Pf, place, &owner, self.scope.uplink_up));
            self.origins.owners.push((PortId::PF, owner));
        }
    }

    fn vfs(&mut self) {
        let total = self.scope.nic.total_vfs;
        for index in 0..total.min(nic::MAX_VFS as u16) {
            if index >= self.scope.nic.num_vfs {
                self.config.vfs.push(None);
                continue;
            }
            let port = PortId::vf(index as u8);
            let mut members = self.scope.members.iter();
            let holder = members.find(|member| member.given.vf == Some(index)).copied();
            let owner = match holder {
                Some(member) => self.scope.adapter_on(member, Some(index)),
                None => self.scope.vacant(index),
            };
            let owner = self.linked(owner, FunctionName::Vf(index));
            let function = self.function(&owner);
            self.config.vfs.push(Some(function));
            if let Some(Member { adapter, .. }) = holder {
                let of = Attached::Adapter(adapter.name.clone());
                let place = self.place(port);
                self.plugs.push(plug(of, place, &owner, self.scope.uplink_up));
            }
            self.origins.owners.push((port, owner));
        }
    }

    /// Where a function is plugged in.
    fn place(&self, port: PortId) -> PortLocation {
        if self.scope.nic.is_switchdev() {
            PortLocation::Piped(port)
        } else {
            PortLocation::Function(port)
        }
    }

    /// A function with the link that it has in the NIC's mode.
    fn linked(&self, mut owner: Owner<'a>, name: FunctionName) -> Owner<'a> {
        if self.scope.nic.is_switchdev() {
            owner.link = switchdev::link(self.scope, name);
        }
        owner
    }

    fn queues(&mut self) {
        for member in &self.scope.members {
            let on_vmq = member.given.path == PathInForce::Vmq;
            let Some(index) = member.given.queue.filter(|_| on_vmq) else {
                continue;
            };
            let owner = self.scope.adapter(*member);
            let mut queue = owner.queue();
            let receives =
                owner.settings.mirror.as_ref().filter(|it| it.direction != MirrorDirection::Tx);
            queue.mirror = receives.map(|mirror| {
                let number = self.monitors.number(&owner.label, mirror);
                nic::Mirror { way: Way::Ingress, to: nic::Monitor::Capture(number as u16) }
            });
            let index = usize::from(index);
            if self.config.queues.len() <= index {
                self.config.queues.resize(index + 1, None);
            }
            self.config.queues[index] = Some(queue);
            self.origins.owners.push((PortId::queue(index as u8), owner));
        }
    }

    /// Whether somebody may want what a function sends to an unknown address, the wire aside. If
    /// not, such frames spare the switch: nearly all that VFs send to the wire is of that kind,
    /// since a NIC learns nothing.
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

    fn function(&mut self, owner: &Owner<'a>) -> nic::Function {
        let mirror = owner.settings.mirror.as_ref().map(|mirror| {
            let way = match mirror.direction {
                MirrorDirection::Rx => Way::Ingress,
                MirrorDirection::Tx => Way::Egress,
                MirrorDirection::Both => Way::Both,
            };
            let number = self.monitors.number(&owner.label, mirror);
            nic::Mirror { way, to: nic::Monitor::Capture(number as u16) }
        });
        nic::Function { mirror, ..owner.function() }
    }
}

/// What is neither a function's nor an adapter's: nothing is set of what it sends.
pub(super) fn free_plug(of: Attached, place: PortLocation, link_up: bool) -> Plug {
    Plug { of, place, queue: None, share: nic::Share::default(), link_up }
}

pub(super) fn plug(of: Attached, place: PortLocation, owner: &Owner<'_>, uplink_up: bool) -> Plug {
    Plug { of, place, queue: None, share: owner.share(), link_up: owner.link.is_up(uplink_up) }
}

/// Who gets copies, each mirrored thing once.
#[derive(Debug, Default)]
pub(super) struct Monitors(pub(super) Vec<Monitor>);

impl Monitors {
    /// The number of a thing's mirror.
    pub(super) fn number(&mut self, label: &str, mirror: &Mirror) -> usize {
        let target = match (&mirror.adapter, &mirror.file) {
            (Some(adapter), _) => Target::Adapter(adapter.clone()),
            (None, file) => Target::File(file.clone().unwrap_or_default()),
        };
        let monitor = Monitor { label: label.to_owned(), target };
        let known = self.0.iter().position(|one| *one == monitor);
        known.unwrap_or_else(|| {
            self.0.push(monitor);
            self.0.len() - 1
        })
    }
}

fn mode(bridging: Bridging) -> Mode {
    match bridging {
        Bridging::Veb => Mode::Veb,
        Bridging::Vepa => Mode::Vepa,
        Bridging::Isolated => Mode::Isolated,
    }
}

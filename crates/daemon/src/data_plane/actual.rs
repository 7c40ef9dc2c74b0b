//! What is in force, as the API tells it.

use api::compile::PortOwner;
use api::stats::{OffloadStats, RuleStats};
use model::state::{
    Actual, ActualAdapter, ActualDevice, ActualNic, ActualRepresentor, ActualTunnel, ActualVf,
    Allocation, DeviceState, GuestState, Nic, Reason, Switch, Vxlan,
};

use super::super::nic_instance::{End, Served};
use super::DataPlane;

impl DataPlane {
    /// What is in force.
    pub(super) fn actual(&self) -> Actual {
        let nics = self.state.nics.iter().map(|nic| self.actual_nic(nic)).collect();
        let adapter = |given: &Allocation| {
            let end = self.served(&given.adapter).map(|served| served.end);
            let device = self.device(end);
            let connected = match end {
                Some(End::Socket(token)) => self.sockets.is_attached(token),
                _ => device.as_ref().is_some_and(|device| device.state == DeviceState::Up),
            };
            let guest = match (end, connected) {
                (Some(End::Socket(token)), _) => self.sockets.guest(token),
                (_, true) => GuestState::Running,
                (_, false) => GuestState::Absent,
            };
            let placement = match end {
                Some(End::Socket(token)) => self.sockets.describe_vmq(token),
                _ => None,
            };
            ActualAdapter {
                guest,
                device,
                placement,
                ..ActualAdapter::of(given.clone(), connected)
            }
        };
        let tunnel = |(switch, tunnel): (&Switch, &Vxlan)| {
            let (switch, of, name) = (&switch.name, &switch.nic, tunnel.name.clone());
            let device = self.device(self.end(of, &PortOwner::Tunnel(name.clone())));
            ActualTunnel { switch: switch.clone(), name, device }
        };
        let switches = self.state.switches.iter();
        let tunnels =
            switches.flat_map(|switch| switch.tunnels.iter().map(move |tunnel| (switch, tunnel)));
        Actual {
            nics,
            adapters: self.given.iter().map(adapter).collect(),
            tunnels: tunnels.map(tunnel).collect(),
        }
    }

    /// What is behind the port of an attachment of a NIC.
    fn end(&self, nic: &str, of: &PortOwner) -> Option<End> {
        Some(self.instances.get(nic)?.served.get(of)?.end)
    }

    /// How that is, if it is a device.
    fn device(&self, end: Option<End>) -> Option<ActualDevice> {
        match end? {
            End::Device(token) => self.devices.status(token).cloned(),
            End::Vdpa(token) => self.vdpas.status(token),
            End::Socket(_) => None,
        }
    }

    /// How often each rule of the switches was met.
    pub(in super::super) fn rules(&self) -> Vec<RuleStats> {
        let nics = self.compiled.nics.iter();
        let switches =
            nics.filter_map(|nic| self.instances.get(&nic.name).zip(nic.switch.as_ref()));
        switches.flat_map(|(instance, switch)| instance.rules(switch)).collect()
    }

    /// What each rule of NICs in switchdev mode has counted.
    pub(in super::super) fn offloads(&self) -> Vec<OffloadStats> {
        let nics = self.compiled.nics.iter();
        let instances = nics.filter_map(|nic| self.instances.get(&nic.name).zip(Some(nic)));
        instances.flat_map(|(instance, nic)| instance.offloads(nic)).collect()
    }

    /// The representors of a NIC.
    fn representors(&self, nic: &Nic) -> Vec<ActualRepresentor> {
        let up = &self.live.representors_up;
        let all = nic.representors().into_iter().map(|(of, attachment, _)| {
            let end = self.end(&nic.name, &PortOwner::Representor(of));
            ActualRepresentor {
                of,
                name: of.port_name(),
                attachment: attachment.to_string(),
                up: up.contains(&(nic.name.clone(), of)),
                mtu: self.mtu_of(end),
                device: self.device(end),
            }
        });
        all.collect()
    }

    /// An adapter as it is served.
    pub(super) fn served(&self, adapter: &str) -> Option<&Served> {
        self.instances.values().find_map(|instance| instance.adapter(adapter))
    }

    fn actual_nic(&self, nic: &Nic) -> ActualNic {
        let config = self.compiled.nic(&nic.name).map(|compiled| &compiled.config);
        let vf = |index: u16| {
            // Few have this number, so that names are looked for seldom.
            let holder = self.given.iter().filter(|given| given.vf == Some(index)).find(|given| {
                let on_it = self.state.adapter(&given.adapter);
                let on_it = on_it.and_then(|adapter| self.state.nic_of(adapter));
                on_it.is_some_and(|on_it| on_it.name == nic.name)
            });
            let function = config.and_then(|config| config.vfs.get(usize::from(index)));
            let function = function.and_then(Option::as_ref);
            ActualVf {
                index,
                adapter: holder.map(|given| given.adapter.clone()),
                mac: function.map(|function| function.mac.to_string()),
                vlan: function.and_then(|function| function.vlan).map(|vlan| vlan.vid.get()),
                link_up: function
                    .zip(config)
                    .is_some_and(|(function, config)| function.is_up(config.uplink_up)),
            }
        };
        ActualNic {
            name: nic.name.clone(),
            support: Reason::Supported,
            total_vfs: nic.total_vfs,
            vfs: (0..nic.num_vfs).map(vf).collect(),
            uplink: self.device(self.end(&nic.name, &PortOwner::Uplink)),
            pf: self.device(self.end(&nic.name, &PortOwner::Pf)),
            representors: self.representors(nic),
        }
    }
}

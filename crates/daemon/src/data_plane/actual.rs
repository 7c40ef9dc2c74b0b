//! State in force, as reported by the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::capture::CaptureError;
use api::compile::{CompiledNic, PortOwner};
use api::fdb::FdbEntry;
use api::stats::{OffloadStats, RuleStats};
use api::trace::TraceError;
use engine::capture::CaptureSpec;
use engine::{Port, SoftNic};
use model::state::{
    Actual, ActualAdapter, ActualDevice, ActualNic, ActualRepresentor, ActualTunnel, ActualVf,
    Allocation, DeviceState, GuestState, Nic, Reason, Switch, Vxlan,
};

use super::super::nic_instance::{PortBackend, ServedPort};
use super::DataPlane;

impl DataPlane {
    /// State in force.
    pub(super) fn actual(&self) -> Actual {
        let nics = self.state.nics.iter().map(|nic| self.actual_nic(nic)).collect();
        let adapter = |given: &Allocation| {
            let backend = self.served(&given.adapter).map(|served| served.backend);
            let device = self.device(backend).or_else(|| self.vf_interface(given));
            let connected = match backend {
                Some(PortBackend::Socket(token)) => self.sockets.is_attached(token),
                _ => device.as_ref().is_some_and(|device| device.state == DeviceState::Up),
            };
            let guest = match (backend, connected) {
                (Some(PortBackend::Socket(token)), _) => self.sockets.guest(token),
                (_, true) => GuestState::Running,
                (_, false) => GuestState::Absent,
            };
            let placement = match backend {
                Some(PortBackend::Socket(token)) => self.sockets.describe_vmq(token),
                _ => None,
            };
            let plug = self.compiled.nics.iter().find_map(|nic| nic.adapter(&given.adapter));
            ActualAdapter {
                // The link of an interface of a VF is its card's business.
                link_up: plug.map_or(connected && backend.is_none(), |plug| plug.link_up),
                guest,
                device,
                placement,
                ..ActualAdapter::of(given.clone(), connected)
            }
        };
        let tunnel = |(switch, tunnel): (&Switch, &Vxlan)| {
            let (switch, of, name) = (&switch.name, &switch.nic, tunnel.name.clone());
            let device = self.device(self.backend(of, &PortOwner::Tunnel(name.clone())));
            ActualTunnel { switch: switch.clone(), name, device }
        };
        let switches = self.state.switches.iter();
        let tunnels =
            switches.flat_map(|switch| switch.tunnels.iter().map(move |tunnel| (switch, tunnel)));
        Actual {
            nics,
            adapters: self.allocations.iter().map(adapter).collect(),
            tunnels: tunnels.map(tunnel).collect(),
        }
    }

    /// Backend of an attachment's port.
    fn backend(&self, nic: &str, of: &PortOwner) -> Option<PortBackend> {
        Some(self.instances.get(nic)?.served.get(of)?.backend)
    }

    /// State of a backend, if it is a device.
    fn device(&self, backend: Option<PortBackend>) -> Option<ActualDevice> {
        match backend? {
            PortBackend::Device(token) => self.devices.status(token).cloned(),
            PortBackend::Vdpa(token) => self.vdpas.status(token),
            PortBackend::Socket(_) => None,
        }
    }

    /// Interface of an adapter's VF on a card.
    fn vf_interface(&self, given: &Allocation) -> Option<ActualDevice> {
        let nic = self.state.nic_of(self.state.adapter(&given.adapter)?)?;
        self.cards.netdev(&nic.name, given.vf?)
    }

    /// Hit counters of all switches' ACL rules.
    pub(in super::super) fn rules(&self) -> Vec<RuleStats> {
        let nics = self.compiled.nics.iter();
        let switches =
            nics.filter_map(|nic| self.instances.get(&nic.name).zip(nic.switch.as_ref()));
        switches.flat_map(|(instance, switch)| instance.rules(switch)).collect()
    }

    /// Addresses that a switch knows, learned and static.
    pub(super) fn fdb(&self, switch: &str) -> Vec<FdbEntry> {
        let compiled = |nic: &CompiledNic| {
            let compiled = nic.switch.as_ref().filter(|compiled| compiled.name == switch)?;
            Some(self.instances.get(&nic.name)?.fdb_entries(compiled))
        };
        self.compiled.nics.iter().find_map(compiled).unwrap_or_default()
    }

    /// Port of this name, with its NIC. A name is that of an adapter or tunnel, or a label with or
    /// without the NIC.
    pub(super) fn port_named(&self, name: &str) -> Result<(Arc<SoftNic>, Arc<Port>), TraceError> {
        let all = self.instances.values().flat_map(|instance| {
            instance.served.iter().map(|(of, served)| (of, &instance.soft, &served.port))
        });
        let all: Vec<_> = all.collect();
        let is_named = |(of, _, port): &&(&PortOwner, &Arc<SoftNic>, &Arc<Port>)| match of {
            PortOwner::Adapter(own) | PortOwner::Tunnel(own) if own == name => true,
            _ => {
                let short = port.label.split_once('/').map(|(_, short)| short);
                port.label == name || short == Some(name)
            }
        };
        let labels = |all: &mut dyn Iterator<Item = &(_, _, &Arc<Port>)>| {
            all.map(|(_, _, port)| port.label.clone()).collect()
        };
        let found: Vec<_> = all.iter().filter(is_named).collect();
        match found[..] {
            [(_, nic, port)] => Ok(((*nic).clone(), (*port).clone())),
            [] => Err(TraceError::NoPort { known: labels(&mut all.iter()) }),
            _ => Err(TraceError::Ambiguous { known: labels(&mut found.into_iter()) }),
        }
    }

    /// NICs of a capture, and the capture with the labels of its ports.
    ///
    /// # Errors
    /// There is no such port.
    pub(super) fn captured(
        &self,
        spec: CaptureSpec,
    ) -> Result<(Vec<Arc<SoftNic>>, CaptureSpec), CaptureError> {
        if spec.ports.is_empty() {
            let nics = self.instances.values().map(|instance| instance.soft.clone());
            return Ok((nics.collect(), spec));
        }
        let (mut nics, mut ports): (Vec<Arc<SoftNic>>, Vec<String>) = Default::default();
        for name in &spec.ports {
            let named = self.port_named(name);
            let (nic, port) =
                named.map_err(|error| CaptureError::Port { name: name.clone(), error })?;
            if !nics.iter().any(|known| Arc::ptr_eq(known, &nic)) {
                nics.push(nic);
            }
            if !ports.contains(&port.label) {
                ports.push(port.label.clone());
            }
        }
        Ok((nics, CaptureSpec { ports, ..spec }))
    }

    /// Counters of all switchdev rules.
    pub(in super::super) fn offloads(&self) -> Vec<OffloadStats> {
        let nics = self.compiled.nics.iter();
        let instances = nics.filter_map(|nic| self.instances.get(&nic.name).zip(Some(nic)));
        instances.flat_map(|(instance, nic)| instance.offloads(nic)).collect()
    }

    /// Representors of a NIC.
    fn representors(&self, nic: &Nic) -> Vec<ActualRepresentor> {
        let up = &self.live.representors_up;
        let all = nic.representors().into_iter().map(|(of, attachment, _)| {
            let backend = self.backend(&nic.name, &PortOwner::Representor(of));
            ActualRepresentor {
                of,
                name: of.port_name(),
                attachment: attachment.to_string(),
                up: up.contains(&(nic.name.clone(), of)),
                mtu: self.mtu_of(backend),
                device: self.device(backend),
            }
        });
        all.collect()
    }

    /// Served port of an adapter.
    pub(super) fn served(&self, adapter: &str) -> Option<&ServedPort> {
        self.instances.values().find_map(|instance| instance.adapter(adapter))
    }

    fn actual_nic(&self, nic: &Nic) -> ActualNic {
        let nic_name = &nic.name;
        let config = self.compiled.nic(nic_name).map(|compiled| &compiled.config);
        let holder = |index: u16| {
            // Compare the number first: few adapters have it, and names are slower.
            let mut on_vf = self.allocations.iter().filter(|given| given.vf == Some(index));
            let on_it = |given: &&Allocation| {
                let nic = self.state.adapter(&given.adapter).and_then(|it| self.state.nic_of(it));
                nic.is_some_and(|on_it| on_it.name == *nic_name)
            };
            on_vf.find(on_it).map(|given| given.adapter.clone())
        };
        let vf = |index: u16| {
            let function = config.and_then(|config| config.vfs.get(usize::from(index)));
            let function = function.and_then(Option::as_ref);
            ActualVf {
                address: None,
                reported: BTreeMap::new(),
                counters: None,
                index,
                adapter: holder(index),
                mac: function.map(|function| function.mac.to_string()),
                vlan: function.and_then(|function| function.vlan).map(|vlan| vlan.vid.get()),
                link_up: function
                    .zip(config)
                    .is_some_and(|(function, config)| function.is_up(config.uplink_up)),
            }
        };
        if let Some(mut card) = self.cards.actual(nic) {
            card.vfs.iter_mut().for_each(|vf| vf.adapter = holder(vf.index));
            let uplink = self.device(self.backend(&nic.name, &PortOwner::Uplink));
            return ActualNic { uplink, ..card };
        }
        ActualNic {
            card: None,
            name: nic.name.clone(),
            support: Reason::Supported,
            total_vfs: nic.total_vfs,
            vfs: (0..nic.num_vfs).map(vf).collect(),
            uplink: self.device(self.backend(&nic.name, &PortOwner::Uplink)),
            pf: self.device(self.backend(&nic.name, &PortOwner::Pf)),
            representors: self.representors(nic),
        }
    }
}

//! Switchdev mode: a function has the link state and MTU of its representor, as the kernel's
//! switchdev model requires.

use std::collections::BTreeSet;

use api::compile::{PortLocation, PortOwner};
use model::state::{DeviceState, FunctionName};

use super::super::nic_instance::{NicInstance, PortBackend};
use super::DataPlane;

impl DataPlane {
    /// Representors that are up: interfaces switched on, or sockets with a guest.
    pub(super) fn representors_up(&self) -> BTreeSet<(String, FunctionName)> {
        let is_up = |backend: PortBackend| match backend {
            PortBackend::Socket(token) => self.sockets.is_attached(token),
            PortBackend::Device(token) => {
                self.devices.status(token).is_some_and(|status| status.state == DeviceState::Up)
            }
            PortBackend::Vdpa(token) => {
                self.vdpas.status(token).is_some_and(|status| status.state == DeviceState::Up)
            }
        };
        let up = |(nic, instance): (&String, &NicInstance)| {
            let all = instance.served.iter().filter_map(|(attached, served)| match attached {
                PortOwner::Representor(of) if is_up(served.backend) => Some((nic.clone(), *of)),
                _ => None,
            });
            all.collect::<Vec<_>>()
        };
        self.instances.iter().flat_map(up).collect()
    }

    /// MTU of an interface.
    pub(super) fn mtu_of(&self, backend: Option<PortBackend>) -> Option<u32> {
        match backend? {
            PortBackend::Device(token) => self.devices.mtu(token),
            PortBackend::Socket(_) | PortBackend::Vdpa(_) => None,
        }
    }

    /// Updates link state and MTU of guests, and of interfaces that stand for guests.
    pub(super) fn tell_guests(&mut self) {
        if self.handover.is_some() {
            return; // another process still serves
        }
        let mut updates = Vec::new();
        for nic in &self.compiled.nics {
            let Some(instance) = self.instances.get(&nic.name) else { continue };
            for plug in nic.ports.iter().filter(|plug| plug.of != PortOwner::Uplink) {
                let Some(served) = instance.served.get(&plug.of) else { continue };
                let mut representor = None;
                if let PortLocation::Piped(port) = plug.location {
                    let of = port.vf_index().map_or(FunctionName::Pf, FunctionName::Vf);
                    representor =
                        instance.served.get(&PortOwner::Representor(of)).map(|it| it.backend);
                }
                let follows = match plug.location {
                    PortLocation::Piped(_) => representor.is_some(),
                    _ => matches!(plug.of, PortOwner::Adapter(_) | PortOwner::Pf),
                };
                let carrier = plug.link_up || !follows;
                updates.push((served.backend, self.mtu_of(representor), carrier));
            }
        }
        for (backend, mtu, carrier) in updates {
            match backend {
                PortBackend::Socket(token) => self.sockets.set_mtu(token, mtu),
                PortBackend::Vdpa(token) => self.vdpas.set_mtu(token, mtu),
                PortBackend::Device(token) => {
                    self.devices.set_carrier(token, carrier);
                    self.devices.set_mtu(token, mtu);
                }
            }
        }
        self.sockets.notify_config();
    }
}

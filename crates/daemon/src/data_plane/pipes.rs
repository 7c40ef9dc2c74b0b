//! Switchdev mode: a function has the link and the MTU of its representor, as the kernel's contract
//! asks.

use std::collections::BTreeSet;

use api::compile::{PortLocation, PortOwner};
use model::state::{DeviceState, FunctionName};

use super::super::nic_instance::{End, NicInstance};
use super::DataPlane;

impl DataPlane {
    /// The representors that are up: interfaces that are switched on, sockets on which somebody is.
    pub(super) fn representors_up(&self) -> BTreeSet<(String, FunctionName)> {
        let is_up = |end: End| match end {
            End::Socket(token) => self.sockets.is_attached(token),
            End::Device(token) => {
                self.devices.status(token).is_some_and(|status| status.state == DeviceState::Up)
            }
            End::Vdpa(token) => {
                self.vdpas.status(token).is_some_and(|status| status.state == DeviceState::Up)
            }
        };
        let up = |(nic, instance): (&String, &NicInstance)| {
            let all = instance.served.iter().filter_map(|(attached, served)| match attached {
                PortOwner::Representor(of) if is_up(served.end) => Some((nic.clone(), *of)),
                _ => None,
            });
            all.collect::<Vec<_>>()
        };
        self.instances.iter().flat_map(up).collect()
    }

    /// The MTU of an interface.
    pub(super) fn mtu_of(&self, end: Option<End>) -> Option<u32> {
        match end? {
            End::Device(token) => self.devices.mtu(token),
            End::Socket(_) | End::Vdpa(_) => None,
        }
    }

    /// Tells guests, and interfaces that stand for guests, what link and MTU they have.
    pub(super) fn tell_guests(&mut self) {
        if self.handover.is_some() {
            return; // another process still serves
        }
        let mut told = Vec::new();
        for nic in &self.compiled.nics {
            let Some(instance) = self.instances.get(&nic.name) else { continue };
            for plug in nic.ports.iter().filter(|plug| plug.of != PortOwner::Uplink) {
                let Some(served) = instance.served.get(&plug.of) else { continue };
                let mut representor = None;
                if let PortLocation::Piped(port) = plug.place {
                    let of = port.vf_index().map_or(FunctionName::Pf, FunctionName::Vf);
                    representor = instance.served.get(&PortOwner::Representor(of)).map(|it| it.end);
                }
                let carrier = representor.is_none() || plug.link_up;
                told.push((served.end, self.mtu_of(representor), carrier));
            }
        }
        for (end, mtu, carrier) in told {
            match end {
                End::Socket(token) => self.sockets.set_mtu(token, mtu),
                End::Vdpa(token) => self.vdpas.set_mtu(token, mtu),
                End::Device(token) => {
                    self.devices.set_carrier(token, carrier);
                    self.devices.set_mtu(token, mtu);
                }
            }
        }
        self.sockets.tell_changes();
    }
}

//! Serving of staged ports, in place of the old ones.

use std::sync::Arc;

use api::compile::PortOwner;
use engine::{Port, SoftNic};
use model::state::Attachment;
use port::xdp::Address;
use vhost_user::SocketAccess;

use super::super::attachment::SocketEndpoint;
use super::super::device::GuestDevice;
use super::super::nic_instance::{PortBackend, ServedPort};
use super::super::port_events::PortEvents;
use super::super::port_spec::PortSpec;
use super::super::vdpa::VdpaStart;
use super::{DataPlane, PreparedBackend, WantedPort};

impl DataPlane {
    /// Serves a new or changed attachment; returns its old ports.
    pub(super) fn serve(
        &mut self,
        want: WantedPort,
        port: Arc<Port>,
        prepared: PreparedBackend,
        addresses: Vec<Address>,
    ) -> Vec<(Arc<SoftNic>, Arc<Port>)> {
        if want.owner == PortOwner::Uplink {
            self.leave_queues(&want.nic);
        }
        let Some(instance) = self.instances.get_mut(&want.nic) else { return Vec::new() };
        let soft = instance.soft.clone();
        let mut old = Vec::new();
        if let Some(before) = instance.served.remove(&want.owner) {
            self.close_backend(before.backend);
            old.extend(before.ports().map(|port| (soft.clone(), port.clone())));
        }
        match self.create_backend(&want, soft.clone(), &port, prepared, addresses) {
            Ok(backend) => {
                let WantedPort { nic, owner, spec, identity, .. } = want;
                let served = ServedPort { port, backend, spec, identity, vmq: None };
                if let Some(instance) = self.instances.get_mut(&nic) {
                    instance.served.insert(owner, served);
                }
            }
            Err(error) => {
                tracing::error!("{}: cannot serve its socket: {error:#}", port.label);
                old.push((soft, port)); // the next change creates a new one
            }
        }
        old
    }

    /// Puts a prepared backend behind a port.
    fn create_backend(
        &mut self,
        want: &WantedPort,
        soft: Arc<SoftNic>,
        port: &Arc<Port>,
        prepared: PreparedBackend,
        addresses: Vec<Address>,
    ) -> anyhow::Result<PortBackend> {
        let adapter = match &want.owner {
            PortOwner::Adapter(name) => Some(name.as_str()),
            _ => None,
        };
        let events = PortEvents::new(self.events.clone(), &port.label, adapter)
            .counting(self.fabric.limits());
        if let PortSpec::Attachment(Attachment::VhostUser(spec)) = &want.spec {
            let endpoint = match prepared {
                PreparedBackend::Socket(endpoint) => endpoint,
                PreparedBackend::Device(..)
                | PreparedBackend::HandedOver(_)
                | PreparedBackend::Vdpa(_)
                | PreparedBackend::AfterChange => SocketEndpoint::open(spec, self.access_to(want))?,
            };
            let (port, identity) = (port.clone(), want.identity.clone());
            let quota = self.quota.of_session();
            let device = GuestDevice::new(soft, port, spec, identity, &self.run_dir, quota);
            return Ok(PortBackend::Socket(self.sockets.add(spec, endpoint, device, events)?));
        }
        if let PortSpec::Attachment(Attachment::Vduse(spec)) = &want.spec {
            let begin = match prepared {
                PreparedBackend::Vdpa(begin) => begin,
                PreparedBackend::Socket(_)
                | PreparedBackend::Device(..)
                | PreparedBackend::HandedOver(_)
                | PreparedBackend::AfterChange => VdpaStart::Soon,
            };
            let identity = want.identity.clone();
            let token = self.vdpas.add(spec, (soft, port.clone()), identity, events, begin)?;
            return Ok(PortBackend::Vdpa(token));
        }
        let name = want.spec.to_string();
        let (open, opened) = match prepared {
            PreparedBackend::Device(open, opened) => (open, opened),
            PreparedBackend::HandedOver(open) => {
                let token = self.devices.add_handed_over(port.clone(), (name, open), events);
                return Ok(PortBackend::Device(token));
            }
            PreparedBackend::Socket(_)
            | PreparedBackend::Vdpa(_)
            | PreparedBackend::AfterChange => {
                let mut open = self.opener(want, addresses, self.access_to(want));
                // The change can no longer be rejected; a device that fails is tried again.
                let opened = open.open();
                (open, opened)
            }
        };
        Ok(PortBackend::Device(self.devices.add(port.clone(), (name, open), events, opened)))
    }

    /// Access to a wanted socket. Its group was found when the change was staged.
    fn access_to(&self, want: &WantedPort) -> Option<SocketAccess> {
        self.access.of_port(&want.spec, &want.field).ok().flatten()
    }

    /// Updates the addresses of an attachment that stays.
    pub(super) fn identify(&mut self, want: WantedPort) {
        let Some(instance) = self.instances.get_mut(&want.nic) else { return };
        if let Some(served) = instance.served.get_mut(&want.owner)
            && served.identity != want.identity
        {
            match served.backend {
                PortBackend::Socket(token) => {
                    self.sockets.set_identity(token, want.identity.clone())
                }
                PortBackend::Vdpa(token) => self.vdpas.set_identity(token, want.identity.clone()),
                PortBackend::Device(token) if served.identity.mac != want.identity.mac => {
                    want.identity.mac.into_iter().for_each(|mac| self.devices.set_mac(token, mac));
                }
                PortBackend::Device(_) => {}
            }
            served.identity = want.identity;
        }
        if let Some(served) =
            self.instances.get_mut(&want.nic).and_then(|it| it.served.get_mut(&want.owner))
        {
            served.spec = want.spec;
        }
    }
}

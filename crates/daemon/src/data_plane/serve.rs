//! What was staged is served, and what had its place is served no more.

use std::sync::Arc;

use api::compile::PortOwner;
use engine::{Port, SoftNic};
use model::state::Attachment;
use port::xdp::Address;

use super::super::attachment::Way;
use super::super::device::GuestDevice;
use super::super::nic_instance::{End, Served};
use super::super::port_events::PortEvents;
use super::super::vdpa::Begin;
use super::stage::opener;
use super::{DataPlane, Ready, Spec, Wanted};

impl DataPlane {
    /// Serves an attachment that is new, or was changed; returns the ports that it had.
    pub(super) fn serve(
        &mut self,
        wish: Wanted,
        port: Arc<Port>,
        ready: Ready,
        addresses: Vec<Address>,
    ) -> Vec<(Arc<SoftNic>, Arc<Port>)> {
        if wish.owner == PortOwner::Uplink {
            self.leave_queues(&wish.nic);
        }
        self.let_go(&wish.spec);
        let Some(instance) = self.instances.get_mut(&wish.nic) else { return Vec::new() };
        let soft = instance.soft.clone();
        let mut old = Vec::new();
        if let Some(before) = instance.served.remove(&wish.owner) {
            self.let_end(before.end);
            old.extend(before.ports().map(|port| (soft.clone(), port.clone())));
        }
        match self.end_of(&wish, soft.clone(), &port, ready, addresses) {
            Ok(end) => {
                let Wanted { nic, owner, spec, identity, .. } = wish;
                let served = Served { port, end, spec, identity, vmq: None };
                if let Some(instance) = self.instances.get_mut(&nic) {
                    instance.served.insert(owner, served);
                }
            }
            Err(error) => {
                tracing::error!("{}: its socket is not served: {error:#}", port.label);
                old.push((soft, port)); // the next change brings another
            }
        }
        old
    }

    /// Puts what is ready behind a port.
    fn end_of(
        &mut self,
        wish: &Wanted,
        soft: Arc<SoftNic>,
        port: &Arc<Port>,
        ready: Ready,
        addresses: Vec<Address>,
    ) -> anyhow::Result<End> {
        let adapter = match &wish.owner {
            PortOwner::Adapter(name) => Some(name.as_str()),
            _ => None,
        };
        let events = PortEvents::new(self.events.clone(), &port.label, adapter);
        if let Spec::Attachment(Attachment::VhostUser(spec)) = &wish.spec {
            let way = match ready {
                Ready::Socket(way) => way,
                Ready::Device(..) | Ready::HandedOver(_) | Ready::Vdpa(_) | Ready::Later => {
                    Way::open(spec)?
                }
            };
            let (port, identity) = (port.clone(), wish.identity.clone());
            let quota = self.quota.of_session();
            let device = GuestDevice::new(soft, port, spec, identity, &self.run_dir, quota);
            return Ok(End::Socket(self.sockets.add(spec, way, device, events)?));
        }
        if let Spec::Attachment(Attachment::Vduse(spec)) = &wish.spec {
            let begin = match ready {
                Ready::Vdpa(begin) => begin,
                Ready::Socket(_) | Ready::Device(..) | Ready::HandedOver(_) | Ready::Later => {
                    Begin::Soon
                }
            };
            let identity = wish.identity.clone();
            let token = self.vdpas.add(spec, (soft, port.clone()), identity, events, begin)?;
            return Ok(End::Vdpa(token));
        }
        let name = wish.spec.to_string();
        let (open, opened) = match ready {
            Ready::Device(open, opened) => (open, opened),
            Ready::HandedOver(open) => {
                let token = self.devices.add_later(port.clone(), (name, open), events);
                return Ok(End::Device(token));
            }
            Ready::Socket(_) | Ready::Vdpa(_) | Ready::Later => {
                let open = opener(wish, addresses);
                // It cannot be refused any more; if it cannot be had it is tried again.
                let opened = open.open();
                (open, opened)
            }
        };
        Ok(End::Device(self.devices.add(port.clone(), (name, open), events, opened)))
    }

    /// Ends what has the place of something that is about to be served: a session there ends before
    /// the next can begin. Whoever had it, by another name or in an exchange, has it no more, since
    /// no two attachments of a state share one.
    fn let_go(&mut self, spec: &Spec) {
        let Some(place) = spec.place() else { return };
        let served = self.instances.values().flat_map(|instance| instance.served.values());
        let same = served.filter(|served| served.spec.place().as_ref() == Some(&place));
        let ends: Vec<End> = same.map(|served| served.end).collect();
        ends.into_iter().for_each(|it| self.let_end(it));
    }

    /// Gives an attachment that stays the addresses that it has now.
    pub(super) fn identify(&mut self, wish: Wanted) {
        let Some(instance) = self.instances.get_mut(&wish.nic) else { return };
        if let Some(served) = instance.served.get_mut(&wish.owner)
            && served.identity != wish.identity
        {
            match served.end {
                End::Socket(token) => self.sockets.set_identity(token, wish.identity.clone()),
                End::Vdpa(token) => self.vdpas.set_identity(token, wish.identity.clone()),
                End::Device(token) if served.identity.mac != wish.identity.mac => {
                    wish.identity.mac.into_iter().for_each(|mac| self.devices.set_mac(token, mac));
                }
                End::Device(_) => {}
            }
            served.identity = wish.identity;
        }
    }
}

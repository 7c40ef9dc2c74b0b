//! Which queues of the uplinks' interfaces are steered to whom.

use api::compile::{self, CompiledPort, PortOwner};
use model::state::Attachment;

use super::super::nic_instance::{End, Served, label};
use super::super::vmq::{Ports, Steered, Wish};
use super::{DataPlane, Spec};

impl DataPlane {
    /// Adds the ports that adapters of a NIC need for queues of its uplink's interface. Without
    /// them, frames are not placed.
    pub(super) fn add_queue_ports(&mut self, nic: &compile::CompiledNic) {
        let Some(instance) = self.instances.get_mut(&nic.name) else { return };
        let uplink = instance.served.get(&PortOwner::Uplink);
        let has_queues = uplink.is_some_and(|uplink| match uplink.end {
            // As long as another process has the interface it is not known whether it has queues.
            End::Device(_) if self.handover.is_some() => {
                matches!(uplink.spec, Spec::Attachment(Attachment::Xdp(_)))
            }
            End::Device(token) => self.devices.queues(token).is_some(),
            End::Socket(_) | End::Vdpa(_) => false,
        });
        if !has_queues {
            return;
        }
        let soft = instance.soft.clone();
        for plug in nic.ports.iter().filter(|plug| plug.queue.is_some()) {
            let Some(served) = instance.served.get_mut(&plug.of) else { continue };
            if served.vmq.is_some() || !matches!(served.end, End::Socket(_)) {
                continue;
            }
            let mut port = |label: &str| self.fabric.add_port(&soft, label, 1);
            let ports = port(&served.port.label)
                .and_then(|placed| Ok((placed, port(&label(&nic.name, &PortOwner::Uplink))?)));
            match ports {
                Ok((placed, copied)) => served.vmq = Some(Ports { placed, copied }),
                Err(error) => tracing::warn!("{}: {error}", served.port.label),
            }
        }
    }

    /// Gives adapters the queues that they are to have now.
    pub(super) fn steer(&mut self) {
        if self.handover.is_some() {
            return; // another process still serves
        }
        let mut wishes = Vec::new();
        for nic in &self.compiled.nics {
            let Some(instance) = self.instances.get(&nic.name) else { continue };
            for (of, served) in &instance.served {
                if let (PortOwner::Adapter(_), End::Socket(token)) = (of, served.end) {
                    wishes.push((token, self.wish(nic, of, served)));
                }
            }
        }
        for (token, wish) in wishes {
            self.sockets.set_wish(token, wish);
        }
    }

    /// Takes the queues of a NIC's uplink from all adapters, so that it can be closed.
    pub(super) fn leave_queues(&mut self, nic: &str) {
        let Some(instance) = self.instances.get(nic) else { return };
        let sockets = instance.served.values().filter_map(|served| match served.end {
            End::Socket(token) => Some(token),
            End::Device(_) | End::Vdpa(_) => None,
        });
        for token in sockets {
            self.sockets.set_wish(token, Wish::Nothing);
        }
    }

    /// What an adapter is to have.
    fn wish(&self, nic: &compile::CompiledNic, of: &PortOwner, served: &Served) -> Wish {
        let plug = nic.ports.iter().find(|plug| plug.of == *of);
        let Some((plug, queue)) = plug.and_then(|plug| Some((plug, plug.queue?))) else {
            return Wish::Nothing;
        };
        let uplink = self
            .instances
            .get(&nic.name)
            .and_then(|instance| instance.served.get(&PortOwner::Uplink));
        let Some((Spec::Attachment(Attachment::Xdp(xdp)), End::Device(token))) =
            uplink.map(|uplink| (&uplink.spec, uplink.end))
        else {
            return Wish::Nothing;
        };
        let Some(queues) = self.devices.queues(token) else {
            let interface = &xdp.interface;
            return Wish::NoQueue(match self.devices.has_no_link(token) {
                true => format!("{interface} has no link"),
                false => {
                    format!("{interface} has no receive queue beyond the uplink's queue pairs")
                }
            });
        };
        let function = queue.queue_index().and_then(|number| {
            let function = nic.config.queues.get(usize::from(number))?.as_ref()?;
            Some((u32::from(number), function))
        });
        let Some((index, function)) = function else { return Wish::Nothing };
        if index >= queues.count() {
            let (count, interface) = (queues.count(), queues.interface());
            let why = format!(
                "{interface} has {count} receive queues beyond the uplink's queue pairs, and this \
                 would be another"
            );
            return Wish::NoQueue(why);
        }
        let Some(ports) = served.vmq.clone() else {
            return Wish::NoQueue("there are too many ports".to_owned());
        };
        let refusal = refusal(function, served, plug).map(str::to_owned);
        Wish::Queue(Steered { queues, index, mac: function.mac, ports, refusal })
    }
}

/// Why frames of an adapter cannot be placed, if it is its settings' doing.
fn refusal(
    function: &bridge::nic::Function,
    served: &Served,
    plug: &CompiledPort,
) -> Option<&'static str> {
    let pairs = served.spec.queue_pairs();
    let because = [
        (pairs < 2, "the adapter has one queue pair; the last of two or more is needed"),
        (function.vlan.is_some(), "the tag of the adapter's VLAN is to be taken off"),
        (!function.trunk.is_empty(), "the adapter gets tagged frames, too"),
        (function.mirror.is_some(), "frames to the adapter are mirrored"),
        (!plug.link_up, "the adapter's link is down"),
    ];
    because.into_iter().find_map(|(is, why)| is.then_some(why))
}

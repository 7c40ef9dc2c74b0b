//! Steering of uplink queues to adapters.

use api::compile::{self, CompiledPort, PortOwner};
use model::state::Attachment;

use super::super::nic_instance::{PortBackend, ServedPort, label};
use super::super::port_spec::PortSpec;
use super::super::vmq::{AssignedQueue, VmqAssignment, VmqPorts};
use super::DataPlane;

impl DataPlane {
    /// Adds the ports needed for uplink queues of a NIC's adapters. Without them frames are not
    /// placed.
    pub(super) fn add_queue_ports(&mut self, nic: &compile::CompiledNic) {
        let Some(instance) = self.instances.get_mut(&nic.name) else { return };
        let uplink = instance.served.get(&PortOwner::Uplink);
        let has_queues = uplink.is_some_and(|uplink| match uplink.backend {
            // The queues are unknown while another process has the interface.
            PortBackend::Device(_) if self.handover.is_some() => {
                matches!(uplink.spec, PortSpec::Attachment(Attachment::Xdp(_)))
            }
            PortBackend::Device(token) => self.devices.queues(token).is_some(),
            PortBackend::Socket(_) | PortBackend::Vdpa(_) => false,
        });
        if !has_queues {
            return;
        }
        let soft = instance.soft.clone();
        for plug in nic.ports.iter().filter(|plug| plug.queue.is_some()) {
            let Some(served) = instance.served.get_mut(&plug.of) else { continue };
            if served.vmq.is_some() || !matches!(served.backend, PortBackend::Socket(_)) {
                continue;
            }
            let mut port = |label: &str| self.fabric.add_port(&soft, label, 1);
            let ports = port(&served.port.label)
                .and_then(|placed| Ok((placed, port(&label(&nic.name, &PortOwner::Uplink))?)));
            match ports {
                Ok((placed, copied)) => served.vmq = Some(VmqPorts { placed, copied }),
                Err(error) => tracing::warn!("{}: {error}", served.port.label),
            }
        }
    }

    /// Assigns queues to adapters.
    pub(super) fn steer(&mut self) {
        if self.handover.is_some() {
            return; // the old process still serves
        }
        let mut assignments = Vec::new();
        for nic in &self.compiled.nics {
            let Some(instance) = self.instances.get(&nic.name) else { continue };
            for (of, served) in &instance.served {
                if let (PortOwner::Adapter(_), PortBackend::Socket(token)) = (of, served.backend) {
                    assignments.push((token, self.assignment(nic, of, served)));
                }
            }
        }
        for (token, assignment) in assignments {
            self.sockets.assign_vmq(token, assignment);
        }
    }

    /// Takes the queues of a NIC's uplink from all adapters, so that it can be closed.
    pub(super) fn leave_queues(&mut self, nic: &str) {
        let Some(instance) = self.instances.get(nic) else { return };
        let sockets = instance.served.values().filter_map(|served| match served.backend {
            PortBackend::Socket(token) => Some(token),
            PortBackend::Device(_) | PortBackend::Vdpa(_) => None,
        });
        for token in sockets {
            self.sockets.assign_vmq(token, VmqAssignment::Unassigned);
        }
    }

    /// Queue assignment of an adapter.
    fn assignment(
        &self,
        nic: &compile::CompiledNic,
        of: &PortOwner,
        served: &ServedPort,
    ) -> VmqAssignment {
        let plug = nic.ports.iter().find(|plug| plug.of == *of);
        let Some((plug, queue)) = plug.and_then(|plug| Some((plug, plug.queue?))) else {
            return VmqAssignment::Unassigned;
        };
        let uplink = self
            .instances
            .get(&nic.name)
            .and_then(|instance| instance.served.get(&PortOwner::Uplink));
        let Some((PortSpec::Attachment(Attachment::Xdp(xdp)), PortBackend::Device(token))) =
            uplink.map(|uplink| (&uplink.spec, uplink.backend))
        else {
            return VmqAssignment::Unassigned;
        };
        let Some(queues) = self.devices.queues(token) else {
            let interface = &xdp.interface;
            return VmqAssignment::Unavailable(match self.devices.has_no_link(token) {
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
        let Some((index, function)) = function else { return VmqAssignment::Unassigned };
        if index >= queues.count() {
            let (count, interface) = (queues.count(), queues.interface());
            let why = format!(
                "{interface} has only {count} receive queues beyond the uplink's queue pairs"
            );
            return VmqAssignment::Unavailable(why);
        }
        let Some(ports) = served.vmq.clone() else {
            return VmqAssignment::Unavailable("there are too many ports".to_owned());
        };
        let refusal = refusal(function, served, plug).map(str::to_owned);
        VmqAssignment::Assigned(AssignedQueue { queues, index, mac: function.mac, ports, refusal })
    }
}

/// Setting of the adapter that prevents placing frames, if any.
fn refusal(
    function: &bridge::nic::Function,
    served: &ServedPort,
    plug: &CompiledPort,
) -> Option<&'static str> {
    if served.spec.queue_pairs() < 2 {
        return Some("the adapter has one queue pair; at least two are needed");
    }
    let down = (!plug.link_up).then_some("the adapter's link is down");
    function.placing_obstacle().or(down)
}

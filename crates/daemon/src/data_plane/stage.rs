//! Staging: opens what a change needs before the change, so that failures reject it.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use api::compile::{self, Compiled, PortOwner};
use bridge::nic::Function;
use engine::Port;
use model::state::{Attachment, Problem, Problems, VhostUser};
use port::capture::{Capture, CaptureBuffer, CaptureError, CaptureLimits};
use port::xdp::Address;
use vhost_user::SocketAccess;
use wire::{Mac, Vid};

use super::super::attachment::SocketEndpoint;
use super::super::devices::{DeviceContext, DeviceOpener, OpenError, device, tunnel};
use super::super::handover::PortKey;
use super::super::nic_instance::{
    CaptureFile, NicInstance, PortBackend, ServedPort, capture_label, label,
};
use super::super::port_spec::PortSpec;
use super::super::vdpa::VdpaStart;
use super::{DataPlane, WantedPort, files};

/// Resources added for a change that is not applied yet.
#[derive(Default)]
pub(super) struct StagedChange {
    /// New NICs.
    pub(super) nics: Vec<String>,
    /// By NIC and owner.
    pub(super) ports: Vec<(String, PortOwner, Arc<Port>, PreparedBackend)>,
    pub(super) captures: Vec<(String, String, CaptureFile)>,
    /// Devices closed to free their resources for others.
    pub(super) suspended: Vec<u64>,
    /// Sockets with a changed access, and the access before.
    pub(super) access: Vec<(u64, SocketAccess)>,
}

/// Prepared backend of a new port.
pub(super) enum PreparedBackend {
    /// A vhost-user socket.
    Socket(SocketEndpoint),
    /// A device, opened or with the error of opening it.
    Device(Box<dyn DeviceOpener>, Result<port::OpenedDevice, OpenError>),
    /// A device to be handed over later.
    HandedOver(Box<dyn DeviceOpener>),
    /// A vDPA device.
    Vdpa(VdpaStart),
    /// A resource held by a vhost-user socket or a vDPA device, which is served until the change is
    /// applied.
    AfterChange,
}

impl DataPlane {
    /// Adds what is missing.
    pub(super) fn stage(
        &mut self,
        wanted: &[WantedPort],
        compiled: &Compiled,
        staged: &mut StagedChange,
    ) -> Result<(), Problems> {
        for nic in &compiled.nics {
            if !self.instances.contains_key(&nic.name) {
                self.instances
                    .insert(nic.name.clone(), NicInstance::new(&mut self.fabric, &nic.name));
                staged.nics.push(nic.name.clone());
            }
            self.stage_captures(nic, staged)?;
        }
        for want in wanted {
            let access = self.access.of_port(&want.spec, &want.field)?;
            self.stage_access(want, access, staged)?;
            let instance = &self.instances[&want.nic];
            if instance.served.get(&want.owner).is_some_and(|served| served.is(want)) {
                continue;
            }
            let addresses = compiled.nic(&want.nic).map_or_else(Vec::new, addresses);
            let prepared = self.prepare_backend(want, addresses, access, staged);
            let prepared = prepared.map_err(|text| refused(want, &text))?;
            let soft = self.instances[&want.nic].soft.clone();
            let label = label(&want.nic, &want.owner);
            let pairs = usize::from(want.spec.queue_pairs());
            let port = self.fabric.add_port(&soft, &label, pairs);
            let port = port.map_err(|error| refused(want, &error.to_string()))?;
            staged.ports.push((want.nic.clone(), want.owner.clone(), port, prepared));
        }
        Ok(())
    }

    /// Changes the access to a vhost-user socket that is served and stays; its session stays too.
    fn stage_access(
        &self,
        want: &WantedPort,
        access: Option<SocketAccess>,
        staged: &mut StagedChange,
    ) -> Result<(), Problems> {
        let (Some(access), Some(resource)) = (access, want.spec.resource()) else { return Ok(()) };
        let mut served = self.instances.values().flat_map(|instance| instance.served.values());
        let Some(held) = served.find(|held| held.spec.resource().as_ref() == Some(&resource))
        else {
            return Ok(());
        };
        let before = self.access.of_port(&held.spec, "").ok().flatten();
        if let (PortBackend::Socket(token), Some(before)) = (held.backend, before)
            && before != access
        {
            let changed = self.sockets.set_access(token, access);
            staged.access.push((token, before));
            changed.map_err(|error| refused(want, &error.to_string()))?;
        }
        Ok(())
    }

    /// Opens the backend of a port, or returns the error text. A device that holds the resource is
    /// closed.
    fn prepare_backend(
        &mut self,
        want: &WantedPort,
        addresses: Vec<Address>,
        access: Option<SocketAccess>,
        staged: &mut StagedChange,
    ) -> Result<PreparedBackend, String> {
        if let Some(handover) = &mut self.handover {
            return match &want.spec {
                PortSpec::Attachment(Attachment::VhostUser(spec)) => {
                    let endpoint =
                        handover.endpoint(&PortKey::of(&want.nic, &want.owner), spec, access);
                    let endpoint =
                        endpoint.and_then(|endpoint| endpoint.context("it was not handed over"));
                    endpoint.map(PreparedBackend::Socket).map_err(|error| format!("{error:#}"))
                }
                PortSpec::Attachment(Attachment::Vduse(_)) => {
                    Ok(PreparedBackend::Vdpa(VdpaStart::OnResume))
                }
                _ => Ok(PreparedBackend::HandedOver(self.opener(want, addresses, access))),
            };
        }
        let resource = want.spec.resource();
        let mut served = self
            .instances
            .iter()
            .flat_map(|(nic, instance)| instance.served.values().map(move |it| (nic, it)));
        let holder =
            served.find(|(_, held)| resource.is_some() && held.spec.resource() == resource);
        match holder.map(|(nic, held)| (held.backend, &held.spec, nic.clone())) {
            Some((PortBackend::Socket(token), held, _)) => {
                let PortSpec::Attachment(Attachment::VhostUser(spec)) = &want.spec else {
                    return Ok(PreparedBackend::AfterChange); // keep the session until the change is certain
                };
                let endpoint = self.endpoint(spec, access, held, token);
                return endpoint.map(PreparedBackend::Socket).map_err(|error| format!("{error:#}"));
            }
            Some((PortBackend::Device(token), _, nic)) => {
                self.leave_queues(&nic);
                self.devices.suspend(token);
                staged.suspended.push(token);
            }
            Some((PortBackend::Vdpa(_), ..)) => return Ok(PreparedBackend::AfterChange),
            None => {}
        }
        if let PortSpec::Attachment(Attachment::Vduse(spec)) = &want.spec {
            let opened = self.vdpas.open(spec, &want.identity);
            let opened = opened.map_err(|error| format!("{error:#}"))?;
            return Ok(opened.map_or(PreparedBackend::AfterChange, |opened| {
                PreparedBackend::Vdpa(VdpaStart::Opened(opened))
            }));
        }
        if let PortSpec::Attachment(Attachment::VhostUser(spec)) = &want.spec {
            return SocketEndpoint::open(spec, access)
                .map(PreparedBackend::Socket)
                .map_err(|error| format!("{error:#}"));
        }
        let open = self.opener(want, addresses, access);
        if let Some(tap) = want.kept_tap() {
            self.kept_taps.trim(tap);
        }
        // Those who may do anything in a namespace cannot keep the daemon from its start.
        let may_fail =
            !self.tx_resumed && open.interface().is_some_and(|(_, netns)| netns.is_some());
        match open.open() {
            Err(OpenError { text, may_appear: false }) if !may_fail => Err(text),
            opened => Ok(PreparedBackend::Device(open, opened)),
        }
    }

    /// Opener of a device, for anything but vhost-user and vDPA.
    pub(super) fn opener(
        &self,
        want: &WantedPort,
        addresses: Vec<Address>,
        access: Option<SocketAccess>,
    ) -> Box<dyn DeviceOpener> {
        let label = label(&want.nic, &want.owner);
        let begins_down = matches!(want.owner, PortOwner::Representor(_));
        let mark = want.kept_tap().map(|_| self.kept_taps.mark().to_owned());
        let mac = want.identity.mac;
        let context = DeviceContext { mac, label, addresses, begins_down, access, mark };
        match &want.spec {
            PortSpec::Attachment(attachment) => device(attachment, context),
            PortSpec::Tunnel(vxlan) => tunnel(vxlan),
        }
    }

    /// Shares the socket of `held`, or opens a new one if the mode differs.
    fn endpoint(
        &self,
        spec: &VhostUser,
        access: Option<SocketAccess>,
        held: &PortSpec,
        token: u64,
    ) -> anyhow::Result<SocketEndpoint> {
        let same = matches!(held, PortSpec::Attachment(Attachment::VhostUser(held)) if held.mode == spec.mode);
        match self.sockets.endpoint(token).filter(|_| same) {
            Some(endpoint) => Ok(endpoint),
            None => SocketEndpoint::open(spec, access),
        }
    }

    fn stage_captures(
        &mut self,
        compiled: &compile::CompiledNic,
        staged: &mut StagedChange,
    ) -> Result<(), Problems> {
        let nic = &compiled.name;
        for (path, label) in files(compiled) {
            if self.instances[nic].captures.contains_key(path)
                || staged.captures.iter().any(|(of, known, _)| (of, known.as_str()) == (nic, path))
            {
                continue;
            }
            let refuse = |error: anyhow::Error| {
                let allowed = "the path of a new file that the daemon may write".to_owned();
                Problem::new("mirror.file", path, format!("cannot create: {error:#}"), allowed)
            };
            let limits = CaptureLimits::default();
            let (mut made, mut buffer) = (None, None);
            if self.handover.is_some() {
                // The file is handed over while no process serves, so allocate its buffer now.
                let new = CaptureBuffer::new(limits).map_err(CaptureError::from);
                buffer = Some(new.map_err(|error| refuse(error.into()))?);
            } else {
                let new = Capture::create(path.as_ref(), label, limits);
                made = Some(new.map_err(|error| refuse(error.into()))?);
            }
            let soft = self.instances[nic].soft.clone();
            let port = self.fabric.add_monitor(&soft, &capture_label(nic, path));
            let port = port.map_err(|error| refuse(error.into()))?;
            let (capture, receive) = made.unzip();
            receive.into_iter().for_each(|receive| port.attach_receive(0, receive));
            let captured = CaptureFile::new(port, capture, buffer);
            staged.captures.push((nic.clone(), path.to_owned(), captured));
        }
        Ok(())
    }
}

impl ServedPort {
    /// Returns `true` if the port is served as wanted.
    fn is(&self, want: &WantedPort) -> bool {
        self.spec.serves_as(&want.spec)
            && self.identity.mac.is_some() == want.identity.mac.is_some()
    }
}

fn refused(want: &WantedPort, text: &str) -> Problem {
    let (field, value) = want.spec.named();
    let error = format!("cannot be opened: {text}");
    // A problem without a field of its own is reported at the field it derives from.
    let at = match want.field.ends_with(".mode") {
        true => want.field.clone(),
        false => format!("{}.{field}", want.field),
    };
    Problem::new(at, value, error, "correct it, or use another value".to_owned())
}

/// Addresses of a NIC in their VLANs, with the broadcast address of each: the receive filter.
pub(super) fn addresses(nic: &compile::CompiledNic) -> Vec<Address> {
    let config = &nic.config;
    let functions = config.functions().map(|(_, function)| function);
    let functions = functions.chain(config.queues.iter().flatten());
    let behind = config.switch.iter().flatten().map(|filter| (filter.mac, filter.vid));
    let own = functions.flat_map(|function: &Function| {
        let native = function.vlan.map_or(0, |vlan| vlan.vid.get());
        let vids = std::iter::once(native).chain(function.trunk.iter().map(Vid::get));
        let macs = move || std::iter::once(&function.mac).chain(&function.extra_macs);
        vids.flat_map(move |vid| macs().map(move |mac| (*mac, vid)))
    });
    let with_groups =
        |(mac, vlan): (Mac, u16)| [mac, Mac::BROADCAST].map(|mac| Address { mac: mac.0, vlan });
    let all: BTreeSet<Address> = own.chain(behind).flat_map(with_groups).collect();
    all.into_iter().collect()
}

//! Staging: opens what a change needs before the change, so that failures reject it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
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
use super::super::port_spec::{ExclusiveResource, PortSpec};
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
    /// Backends whose resources others get.
    pub(super) released: Vec<PortBackend>,
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
    /// Opened when the change is certain: a resource held by a vhost-user socket or a vDPA device,
    /// which is served until then; and a tap that outlives the daemon, which a rejected change
    /// leaves as it was.
    AfterChange,
}

/// A served port that holds a resource, with the name of its NIC.
type Holder = (String, ServedPort);

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
        let holders = self.instances.iter().flat_map(|(nic, instance)| {
            let served = instance.served.values();
            served.filter_map(|held| Some((held.spec.resource()?, (nic.clone(), held.clone()))))
        });
        let holders: BTreeMap<ExclusiveResource, Holder> = holders.collect();
        let resources: Vec<_> = wanted.iter().map(|want| want.spec.resource()).collect();
        let mut users: BTreeMap<&ExclusiveResource, Vec<&WantedPort>> = BTreeMap::new();
        for (want, resource) in wanted.iter().zip(&resources) {
            resource.iter().for_each(|resource| users.entry(resource).or_default().push(want));
        }
        for (want, resource) in wanted.iter().zip(&resources) {
            let holder = resource.as_ref().and_then(|resource| holders.get(resource));
            let access = self.access.of_port(&want.spec, &want.field)?;
            self.stage_access(want, access, holder, staged)?;
            let instance = &self.instances[&want.nic];
            if instance.served.get(&want.owner).is_some_and(|served| served.is(want)) {
                continue;
            }
            let mut others =
                resource.iter().flat_map(|it| &users[it]).filter(|it| it.field != want.field);
            let other = others.next();
            if let Some(other) = other.filter(|_| self.tx_resumed) {
                let label = label(&other.nic, &other.owner);
                let error = anyhow!("{label} has it, under another name of its network namespace");
                return Err(refused(want, error).into());
            }
            let addresses = compiled.nic(&want.nic).map_or_else(Vec::new, addresses);
            let holder = holder.filter(|_| other.is_none());
            let prepared = self.prepare_backend(want, holder, addresses, access, staged);
            let prepared = prepared.map_err(|error| refused(want, error))?;
            let soft = self.instances[&want.nic].soft.clone();
            let label = label(&want.nic, &want.owner);
            let pairs = usize::from(want.spec.queue_pairs());
            let port = self.fabric.add_port(&soft, &label, pairs);
            let port = port.map_err(|error| refused(want, anyhow::Error::from(error)))?;
            staged.ports.push((want.nic.clone(), want.owner.clone(), port, prepared));
        }
        Ok(())
    }

    /// Changes the access to a vhost-user socket that is served and stays; its session stays too.
    fn stage_access(
        &self,
        want: &WantedPort,
        access: Option<SocketAccess>,
        holder: Option<&Holder>,
        staged: &mut StagedChange,
    ) -> Result<(), Problems> {
        let (Some(access), Some((_, held))) = (access, holder) else { return Ok(()) };
        let before = self.access.of_port(&held.spec, "").ok().flatten();
        if let (PortBackend::Socket(token), Some(before)) = (held.backend, before)
            && before != access
        {
            let changed = self.sockets.set_access(token, access);
            staged.access.push((token, before));
            changed.map_err(|error| refused(want, anyhow::Error::from(error)))?;
        }
        Ok(())
    }

    /// Opens the backend of a port. A device that holds the resource is closed.
    fn prepare_backend(
        &mut self,
        want: &WantedPort,
        holder: Option<&Holder>,
        addresses: Vec<Address>,
        access: Option<SocketAccess>,
        staged: &mut StagedChange,
    ) -> Result<PreparedBackend, OpenError> {
        if let Some(handover) = &mut self.handover {
            return match &want.spec {
                PortSpec::Attachment(Attachment::VhostUser(spec)) => {
                    let endpoint =
                        handover.endpoint(&PortKey::of(&want.nic, &want.owner), spec, access);
                    let endpoint =
                        endpoint.and_then(|endpoint| endpoint.context("it was not handed over"));
                    Ok(PreparedBackend::Socket(endpoint?))
                }
                PortSpec::Attachment(Attachment::Vduse(_)) => {
                    Ok(PreparedBackend::Vdpa(VdpaStart::OnResume))
                }
                _ => Ok(PreparedBackend::HandedOver(self.opener(want, addresses, access))),
            };
        }
        staged.released.extend(holder.map(|(_, held)| held.backend));
        if want.kept_tap().is_some() {
            // Those who may do anything in a namespace cannot keep the daemon from its start.
            if self.tx_resumed && holder.is_none() {
                let checked = self.opener(want, addresses, access).check();
                checked.or_else(|error| if error.may_appear { Ok(()) } else { Err(error) })?;
            }
            return Ok(PreparedBackend::AfterChange);
        }
        match holder.map(|(nic, held)| (held.backend, &held.spec, nic)) {
            Some((PortBackend::Socket(token), held, _)) => {
                let PortSpec::Attachment(Attachment::VhostUser(spec)) = &want.spec else {
                    return Ok(PreparedBackend::AfterChange);
                };
                let endpoint = self.endpoint(spec, access, held, token)?;
                return Ok(PreparedBackend::Socket(endpoint));
            }
            Some((PortBackend::Device(token), _, nic)) => {
                self.leave_queues(nic);
                self.devices.suspend(token);
                staged.suspended.push(token);
            }
            Some((PortBackend::Vdpa(_), ..)) => return Ok(PreparedBackend::AfterChange),
            None => {}
        }
        if let PortSpec::Attachment(Attachment::Vduse(spec)) = &want.spec {
            let opened = self.vdpas.open(spec, &want.identity)?;
            return Ok(opened.map_or(PreparedBackend::AfterChange, |opened| {
                PreparedBackend::Vdpa(VdpaStart::Opened(opened))
            }));
        }
        if let PortSpec::Attachment(Attachment::VhostUser(spec)) = &want.spec {
            return Ok(PreparedBackend::Socket(SocketEndpoint::open(spec, access)?));
        }
        let mut open = self.opener(want, addresses, access);
        let may_fail = // as above
            !self.tx_resumed && open.interface().is_some_and(|(_, netns)| netns.is_some());
        match open.open() {
            Err(error) if !may_fail && !error.may_appear => Err(error),
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
        let kept = want.kept_tap();
        let mark = kept.map(|_| self.kept_taps.mark().to_owned());
        let removed = kept.map(|tap| self.kept_taps.removed(tap)).unwrap_or_default();
        let mac = want.identity.mac;
        let context = DeviceContext { mac, label, addresses, begins_down, access, mark, removed };
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
        for (path, monitor) in files(compiled) {
            if self.instances[nic].captures.contains_key(path)
                || staged.captures.iter().any(|(of, known, _)| (of, known.as_str()) == (nic, path))
            {
                continue;
            }
            let refuse = |error: anyhow::Error| {
                let OpenError { cause, remedy, .. } = error.into();
                let cause = cause.strip_prefix(&format!("{path}: ")).unwrap_or(&cause);
                let remedy = remedy.unwrap_or_else(|| "name another file".to_owned());
                let field = format!("{}.file", monitor.field);
                Problem::new(field, path, format!("cannot be created: {cause}"), remedy)
            };
            let limits = CaptureLimits::default();
            let (mut made, mut buffer) = (None, None);
            if self.handover.is_some() {
                // The file is handed over while no process serves, so allocate its buffer now.
                let new = CaptureBuffer::new(limits).map_err(CaptureError::from);
                buffer = Some(new.map_err(|error| refuse(error.into()))?);
            } else {
                let new = Capture::create(path.as_ref(), &monitor.label, limits);
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

fn refused(want: &WantedPort, error: impl Into<OpenError>) -> Problem {
    let OpenError { cause, remedy, field, .. } = error.into();
    let (field, value) = want.spec.named(field);
    let error = format!("cannot be opened: {cause}");
    // A problem without a field of its own is reported at the field it derives from.
    let at = match want.field.ends_with(".mode") {
        true => want.field.clone(),
        false => format!("{}.{field}", want.field),
    };
    let remedy = remedy.unwrap_or_else(|| "correct it, or use another value".to_owned());
    Problem::new(at, value, error, remedy)
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

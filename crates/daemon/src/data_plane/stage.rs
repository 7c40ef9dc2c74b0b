//! What a change needs is opened before it is made, so that what cannot be had is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use api::compile::{self, Compiled, PortOwner};
use bridge::nic::Function;
use engine::Port;
use model::state::{Attachment, Problem, VhostUser};
use port::capture::{Capture, CaptureBuffer, CaptureError, CaptureLimits};
use port::xdp::Address;
use wire::{Mac, Vid};

use super::super::attachment::Way;
use super::super::devices::{Context, NotOpened, Open, device, tunnel};
use super::super::nic_instance::{Captured, End, NicInstance, Served, capture_label, label};
use super::super::upgrade;
use super::super::vdpa::Begin;
use super::{DataPlane, Spec, Wanted, files};

/// What was added for a change that is not yet made.
#[derive(Default)]
pub(super) struct Staged {
    /// NICs that are new.
    pub(super) nics: Vec<String>,
    /// By NIC and owner.
    pub(super) ports: Vec<(String, PortOwner, Arc<Port>, Ready)>,
    pub(super) captures: Vec<(String, String, Captured)>,
    /// Devices that were closed so that others can have their places.
    pub(super) suspended: Vec<u64>,
}

/// What is to be behind a new port.
pub(super) enum Ready {
    /// A vhost-user socket.
    Socket(Way),
    /// A device, as it was opened or why it is not there yet.
    Device(Box<dyn Open>, Result<port::OpenedDevice, NotOpened>),
    /// A device that is handed over later.
    HandedOver(Box<dyn Open>),
    /// A vDPA device.
    Vdpa(Begin),
    /// Something in the place of a vhost-user socket or a vDPA device, which is served until the
    /// change is made.
    Later,
}

impl DataPlane {
    /// Adds what is missing.
    pub(super) fn stage(
        &mut self,
        wanted: &[Wanted],
        compiled: &Compiled,
        staged: &mut Staged,
    ) -> Result<(), Problem> {
        for nic in &compiled.nics {
            if !self.instances.contains_key(&nic.name) {
                self.instances
                    .insert(nic.name.clone(), NicInstance::new(&mut self.fabric, &nic.name));
                staged.nics.push(nic.name.clone());
            }
            self.stage_captures(nic, staged)?;
        }
        for wish in wanted {
            let instance = &self.instances[&wish.nic];
            if instance.served.get(&wish.owner).is_some_and(|served| served.is(wish)) {
                continue;
            }
            let addresses = compiled.nic(&wish.nic).map_or_else(Vec::new, addresses);
            let ready = self.ready(wish, addresses, staged);
            let ready = ready.map_err(|text| refused(wish, &text))?;
            let soft = self.instances[&wish.nic].soft.clone();
            let label = label(&wish.nic, &wish.owner);
            let pairs = usize::from(wish.spec.queue_pairs());
            let port = self.fabric.add_port(&soft, &label, pairs);
            let port = port.map_err(|error| refused(wish, &error.to_string()))?;
            staged.ports.push((wish.nic.clone(), wish.owner.clone(), port, ready));
        }
        Ok(())
    }

    /// Opens what is to be behind a port; says why it cannot be. A device that has its place is
    /// closed for it.
    fn ready(
        &mut self,
        wish: &Wanted,
        addresses: Vec<Address>,
        staged: &mut Staged,
    ) -> Result<Ready, String> {
        if let Some(handover) = &mut self.handover {
            return match &wish.spec {
                Spec::Attachment(Attachment::VhostUser(spec)) => {
                    let way = handover.way(&upgrade::Place::of(&wish.nic, &wish.owner), spec);
                    let way = way.and_then(|way| way.context("it was not handed over"));
                    way.map(Ready::Socket).map_err(|error| format!("{error:#}"))
                }
                Spec::Attachment(Attachment::Vduse(_)) => Ok(Ready::Vdpa(Begin::WhenTold)),
                _ => Ok(Ready::HandedOver(opener(wish, addresses))),
            };
        }
        let place = wish.spec.place();
        let mut served = self
            .instances
            .iter()
            .flat_map(|(nic, instance)| instance.served.values().map(move |it| (nic, it)));
        let holder = served.find(|(_, held)| place.is_some() && held.spec.place() == place);
        match holder.map(|(nic, held)| (held.end, &held.spec, nic.clone())) {
            Some((End::Socket(token), held, _)) => {
                let Spec::Attachment(Attachment::VhostUser(spec)) = &wish.spec else {
                    return Ok(Ready::Later); // a session is not ended for what may not happen
                };
                let way = self.way(spec, held, token);
                return way.map(Ready::Socket).map_err(|error| format!("{error:#}"));
            }
            Some((End::Device(token), _, nic)) => {
                self.leave_queues(&nic);
                self.devices.suspend(token);
                staged.suspended.push(token);
            }
            Some((End::Vdpa(_), ..)) => return Ok(Ready::Later),
            None => {}
        }
        if let Spec::Attachment(Attachment::Vduse(spec)) = &wish.spec {
            let opened = self.vdpas.open(spec, &wish.identity);
            let opened = opened.map_err(|error| format!("{error:#}"))?;
            return Ok(opened.map_or(Ready::Later, |opened| Ready::Vdpa(Begin::With(opened))));
        }
        if let Spec::Attachment(Attachment::VhostUser(spec)) = &wish.spec {
            return Way::open(spec).map(Ready::Socket).map_err(|error| format!("{error:#}"));
        }
        let open = opener(wish, addresses);
        match open.open() {
            Err(NotOpened { text, may_come: false }) => Err(text),
            opened => Ok(Ready::Device(open, opened)),
        }
    }

    /// Another hold on the socket of `held`, or a new one where somebody else listens from now on.
    fn way(&self, spec: &VhostUser, held: &Spec, token: u64) -> anyhow::Result<Way> {
        let same =
            matches!(held, Spec::Attachment(Attachment::VhostUser(held)) if held.mode == spec.mode);
        match self.sockets.way(token).filter(|_| same) {
            Some(way) => Ok(way),
            None => Way::open(spec),
        }
    }

    fn stage_captures(
        &mut self,
        compiled: &compile::CompiledNic,
        staged: &mut Staged,
    ) -> Result<(), Problem> {
        let nic = &compiled.name;
        for (path, label) in files(compiled) {
            if self.instances[nic].captures.contains_key(path)
                || staged.captures.iter().any(|(of, known, _)| (of, known.as_str()) == (nic, path))
            {
                continue;
            }
            let refuse = |error: String| {
                let allowed = "the path of a new file that the daemon may write".to_owned();
                Problem::new("mirror.file", path, format!("cannot be made: {error}"), allowed)
            };
            let limits = CaptureLimits::default();
            let (mut made, mut buffer) = (None, None);
            if self.handover.is_some() {
                // The file is handed over while no process serves, so its buffer is made now.
                let new = CaptureBuffer::new(limits).map_err(CaptureError::from);
                buffer = Some(new.map_err(|error| refuse(error.to_string()))?);
            } else {
                let new = Capture::create(path.as_ref(), label, limits);
                made = Some(new.map_err(|error| refuse(error.to_string()))?);
            }
            let soft = self.instances[nic].soft.clone();
            let port = self.fabric.add_monitor(&soft, &capture_label(nic, path));
            let port = port.map_err(|error| refuse(error.to_string()))?;
            let (capture, receive) = made.unzip();
            receive.into_iter().for_each(|receive| port.attach_receive(0, receive));
            let captured = Captured::new(port, capture, buffer);
            staged.captures.push((nic.clone(), path.to_owned(), captured));
        }
        Ok(())
    }
}

impl Served {
    /// Whether it is served as it is wanted.
    fn is(&self, wish: &Wanted) -> bool {
        self.spec == wish.spec && self.identity.mac.is_some() == wish.identity.mac.is_some()
    }
}

/// How the device of a spec is opened, which is no vhost-user socket.
pub(super) fn opener(wish: &Wanted, addresses: Vec<Address>) -> Box<dyn Open> {
    let label = label(&wish.nic, &wish.owner);
    let begins_down = matches!(wish.owner, PortOwner::Representor(_));
    let context = Context { mac: wish.identity.mac, label, addresses, begins_down };
    match &wish.spec {
        Spec::Attachment(attachment) => device(attachment, context),
        Spec::Tunnel(vxlan) => tunnel(vxlan),
    }
}

fn refused(wish: &Wanted, text: &str) -> Problem {
    let (field, value) = wish.spec.named();
    let error = format!("cannot be opened: {text}");
    // What nobody wrote has the field that it comes from.
    let at = match wish.field.ends_with(".mode") {
        true => wish.field.clone(),
        false => format!("{}.{field}", wish.field),
    };
    Problem::new(at, value, error, "mend that, or write another".to_owned())
}

/// The addresses of a NIC in their VLANs, and the groups of those: what a filter lets through.
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

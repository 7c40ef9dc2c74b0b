//! QEMU's options for a virtual PF.
//!
//! As in QEMU's documentation of SR-IOV: the VFs come before their PF, all are functions of one
//! slot behind a PCIe port, and each names the PF by `sriov-pf`. A comma in a value is written
//! twice.

use model::state::{
    Adapter, Attachment, Problem, Problems, SocketMode, State, Stream, VhostUser, Vpf, VpfModel,
    VpfVf,
};

/// Options that are not in the document.
#[derive(Debug, Clone, Copy)]
pub(super) struct QemuArgs<'a> {
    pub(super) memory: Option<&'a str>,
    pub(super) reconnect_ms: u32,
    pub(super) bus: Option<&'a str>,
    pub(super) chassis: u8,
}

/// Option names and values.
pub(super) type Options = Vec<[String; 2]>;

fn option(name: &str, value: String) -> [String; 2] {
    [name.to_owned(), value]
}

/// A value with its commas doubled.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// All options.
///
/// # Errors
/// An adapter is missing, or has an attachment that QEMU does not support.
pub(super) fn options(state: &State, vpf: &Vpf, how: &QemuArgs<'_>) -> Result<Options, Problems> {
    let mut options = Vec::new();
    // Letters first: an id may not begin with a digit.
    let id = format!("vpf-{}", vpf.name);
    if let Some(size) = how.memory {
        let value = format!("memory-backend-memfd,id={id}-mem,size={},share=on", escaped(size));
        options.push(option("-object", value));
        options.push(option("-machine", format!("memory-backend={id}-mem")));
    }
    let bus = how.bus.map_or_else(|| format!("{id}-port"), str::to_owned);
    if how.bus.is_none() {
        let value = format!("pcie-root-port,id={bus},chassis={}", how.chassis);
        options.push(option("-device", value));
    }
    // The highest function first, so that the PF is last.
    for (i, vf) in vpf.vfs.iter().enumerate().rev() {
        let number = i + 1;
        let (of, mac) = (format!("{id}-vf{i}"), mac_of(state, vf));
        let queues = match vf {
            VpfVf { vhost_vdpa: Some(device), .. } => {
                let value = format!("vhost-vdpa,id={of},vhostdev={}", escaped(device));
                options.push(option("-netdev", value));
                Queues::default()
            }
            VpfVf { adapter, .. } => {
                let name = adapter.as_deref().unwrap_or_default();
                netdev(&mut options, adapter_of(state, name)?, &of, how)?
            }
        };
        let device = format!("virtio-net-pci,bus={bus},addr=0x0.0x{number:x},sriov-pf={id}");
        options
            .push(option("-device", format!("{device},netdev={of}{mac}{}", queues.properties())));
    }
    let (of, pf) = (format!("{id}-pf"), adapter_of(state, &vpf.pf)?);
    let queues = netdev(&mut options, pf, &of, how)?;
    let (model, properties) = match vpf.model {
        VpfModel::Virtio => ("virtio-net-pci", queues.properties()),
        VpfModel::Igb => ("igb", String::new()),
    };
    let device = format!("{model},bus={bus},addr=0x0.0x0,id={id},netdev={of},mac={}", pf.mac);
    options.push(option("-device", format!("{device}{properties}")));
    channel(&mut options, vpf, &id, how);
    Ok(options)
}

fn channel(options: &mut Options, vpf: &Vpf, id: &str, how: &QemuArgs<'_>) {
    let Some(control) = &vpf.control else { return };
    let socket = format!("socket,id={id}-ctl,path={}{}", escaped(&control.socket), reconnect(how));
    options.push(option("-chardev", socket));
    options.push(option("-device", format!("virtio-serial-pci,id={id}-serial")));
    let name = escaped(&format!("shunt.vpf.{}", vpf.name));
    let port = format!("virtserialport,bus={id}-serial.0,chardev={id}-ctl,name={name}");
    options.push(option("-device", port));
}

fn reconnect(how: &QemuArgs<'_>) -> String {
    match how.reconnect_ms {
        0 => String::new(),
        ms => format!(",reconnect-ms={ms}"),
    }
}

fn adapter_of<'s>(state: &'s State, name: &str) -> Result<&'s Adapter, Problems> {
    let remedy = "run shunt vpf with --vfs again";
    let absent = || Problem::new("", (), "does not exist", remedy).of(format!("adapter {name}"));
    state.adapter(name).ok_or_else(|| absent().into())
}

/// MAC address of a function in the guest; a host's device has its own.
fn mac_of(state: &State, vf: &VpfVf) -> String {
    let adapter = vf.adapter.as_deref().and_then(|name| state.adapter(name));
    adapter.map_or_else(String::new, |adapter| format!(",mac={}", adapter.mac))
}

/// Parameters of a device for its back end.
#[derive(Debug, Clone, Copy, Default)]
struct Queues {
    pairs: u16,
    mtu: u16,
}

impl Queues {
    fn properties(self) -> String {
        let mut all = ",romfile=".to_owned();
        if self.pairs > 1 {
            // One vector per queue, one for the configuration and one for the control queue.
            all += &format!(",mq=on,vectors={}", 2 * self.pairs + 2);
        }
        if ![0, 1500].contains(&self.mtu) {
            all += &format!(",host_mtu={}", self.mtu);
        }
        all
    }
}

/// The back end of a function.
fn netdev(
    options: &mut Options,
    adapter: &Adapter,
    id: &str,
    how: &QemuArgs<'_>,
) -> Result<Queues, Problems> {
    let place = escaped(adapter.attachment.place());
    let none = Queues::default();
    match &adapter.attachment {
        Attachment::VhostUser(VhostUser { mode, queue_pairs, mtu, .. }) => {
            let way = match mode {
                SocketMode::Server => reconnect(how),
                SocketMode::Client => ",server=on,wait=off".to_owned(),
            };
            options.push(option("-chardev", format!("socket,id={id}-chr,path={place}{way}")));
            let queues =
                if *queue_pairs > 1 { format!(",queues={queue_pairs}") } else { String::new() };
            let value = format!("vhost-user,id={id},chardev={id}-chr{queues}");
            options.push(option("-netdev", value));
            Ok(Queues { pairs: *queue_pairs, mtu: *mtu })
        }
        Attachment::Stream(Stream { mode, .. }) => {
            let way = match mode {
                SocketMode::Server => format!("server=off{}", reconnect(how)),
                SocketMode::Client => "server=on".to_owned(),
            };
            let value = format!("stream,id={id},addr.type=unix,addr.path={place},{way}");
            options.push(option("-netdev", value));
            Ok(none)
        }
        Attachment::Packet(_) | Attachment::Xdp(_) => {
            // QEMU makes the tap or uses an existing one; the daemon has its other side.
            let value = format!("tap,id={id},ifname={place},script=no,downscript=no");
            options.push(option("-netdev", value));
            Ok(none)
        }
        other => {
            let remedy = "give it a vhost-user socket";
            let problem = Problem::new(
                "attachment.kind",
                other.kind().word(),
                "is not supported by QEMU",
                remedy,
            );
            Err(problem.of(format!("adapter {}", adapter.name)).into())
        }
    }
}

/// Notes for the operator who starts the guest.
pub(super) fn notes(state: &State, vpf: &Vpf, how: &QemuArgs<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let names = std::iter::once(&vpf.pf).chain(vpf.vfs.iter().filter_map(|vf| vf.adapter.as_ref()));
    let adapters = names.filter_map(|name| state.adapter(name));
    let shares = adapters.clone().any(|it| matches!(it.attachment, Attachment::VhostUser(_)));
    if shares && how.memory.is_none() {
        notes.push("the guest's memory must be shared: give --memory SIZE, or a memory backend with share=on".into());
    }
    if adapters
        .clone()
        .any(|it| matches!(it.attachment, Attachment::Packet(_) | Attachment::Xdp(_)))
    {
        notes.push("QEMU makes the taps; set each up once it runs: ip link set NAME up".into());
    }
    if vpf.model == VpfModel::Igb
        && let Some(pf) = state.adapter(&vpf.pf)
    {
        notes.push("in the guest set these VF addresses; frames from others are dropped:".into());
        for (vf, mac) in pf.settings.macs.iter().take(7).enumerate() {
            notes.push(format!("    ip link set DEV vf {vf} mac {mac}"));
        }
    }
    notes
}

/// One option per line.
pub(super) fn as_lines(options: &Options) -> String {
    options.iter().map(|[name, value]| format!("{name} {value}\n")).collect()
}

/// As elements of a libvirt domain.
pub(super) fn as_libvirt(options: &Options) -> String {
    let quoted = |text: &String| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;");
        format!("    <qemu:arg value='{text}'/>\n")
    };
    // Libvirt makes the memory; a memory option would add a second one.
    let own = |name: &str, value: &str| {
        name == "-object" || name == "-machine" && value.starts_with("memory-backend=")
    };
    let args = options.iter().filter(|[name, value]| !own(name, value)).flatten().map(quoted);
    let args: String = args.collect();
    format!(
        "<!-- in <domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'> -->\n\
         <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n</memoryBacking>\n\
         <qemu:commandline>\n{args}</qemu:commandline>\n"
    )
}

#[cfg(test)]
mod tests;

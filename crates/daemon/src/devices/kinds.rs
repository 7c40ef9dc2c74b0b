//! From the document's words for a device to what the ports take.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::interface::InterfaceError;
use host::netns::NetnsError;
use host::packet::PacketError;
use host::tun::TunError;
use model::state::{Attachment, Packet, Pcap, SocketMode, Stream, Tap, Vxlan, Xdp, ZeroCopy};
use port::pcap::Pace;
use port::tap::TapError;
use port::vxlan::VxlanError;
use port::xdp::{Address, AddressFilter, GuestQueues, XdpPortError};
use port::{OpenedDevice, PortHandover, packet, pcap, stream, tap, vxlan, xdp};
use wire::Mac;

use super::{NotOpened, Open};

/// What a device's own words do not say.
#[derive(Debug, Default)]
pub(in super::super) struct Context {
    /// The address of who is behind it.
    pub(in super::super) mac: Option<Mac>,
    /// What people call the port.
    pub(in super::super) label: String,
    /// The addresses of its NIC, in their VLANs.
    pub(in super::super) addresses: Vec<Address>,
    /// Whether an interface that is made for it is left switched off, as the kernel leaves
    /// representors.
    pub(in super::super) begins_down: bool,
}

/// How an attachment is opened, which is no vhost-user socket.
pub(in super::super) fn device(attachment: &Attachment, context: Context) -> Box<dyn Open> {
    match attachment {
        Attachment::Tap(tap) => Box::new(tap_spec(tap, &context)),
        Attachment::Packet(packet) => Box::new(packet_spec(packet)),
        Attachment::Xdp(xdp) => Box::new(xdp_device(xdp, context.addresses)),
        Attachment::Stream(stream) => Box::new(stream_spec(stream)),
        Attachment::Pcap(pcap) => Box::new(pcap_spec(pcap, context.label)),
        Attachment::VhostUser(_) | Attachment::Vduse(_) => unreachable!("it has a guest's memory"),
    }
}

/// How a tunnel is opened.
pub(in super::super) fn tunnel(tunnel: &Vxlan) -> Box<dyn Open> {
    let Vxlan { vni, local, port, peers, mtu, .. } = tunnel.clone();
    Box::new(vxlan::VxlanSpec { vni, local, port, peers, mtu })
}

/// An error with its causes, of what may be only not there yet.
fn not_opened(error: impl Into<anyhow::Error>, may_come: bool) -> NotOpened {
    NotOpened { text: format!("{:#}", error.into()), may_come }
}

/// Whether a namespace may come.
fn may_come(error: &NetnsError) -> bool {
    matches!(error, NetnsError::Open { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// Whether an interface may come that cannot be asked now.
fn may_be_there(error: &InterfaceError) -> bool {
    match error {
        InterfaceError::Missing { .. } => true,
        InterfaceError::Netns(netns) => may_come(netns),
        _ => false,
    }
}

fn tap_spec(tap: &Tap, Context { mac, begins_down, .. }: &Context) -> tap::TapSpec {
    let Tap { interface, netns, queue_pairs, mtu, offload } = tap.clone();
    let (mac, begins_up) = (*mac, !begins_down);
    tap::TapSpec { name: interface, netns, queue_pairs, mtu, offload, mac, begins_up }
}

impl Open for tap::TapSpec {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        tap::open(self).map_err(|error| {
            let netns = match &error {
                TapError::Interface(InterfaceError::Netns(netns))
                | TapError::Tun(TunError::Interface(InterfaceError::Netns(netns))) => Some(netns),
                _ => None,
            };
            let may_come = netns.is_some_and(may_come);
            not_opened(error, may_come)
        })
    }

    fn resume(&self, legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        tap::resume(self, legacy).map_err(|error| not_opened(error, false))
    }

    fn interface(&self) -> Option<(&str, Option<&str>)> {
        Some((&self.name, self.netns.as_deref()))
    }

    fn set_mac(&mut self, mac: Mac) {
        self.mac = Some(mac);
    }

    fn mtu_max(&self) -> Option<u16> {
        Some(self.mtu)
    }
}

fn packet_spec(packet: &Packet) -> packet::PacketSpec {
    let Packet { interface, netns } = packet.clone();
    packet::PacketSpec { name: interface, netns, mtu: None, bypass: false }
}

impl Open for packet::PacketSpec {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        packet::open(self).map_err(|error| {
            let may_come = match &error {
                packet::PacketPortError::Interface(error)
                | packet::PacketPortError::Packet(PacketError::Interface(error)) => {
                    may_be_there(error)
                }
                _ => false,
            };
            not_opened(error, may_come)
        })
    }

    fn resume(&self, legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        packet::resume(self, legacy).map_err(|error| not_opened(error, false))
    }

    fn interface(&self) -> Option<(&str, Option<&str>)> {
        Some((&self.name, self.netns.as_deref()))
    }

    fn follows_mtu(&self) -> bool {
        true
    }
}

fn stream_spec(stream: &Stream) -> stream::StreamSpec {
    let role = match stream.mode {
        SocketMode::Server => stream::SocketRole::Server,
        SocketMode::Client => stream::SocketRole::Client,
    };
    stream::StreamSpec { socket: PathBuf::from(&stream.socket), role, mtu: stream.mtu }
}

impl Open for stream::StreamSpec {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        stream::open(self).map_err(|error| not_opened(error, false))
    }

    fn resume(&self, legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        stream::resume(self, legacy).map_err(|error| not_opened(error, false))
    }
}

/// An interface by AF_XDP, and the queues behind its port's as it was opened last.
#[derive(Debug)]
struct XdpDevice {
    spec: xdp::XdpSpec,
    queues: Mutex<Option<GuestQueues>>,
}

fn xdp_device(xdp: &Xdp, addresses: Vec<Address>) -> XdpDevice {
    let Xdp { interface, netns, queue_pairs, filter, zero_copy, busy_poll_us } = xdp.clone();
    let zero_copy = match zero_copy {
        ZeroCopy::Auto => xdp::ZeroCopy::Auto,
        ZeroCopy::Never => xdp::ZeroCopy::Never,
        ZeroCopy::Require => xdp::ZeroCopy::Require,
    };
    let filter = filter.then(|| Arc::new(AddressFilter::new(addresses)));
    let spec = xdp::XdpSpec { interface, netns, queue_pairs, filter, zero_copy, busy_poll_us };
    XdpDevice { spec, queues: Mutex::default() }
}

impl XdpDevice {
    fn last(&self) -> MutexGuard<'_, Option<GuestQueues>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open for XdpDevice {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        let opened = xdp::open_with_queues(&self.spec).map_err(|error| {
            let may_come = match &error {
                XdpPortError::Netns(netns) => may_come(netns),
                XdpPortError::Xdp(error) => {
                    matches!(error, ::xdp::XdpError::NoInterface(_) | ::xdp::XdpError::Down(_))
                }
                _ => false,
            };
            not_opened(error, may_come)
        });
        let (opened, queues) = opened?;
        *self.last() = queues;
        Ok(opened)
    }

    fn queues(&self) -> Option<GuestQueues> {
        self.last().clone()
    }

    fn interface(&self) -> Option<(&str, Option<&str>)> {
        Some((&self.spec.interface, self.spec.netns.as_deref()))
    }

    fn set_addresses(&mut self, addresses: Vec<Address>) {
        if let Some(filter) = &self.spec.filter {
            filter.set(addresses);
        }
    }
}

fn pcap_spec(pcap: &Pcap, label: String) -> pcap::PcapSpec {
    let Pcap { file, sink, rate_mbps, rate_pps, repeat } = pcap.clone();
    let pace = match (rate_mbps, rate_pps) {
        (0, 0) => Pace::Recorded,
        (0, pps) => Pace::Pps(pps),
        (mbps, _) => Pace::Mbps(mbps),
    };
    let (file, sink) = (PathBuf::from(file), sink.map(PathBuf::from));
    pcap::PcapSpec { file, sink, name: label, pace, repeat }
}

impl Open for pcap::PcapSpec {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        pcap::open(self).map_err(|error| not_opened(error, false))
    }

    fn resume(&self, legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        pcap::resume(self, legacy).map_err(|error| not_opened(error, false))
    }
}

impl Open for vxlan::VxlanSpec {
    fn open(&self) -> Result<OpenedDevice, NotOpened> {
        vxlan::open(self).map_err(|error| {
            let may_come = match &error {
                // The address may be given to an interface yet.
                VxlanError::Socket { source, .. } => {
                    source.kind() == std::io::ErrorKind::AddrNotAvailable
                }
                _ => false,
            };
            not_opened(error, may_come)
        })
    }

    fn resume(&self, legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        vxlan::resume(self, legacy).map_err(|error| not_opened(error, false))
    }
}

//! Conversion of device settings to port parameters.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::interface::InterfaceError;
use host::links::LinkAddress;
use host::netns::NetnsError;
use host::packet::PacketError;
use host::tun::TunError;
use model::state::{
    Attachment, InterfaceAddress, Packet, Pcap, SocketMode, Stream, Tap, Vxlan, Xdp, ZeroCopy,
};
use port::packet::PacketPortError;
use port::pcap::{Pace, PcapError};
use port::tap::TapError;
use port::vxlan::VxlanError;
use port::xdp::{Address, AddressFilter, GuestQueues, XdpPortError};
use port::{OpenedDevice, PortHandover, packet, pcap, stream, tap, vxlan, xdp};
use vhost_user::SocketAccess;
use wire::Mac;

use super::open::{DeviceOpener, OpenError};

/// Parameters of a device beyond its own settings.
#[derive(Debug, Default)]
pub(in super::super) struct DeviceContext {
    /// MAC address behind the device.
    pub(in super::super) mac: Option<Mac>,
    /// Label of the port.
    pub(in super::super) label: String,
    /// Addresses of its NIC, in their VLANs.
    pub(in super::super) addresses: Vec<Address>,
    /// A created interface stays switched off, as the kernel's representors do.
    pub(in super::super) begins_down: bool,
    /// Mark of the device's interface, which then outlives the daemon.
    pub(in super::super) mark: Option<String>,
    /// Addresses and gateways to remove from that interface.
    pub(in super::super) removed: (Vec<InterfaceAddress>, Vec<IpAddr>),
    /// Users that may connect, if the device is a listening socket.
    pub(in super::super) access: Option<SocketAccess>,
}

/// Opener of an attachment, for anything but vhost-user, vDPA and interfaces of VFs.
pub(in super::super) fn device(
    attachment: &Attachment,
    context: DeviceContext,
) -> Box<dyn DeviceOpener> {
    match attachment {
        Attachment::Tap(tap) => Box::new(tap_spec(tap, &context)),
        Attachment::Packet(packet) => Box::new(packet_spec(packet)),
        Attachment::Xdp(xdp) => Box::new(xdp_device(xdp, context.addresses)),
        Attachment::Stream(stream) => Box::new(stream_spec(stream, context.access)),
        Attachment::Pcap(pcap) => Box::new(pcap_spec(pcap, context.label)),
        Attachment::VhostUser(_) | Attachment::Vduse(_) => unreachable!("it has guest memory"),
        Attachment::VfInterface(_) => unreachable!("it is no port"),
    }
}

/// Opener of a tunnel.
pub(in super::super) fn tunnel(tunnel: &Vxlan) -> Box<dyn DeviceOpener> {
    let Vxlan { vni, local, port, peers, mtu, .. } = tunnel.clone();
    Box::new(vxlan::VxlanSpec { vni, local, port, peers, mtu })
}

/// Converts an error with its causes.
fn open_error(error: impl Into<anyhow::Error>, may_appear: bool) -> OpenError {
    OpenError { may_appear, ..OpenError::from(error.into()) }
}

/// Converts an error of the network namespace, which may appear later if it is missing.
fn netns_error(error: NetnsError) -> OpenError {
    let is_missing = matches!(&error, NetnsError::Missing { .. });
    OpenError { field: Some("netns"), ..open_error(error, is_missing) }
}

/// An address of the document for the kernel.
fn link_address(address: InterfaceAddress) -> LinkAddress {
    LinkAddress { ip: address.address, prefix_len: address.length }
}

fn tap_spec(tap: &Tap, context: &DeviceContext) -> tap::TapSpec {
    let Tap { interface, netns, ip, gateway, queue_pairs, mtu, offload } = tap.clone();
    let (addresses, gateways) = context.removed.clone();
    tap::TapSpec {
        name: interface,
        netns,
        queue_pairs,
        mtu,
        offload,
        mac: context.mac,
        begins_up: !context.begins_down,
        addresses: ip.into_iter().map(link_address).collect(),
        gateways: gateway,
        removed: (addresses.into_iter().map(link_address).collect(), gateways),
        mark: context.mark.clone(),
    }
}

/// Converts an error of a tap.
fn tap_error(error: TapError) -> OpenError {
    match error {
        TapError::Interface(InterfaceError::Netns(netns))
        | TapError::Tun(TunError::Interface(InterfaceError::Netns(netns))) => netns_error(netns),
        _ => open_error(error, false),
    }
}

impl DeviceOpener for tap::TapSpec {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        tap::open(self).map_err(tap_error)
    }

    fn check(&self) -> Result<(), OpenError> {
        tap::check(self).map_err(tap_error)
    }

    fn resume(&mut self, handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        tap::resume(self, handover).map_err(|error| open_error(error, false))
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

impl DeviceOpener for packet::PacketSpec {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        packet::open(self).map_err(|error| match error {
            PacketPortError::Interface(InterfaceError::Netns(netns))
            | PacketPortError::Packet(PacketError::Interface(InterfaceError::Netns(netns))) => {
                netns_error(netns)
            }
            PacketPortError::Interface(InterfaceError::Missing { .. })
            | PacketPortError::Packet(PacketError::Interface(InterfaceError::Missing { .. })) => {
                open_error(error, true)
            }
            _ => open_error(error, false),
        })
    }

    fn resume(&mut self, handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        packet::resume(self, handover).map_err(|error| open_error(error, false))
    }

    fn interface(&self) -> Option<(&str, Option<&str>)> {
        Some((&self.name, self.netns.as_deref()))
    }

    fn follows_mtu(&self) -> bool {
        true
    }
}

fn stream_spec(stream: &Stream, access: Option<SocketAccess>) -> stream::StreamSpec {
    let role = match stream.mode {
        SocketMode::Server => stream::SocketRole::Server,
        SocketMode::Client => stream::SocketRole::Client,
    };
    let access = access.unwrap_or(SocketAccess::OWNER);
    stream::StreamSpec { socket: PathBuf::from(&stream.socket), role, access, mtu: stream.mtu }
}

impl DeviceOpener for stream::StreamSpec {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        stream::open(self).map_err(|error| open_error(error, false))
    }

    fn resume(&mut self, handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        stream::resume(self, handover).map_err(|error| open_error(error, false))
    }
}

/// An AF_XDP interface, and its queues beyond the port's as of the last open.
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

impl DeviceOpener for XdpDevice {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        let opened = xdp::open_with_queues(&self.spec).map_err(|error| match error {
            XdpPortError::Netns(netns) => netns_error(netns),
            XdpPortError::Xdp(::xdp::XdpError::NoInterface(_) | ::xdp::XdpError::Down(_)) => {
                open_error(error, true)
            }
            _ => open_error(error, false),
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

impl DeviceOpener for pcap::PcapSpec {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        pcap::open(self).map_err(|error| {
            let is_sinks = matches!(error, PcapError::Sink(_));
            OpenError { field: is_sinks.then_some("sink"), ..open_error(error, false) }
        })
    }

    fn resume(&mut self, handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        pcap::resume(self, handover).map_err(|error| open_error(error, false))
    }
}

impl DeviceOpener for vxlan::VxlanSpec {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        vxlan::open(self).map_err(|error| {
            let may_appear = match &error {
                // The address may still be assigned to an interface.
                VxlanError::Socket { source, .. } => {
                    source.kind() == std::io::ErrorKind::AddrNotAvailable
                }
                _ => false,
            };
            open_error(error, may_appear)
        })
    }

    fn resume(&mut self, handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        vxlan::resume(self, handover).map_err(|error| open_error(error, false))
    }
}

//! Interfaces of VFs (netdevs): one goes to a guest's network namespace, and comes back.
//!
//! # Model
//! Its guest may do anything with an interface: rename it, change it, move it on. So it never comes
//! back as it is. The VF is bound to its driver again, which makes a new interface here, and that
//! gets the name, MTU and flag of the first.
//!
//! Limits: IP addresses and settings of ethtool that the interface had here are not restored. The
//! namespace with the daemon must be the first one of the machine, to which the kernel returns
//! interfaces.

use std::os::fd::{AsFd, BorrowedFd};

use host::interface::InterfaceError;
use host::launcher::{Answer, Request, check_named, check_netns};
use host::links::{
    IFF_UP, INTERFACE_HEADER, LinkAddress, LinkError, LinkSettings, Links, RTM_GETLINK,
};
use host::netlink::{KernelError, Netlink, NetlinkMessage, attribute, text, u32_at};
use host::netns::{self, NetnsError};
use model::state::{Adapter, MacText, VfInterface};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use wire::Mac;

use crate::address::PciAddress;
use crate::change::check_vf;
use crate::pf;
use crate::sysfs::Sysfs;

const IFLA_PARENT_DEV_NAME: u16 = 56;
const RTM_GETADDR: u16 = 22;
/// Bytes of `struct ifaddrmsg`: family, prefix length, flags, scope, index of the interface.
const ADDRESS_HEADER: usize = 8;
/// Scope of addresses that an interface has by itself, such as fe80::1 (`RT_SCOPE_LINK`).
const SCOPE_LINK: u8 = 253;
/// `addr_assign_type` of an address that the driver has chosen at random (`NET_ADDR_RANDOM`).
const ADDRESS_RANDOM: &str = "1";
/// `addr_assign_type` of an address that an operator has set (`NET_ADDR_SET`).
const ADDRESS_SET: &str = "3";

/// Interface of a VF: its place and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfNetdev {
    /// Network namespace, by name or path; `None`: the daemon's.
    pub netns: Option<String>,
    /// Name of the interface.
    pub name: String,
    /// MAC address; `None`: the one that the VF's driver chooses.
    pub mac: Option<MacText>,
    /// MTU in bytes.
    pub mtu: u32,
    /// `true` if it is up.
    pub up: bool,
    /// IP addresses.
    pub addresses: Vec<LinkAddress>,
    /// Gateways of default routes.
    pub gateways: Vec<std::net::IpAddr>,
}

impl VfNetdev {
    /// Interface of an adapter's VF, as the document says.
    pub fn of(adapter: &Adapter, attachment: &VfInterface) -> VfNetdev {
        let VfInterface { interface, netns, ip, gateway, mtu } = attachment.clone();
        let address = |ip: model::state::InterfaceAddress| LinkAddress {
            ip: ip.address,
            prefix_len: ip.length,
        };
        VfNetdev {
            netns,
            name: interface,
            mac: Some(adapter.mac),
            mtu: mtu.into(),
            up: true,
            addresses: ip.into_iter().map(address).collect(),
            gateways: gateway,
        }
    }
}

/// Interface of a VF in this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostNetdev {
    /// Interface to come back; with an address only if an operator has set it.
    pub(crate) netdev: VfNetdev,
    /// Present address.
    pub(crate) address: Mac,
    /// `true` if the VF's driver has chosen the address at random.
    pub(crate) is_random: bool,
}

/// An interface that cannot be as wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct NetdevError {
    /// Error and remedy.
    pub text: String,
    /// The kernel's error number, if there is one.
    pub errno: Option<i32>,
}

impl NetdevError {
    pub(crate) fn new(text: impl Into<String>, errno: Option<Errno>) -> NetdevError {
        NetdevError { text: text.into(), errno: errno.map(Errno::raw_os_error) }
    }
}

impl From<LinkError> for NetdevError {
    fn from(error: LinkError) -> NetdevError {
        NetdevError::new(format!("{error}: {}", error.source), Some(error.source))
    }
}

impl From<Errno> for NetdevError {
    fn from(errno: Errno) -> NetdevError {
        NetdevError::new(errno.to_string(), Some(errno))
    }
}

impl From<KernelError> for NetdevError {
    fn from(error: KernelError) -> NetdevError {
        NetdevError::new(error.to_string(), Some(error.errno()))
    }
}

impl From<NetnsError> for NetdevError {
    fn from(error: NetnsError) -> NetdevError {
        NetdevError::new(error.to_string(), None)
    }
}

impl From<InterfaceError> for NetdevError {
    fn from(error: InterfaceError) -> NetdevError {
        NetdevError::new(error.to_string(), None)
    }
}

/// Reads the interface of a VF in this namespace; `None` if it is elsewhere, or the VF has no
/// driver that makes one.
pub(crate) fn read(sysfs: &Sysfs, vf: PciAddress) -> Option<HostNetdev> {
    let net = pf::interface_directory(sysfs, vf)?;
    let address: Mac = Sysfs::text(&net.join("address"))?.parse().ok()?;
    let number = |attribute: &str| Sysfs::text(&net.join(attribute));
    let assigned = number("addr_assign_type")?;
    let flags = u32::from_str_radix(number("flags")?.trim_start_matches("0x"), 16).ok()?;
    let netdev = VfNetdev {
        netns: None,
        name: net.file_name()?.to_str()?.to_owned(),
        mac: (assigned == ADDRESS_SET).then_some(MacText(address)),
        mtu: number("mtu")?.parse().ok()?,
        up: flags & IFF_UP != 0,
        addresses: Vec::new(),
        gateways: Vec::new(),
    };
    Some(HostNetdev { netdev, address, is_random: assigned == ADDRESS_RANDOM })
}

/// Use of a VF's interface by the host, for which it must stay: another interface on it, such as a
/// bridge, or IP addresses. `None` if it has none.
pub(crate) fn host_use(sysfs: &Sysfs, vf: PciAddress) -> Option<String> {
    let net = pf::interface_directory(sysfs, vf)?;
    let (name, index) = pf::interface(sysfs, vf)?;
    let entries = Sysfs::names(&net);
    if let Some(upper) = entries.iter().find_map(|entry| entry.strip_prefix("upper_")) {
        return Some(format!("the host has {upper} on its interface {name}"));
    }
    let request = NetlinkMessage::new(RTM_GETADDR, &[0; ADDRESS_HEADER]);
    let addresses = Netlink::route().map_err(KernelError::from).and_then(|it| it.dump(request));
    let has_some = addresses.is_ok_and(|all| all.iter().any(|it| is_address_of(index, it)));
    has_some.then(|| format!("its interface {name} has IP addresses on the host"))
}

/// `true` for an address of an interface that is valid beyond the link: `struct ifaddrmsg`.
fn is_address_of(index: u32, address: &[u8]) -> bool {
    u32_at(address, 4) == Some(index) && address.get(3).is_some_and(|scope| *scope < SCOPE_LINK)
}

/// `true` if a namespace has the interface of a function, whatever its name (Linux 5.14).
pub(crate) fn is_in(netns: &str, function: PciAddress) -> bool {
    let wanted = function.to_string();
    let is_its = |link: &Vec<u8>| {
        let parent =
            attribute(link.get(INTERFACE_HEADER..).unwrap_or_default(), IFLA_PARENT_DEV_NAME);
        parent.is_some_and(|parent| text(parent) == wanted)
    };
    let find = || -> Result<bool, KernelError> {
        let links =
            Netlink::route()?.dump(NetlinkMessage::new(RTM_GETLINK, &[0; INTERFACE_HEADER]))?;
        Ok(links.iter().any(is_its))
    };
    netns::within(Some(netns), find).is_ok_and(|found| found.unwrap_or(false))
}

/// Moves the interface of a VF out of this namespace, or sets it here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlaceNetdev {
    pub(crate) pf: PciAddress,
    pub(crate) vf: u16,
    pub(crate) to: VfNetdev,
}

impl Request for PlaceNetdev {
    const NAME: &'static str = "place-netdev";
    const DOES: &'static str =
        "moves the interface of a VF of a NIC into a network namespace, or sets it here";
    /// Notes for the operator.
    type Reply = Result<Vec<String>, NetdevError>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        match &self.to.netns {
            Some(netns) => {
                check_netns(&netns::path_of(netns))?;
                check_named(&["vf"], &self.to.name)?;
            }
            // In the host's namespace it only returns.
            None if self.to.addresses.is_empty() && self.to.gateways.is_empty() => {}
            None => return Err(Errno::PERM),
        }
        check_vf(&Sysfs::default(), self.pf, self.vf)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let sysfs = Sysfs::default();
        let vf = pf::vf(&sysfs, self.pf, self.vf).ok_or(Errno::NODEV)?;
        Ok((place(&sysfs, vf, &self.to), Vec::new()))
    }
}

/// Sets the interface of a VF, which is in this namespace; returns notes for the operator, such as
/// a route that is not. After an error it may be anywhere.
fn place(sysfs: &Sysfs, vf: PciAddress, to: &VfNetdev) -> Result<Vec<String>, NetdevError> {
    let missing = || NetdevError::new("the VF has no interface here", Some(Errno::NODEV));
    let (name, index) = pf::interface(sysfs, vf).ok_or_else(missing)?;
    let HostNetdev { netdev: now, address, .. } = read(sysfs, vf).ok_or_else(missing)?;
    let netns = to.netns.as_deref();
    let file = netns.map(netns::open_file).transpose()?;
    let links = Links::open()?;
    if now.up && now.name != to.name {
        // An interface that is up keeps its name.
        links.set(&name, index, &LinkSettings { up: Some(false), ..LinkSettings::default() })?;
    }
    let mac = to.mac.map(|MacText(mac)| mac).filter(|mac| *mac != address);
    let settings = LinkSettings {
        netns: file.as_ref().map(AsFd::as_fd),
        name: Some(&to.name),
        mac: mac.map(|mac| mac.0),
        mtu: (to.mtu != now.mtu).then_some(to.mtu),
        up: None,
    };
    links.set(&name, index, &settings)?;
    netns::within(netns, || {
        let mut links = Links::open()?;
        for address in &to.addresses {
            links.add_address(&to.name, *address)?;
        }
        let index = links.index(&to.name)?;
        let up = LinkSettings { up: Some(to.up), ..LinkSettings::default() };
        links.set(&to.name, index, &up)?;
        let routes = to.gateways.iter().map(|gateway| links.add_gateway(&to.name, *gateway));
        Ok(routes.filter_map(Result::err).map(|error| NetdevError::from(error).text).collect())
    })?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_interface_is_read_with_what_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, vf) = (Sysfs::at(dir.path()), "0000:01:10.0".parse().unwrap());
        assert_eq!(read(&sysfs, vf), None);
        let net = sysfs.pci(vf).join("net/eth1");
        fs::create_dir_all(&net).unwrap();
        let attributes = [
            ("address", "02:00:00:00:00:05"),
            ("addr_assign_type", "1"),
            ("flags", "0x1003"),
            ("ifindex", "7"),
            ("mtu", "1400"),
        ];
        for (name, value) in attributes {
            fs::write(net.join(name), format!("{value}\n")).unwrap();
        }
        let HostNetdev { netdev, address, is_random } = read(&sysfs, vf).unwrap();
        assert_eq!((netdev.name.as_str(), netdev.mtu, netdev.up), ("eth1", 1400, true));
        assert_eq!((netdev.mac, address, is_random), (None, Mac([2, 0, 0, 0, 0, 5]), true));
        fs::write(net.join("addr_assign_type"), "3").unwrap();
        fs::write(net.join("flags"), "0x1002").unwrap();
        let HostNetdev { netdev, is_random, .. } = read(&sysfs, vf).unwrap();
        assert_eq!((netdev.mac, netdev.up, is_random), (Some(MacText(address)), false, false));
    }

    #[test]
    fn an_interface_with_addresses_or_a_bridge_is_the_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, vf) = (Sysfs::at(dir.path()), "0000:01:10.0".parse().unwrap());
        assert_eq!(host_use(&sysfs, vf), None);
        let net = sysfs.pci(vf).join("net/eth1");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("ifindex"), "2147483647").unwrap();
        assert_eq!(host_use(&sysfs, vf), None);
        fs::create_dir(net.join("upper_br0")).unwrap();
        assert_eq!(host_use(&sysfs, vf).unwrap(), "the host has br0 on its interface eth1");
        fs::remove_dir(net.join("upper_br0")).unwrap();
        // 10.0.0.1/24, global, on interface 7; fe80::1/64 has the scope of its link.
        let (global, own) = ([2, 24, 0x80, 0, 7, 0, 0, 0], [10, 64, 0x80, 253, 7, 0, 0, 0]);
        assert!(is_address_of(7, &global) && !is_address_of(8, &global));
        assert!(!is_address_of(7, &own) && !is_address_of(7, &[]));
    }

    #[test]
    fn no_namespace_has_the_interface_of_a_function_that_is_not_there() {
        assert!(!is_in("/proc/self/ns/net", "ffff:ff:1f.7".parse().unwrap()));
        assert!(!is_in("/nowhere", "ffff:ff:1f.7".parse().unwrap()));
    }
}

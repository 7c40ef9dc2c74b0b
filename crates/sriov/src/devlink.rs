//! devlink: what a NIC's driver offers beyond interfaces, by generic netlink.
//!
//! Model: a [`DevlinkDevice`] has an eswitch with a mode, and ports: those to the wire, and in
//! switchdev mode the representors of functions. Rate objects limit what VFs send: a leaf belongs
//! to a port, a node is a group of others.
//!
//! Follows `include/uapi/linux/devlink.h` and `Documentation/networking/devlink` of Linux.

use host::netlink::{
    GENL_HEADER, KernelError, Netlink, NetlinkMessage, attribute, attributes, text, u16_at, u32_at,
};
use model::state::NicMode;
use rustix::io::Errno;
use wire::Mac;

use crate::address::PciAddress;

const CMD_PORT_GET: u8 = 5;
const CMD_PORT_SET: u8 = 6;
const CMD_ESWITCH_GET: u8 = 29;
const CMD_ESWITCH_SET: u8 = 30;
const CMD_INFO_GET: u8 = 51;
const CMD_RATE_GET: u8 = 74;
const CMD_RATE_SET: u8 = 75;
const CMD_RATE_NEW: u8 = 76;
const CMD_RATE_DEL: u8 = 77;

const ATTR_BUS_NAME: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_PORT_NETDEV_NAME: u16 = 7;
const ATTR_ESWITCH_MODE: u16 = 25;
const ATTR_PORT_FLAVOUR: u16 = 77;
const ATTR_INFO_DRIVER_NAME: u16 = 98;
/// Attributes of versions, `DEVLINK_ATTR_INFO_VERSION_*`.
const VERSION_KINDS: [(u16, &str); 3] = [(100, "fixed"), (101, "running"), (102, "stored")];
const ATTR_INFO_VERSION_NAME: u16 = 103;
const ATTR_INFO_VERSION_VALUE: u16 = 104;
const ATTR_PORT_PCI_PF_NUMBER: u16 = 127;
const ATTR_PORT_PCI_VF_NUMBER: u16 = 128;
const ATTR_PORT_FUNCTION: u16 = 145;
const ATTR_RATE_TX_SHARE: u16 = 166;
const ATTR_RATE_TX_MAX: u16 = 167;
const ATTR_RATE_NODE_NAME: u16 = 168;
const ATTR_RATE_PARENT_NODE_NAME: u16 = 169;
const FUNCTION_ATTR_HW_ADDR: u16 = 1;
const FUNCTION_ATTR_STATE: u16 = 2;

/// Flavours of ports by their number, `DEVLINK_PORT_FLAVOUR_*`.
const FLAVOURS: [&str; 8] =
    ["physical", "cpu", "dsa", "pcipf", "pcivf", "virtual", "unused", "pcisf"];

/// Name of a device, such as `pci/0000:01:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevlinkDevice {
    /// Its bus.
    pub bus: String,
    /// Its name on the bus.
    pub name: String,
}

impl DevlinkDevice {
    /// The device of a PCI function.
    pub fn pci(address: PciAddress) -> DevlinkDevice {
        DevlinkDevice { bus: "pci".to_owned(), name: address.to_string() }
    }
}

/// Driver and versions of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevlinkInfo {
    /// Name of the driver.
    pub driver: Option<String>,
    /// Versions of its parts.
    pub versions: Vec<DevlinkVersion>,
}

/// Version of a part of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevlinkVersion {
    /// `fixed` for hardware, `running` or `stored` for firmware.
    pub kind: &'static str,
    /// Its part, such as `fw.mgmt`.
    pub name: String,
    /// The version.
    pub value: String,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevlinkPort {
    /// Its index.
    pub index: u32,
    /// Flavour, as `devlink port` shows it, such as `pcivf`.
    pub flavour: Option<&'static str>,
    /// Number of the PF behind it.
    pub pf: Option<u16>,
    /// Index of the VF behind it.
    pub vf: Option<u16>,
    /// Its interface.
    pub interface: Option<String>,
    /// MAC address of the function behind it; zero if the function chooses.
    pub function_mac: Option<Mac>,
    /// `true` if the function behind it is active; `None` if the driver does not report it.
    pub function_active: Option<bool>,
}

/// Object that a rate belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateOwner {
    /// The function behind the port with this index.
    Port(u32),
    /// A group with this name.
    Node(String),
}

/// A rate object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevlinkRate {
    /// Its owner.
    pub owner: RateOwner,
    /// Guaranteed rate in bytes a second; 0: none.
    pub tx_share: u64,
    /// Maximum rate in bytes a second; 0: no limit.
    pub tx_max: u64,
    /// Group that it belongs to.
    pub parent: Option<String>,
}

/// A change of a rate object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateChange {
    /// Guaranteed rate in bytes a second.
    TxShare(u64),
    /// Maximum rate in bytes a second; 0: no limit.
    TxMax(u64),
    /// Group; `None`: leaves it.
    Parent(Option<String>),
}

/// A socket for devlink.
#[derive(Debug)]
pub struct Devlink {
    netlink: Netlink,
    family: u16,
}

impl Devlink {
    /// Connects to devlink.
    ///
    /// # Errors
    /// `ENOENT`: the kernel has no devlink.
    pub fn open() -> Result<Devlink, KernelError> {
        let netlink = Netlink::generic()?;
        let family = netlink.family("devlink")?;
        Ok(Devlink { netlink, family })
    }

    fn request(&self, command: u8, device: &DevlinkDevice) -> NetlinkMessage {
        let request = NetlinkMessage::generic(self.family, command);
        request.with_text(ATTR_BUS_NAME, &device.bus).with_text(ATTR_DEV_NAME, &device.name)
    }

    fn change(&self, request: NetlinkMessage) -> Result<(), KernelError> {
        self.netlink.exchange(request.acknowledged()).map(drop)
    }

    /// Objects of a device among all of their kind.
    fn all(&self, command: u8, device: &DevlinkDevice) -> Result<Vec<Vec<u8>>, KernelError> {
        let mut all = self.netlink.dump(NetlinkMessage::generic(self.family, command))?;
        all.iter_mut().for_each(|message| drop(message.drain(..GENL_HEADER.min(message.len()))));
        all.retain(|message| {
            let is = |kind, name: &str| attribute(message, kind).is_some_and(|it| text(it) == name);
            is(ATTR_BUS_NAME, &device.bus) && is(ATTR_DEV_NAME, &device.name)
        });
        Ok(all)
    }

    /// Driver and versions of a device.
    ///
    /// # Errors
    /// `ENODEV`: devlink does not know the device.
    pub fn info(&self, device: &DevlinkDevice) -> Result<DevlinkInfo, KernelError> {
        let answer = self.netlink.exchange(self.request(CMD_INFO_GET, device))?;
        Ok(info(answer.get(GENL_HEADER..).unwrap_or_default()))
    }

    /// Mode of a device's eswitch; `None` if the device or its driver has none. Needs
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    pub fn eswitch_mode(&self, device: &DevlinkDevice) -> Result<Option<NicMode>, KernelError> {
        let answer = match self.netlink.exchange(self.request(CMD_ESWITCH_GET, device)) {
            Err(error) if matches!(error.errno(), Errno::NODEV | Errno::OPNOTSUPP) => {
                return Ok(None);
            }
            answer => answer?,
        };
        let attributes = answer.get(GENL_HEADER..).unwrap_or_default();
        let mode = attribute(attributes, ATTR_ESWITCH_MODE).and_then(|mode| u16_at(mode, 0));
        Ok(match mode {
            Some(0) => Some(NicMode::Legacy),
            Some(1) => Some(NicMode::Switchdev),
            _ => None,
        })
    }

    /// Sets the mode of a device's eswitch.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_eswitch_mode(
        &self,
        device: &DevlinkDevice,
        mode: NicMode,
    ) -> Result<(), KernelError> {
        let number: u16 = match mode {
            NicMode::Legacy => 0,
            NicMode::Switchdev => 1,
        };
        let request = self.request(CMD_ESWITCH_SET, device);
        self.change(request.with(ATTR_ESWITCH_MODE, &number.to_ne_bytes()))
    }

    /// Ports of a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ports(&self, device: &DevlinkDevice) -> Result<Vec<DevlinkPort>, KernelError> {
        let all = self.all(CMD_PORT_GET, device)?;
        Ok(all.iter().filter_map(|message| port(message)).collect())
    }

    /// Sets the MAC address of the function behind a port.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_function_mac(
        &self,
        device: &DevlinkDevice,
        port: u32,
        mac: Mac,
    ) -> Result<(), KernelError> {
        let function = NetlinkMessage::nest().with(FUNCTION_ATTR_HW_ADDR, &mac.0);
        self.set_function(device, port, &function)
    }

    /// Activates or deactivates the function behind a port.
    ///
    /// # Errors
    /// The driver's: only subfunctions have a state.
    pub fn set_function_active(
        &self,
        device: &DevlinkDevice,
        port: u32,
        active: bool,
    ) -> Result<(), KernelError> {
        let function = NetlinkMessage::nest().with(FUNCTION_ATTR_STATE, &[u8::from(active)]);
        self.set_function(device, port, &function)
    }

    fn set_function(
        &self,
        device: &DevlinkDevice,
        port: u32,
        function: &NetlinkMessage,
    ) -> Result<(), KernelError> {
        /// devlink checks its messages strictly: nests have this flag.
        const NLA_F_NESTED: u16 = 0x8000;
        let request = self.request(CMD_PORT_SET, device).with(ATTR_PORT_INDEX, &port.to_ne_bytes());
        self.change(request.with_nest(ATTR_PORT_FUNCTION | NLA_F_NESTED, function))
    }

    /// Rate objects of a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rates(&self, device: &DevlinkDevice) -> Result<Vec<DevlinkRate>, KernelError> {
        let all = self.all(CMD_RATE_GET, device)?;
        Ok(all.iter().filter_map(|message| rate(message)).collect())
    }

    /// Makes a group of rate objects.
    ///
    /// # Errors
    /// The driver's: it has no groups, or not in this mode, or the name is taken.
    pub fn add_rate_node(&self, device: &DevlinkDevice, name: &str) -> Result<(), KernelError> {
        self.change(owned(self.request(CMD_RATE_NEW, device), &RateOwner::Node(name.to_owned())))
    }

    /// Removes a group of rate objects.
    ///
    /// # Errors
    /// The driver's: the group has members.
    pub fn remove_rate_node(&self, device: &DevlinkDevice, name: &str) -> Result<(), KernelError> {
        self.change(owned(self.request(CMD_RATE_DEL, device), &RateOwner::Node(name.to_owned())))
    }

    /// Changes a rate object.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_rate(
        &self,
        device: &DevlinkDevice,
        owner: &RateOwner,
        change: &RateChange,
    ) -> Result<(), KernelError> {
        let request = owned(self.request(CMD_RATE_SET, device), owner);
        self.change(match change {
            RateChange::TxShare(rate) => request.with(ATTR_RATE_TX_SHARE, &rate.to_ne_bytes()),
            RateChange::TxMax(rate) => request.with(ATTR_RATE_TX_MAX, &rate.to_ne_bytes()),
            RateChange::Parent(name) => {
                let name = name.as_deref().unwrap_or_default();
                request.with_text(ATTR_RATE_PARENT_NODE_NAME, name)
            }
        })
    }
}

/// A request about a rate object.
fn owned(request: NetlinkMessage, owner: &RateOwner) -> NetlinkMessage {
    match owner {
        RateOwner::Port(index) => request.with(ATTR_PORT_INDEX, &index.to_ne_bytes()),
        RateOwner::Node(name) => request.with_text(ATTR_RATE_NODE_NAME, name),
    }
}

fn info(message: &[u8]) -> DevlinkInfo {
    let version = |(kind, version): (u16, &[u8])| {
        let (_, kind) = VERSION_KINDS.iter().find(|(attribute, _)| *attribute == kind)?;
        let name = text(attribute(version, ATTR_INFO_VERSION_NAME)?);
        let value = text(attribute(version, ATTR_INFO_VERSION_VALUE)?);
        Some(DevlinkVersion { kind, name, value })
    };
    DevlinkInfo {
        driver: attribute(message, ATTR_INFO_DRIVER_NAME).map(text),
        versions: attributes(message).filter_map(version).collect(),
    }
}

fn port(message: &[u8]) -> Option<DevlinkPort> {
    let function = attribute(message, ATTR_PORT_FUNCTION).unwrap_or_default();
    let flavour = attribute(message, ATTR_PORT_FLAVOUR).and_then(|flavour| u16_at(flavour, 0));
    let number = |kind| attribute(message, kind).and_then(|number| u16_at(number, 0));
    let mac = attribute(function, FUNCTION_ATTR_HW_ADDR).and_then(|mac| mac.try_into().ok());
    let state = attribute(function, FUNCTION_ATTR_STATE).and_then(|state| state.first());
    Some(DevlinkPort {
        index: u32_at(attribute(message, ATTR_PORT_INDEX)?, 0)?,
        flavour: FLAVOURS.get(usize::from(flavour.unwrap_or(u16::MAX))).copied(),
        pf: number(ATTR_PORT_PCI_PF_NUMBER),
        vf: number(ATTR_PORT_PCI_VF_NUMBER),
        interface: attribute(message, ATTR_PORT_NETDEV_NAME).map(text),
        function_mac: mac.map(Mac),
        function_active: state.map(|state| *state == 1),
    })
}

fn rate(message: &[u8]) -> Option<DevlinkRate> {
    let number = |kind| {
        let value = attribute(message, kind).and_then(|value| value.first_chunk());
        value.map_or(0, |value| u64::from_ne_bytes(*value))
    };
    let owner = match attribute(message, ATTR_RATE_NODE_NAME) {
        Some(name) => RateOwner::Node(text(name)),
        None => RateOwner::Port(u32_at(attribute(message, ATTR_PORT_INDEX)?, 0)?),
    };
    Some(DevlinkRate {
        owner,
        tx_share: number(ATTR_RATE_TX_SHARE),
        tx_max: number(ATTR_RATE_TX_MAX),
        parent: attribute(message, ATTR_RATE_PARENT_NODE_NAME).map(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of a message.
    fn bytes(message: NetlinkMessage) -> Vec<u8> {
        message.into_bytes(0).split_off(16)
    }

    /// Attributes as netdevsim sends them.
    #[test]
    fn objects_are_read() {
        let nest = NetlinkMessage::nest;
        let version = |name, value| {
            let version = nest().with_text(ATTR_INFO_VERSION_NAME, name);
            version.with_text(ATTR_INFO_VERSION_VALUE, value)
        };
        let message = nest()
            .with_text(ATTR_INFO_DRIVER_NAME, "netdevsim")
            .with_nest(101, &version("fw.mgmt", "10.20.30"))
            .with_nest(99, &version("serial", "1"));
        let (name, value) = ("fw.mgmt".to_owned(), "10.20.30".to_owned());
        let want = DevlinkInfo {
            driver: Some("netdevsim".to_owned()),
            versions: vec![DevlinkVersion { kind: "running", name, value }],
        };
        assert_eq!(info(&bytes(message)), want);

        let function =
            nest().with(FUNCTION_ATTR_HW_ADDR, &[2, 0, 0, 0, 0, 1]).with(FUNCTION_ATTR_STATE, &[1]);
        let message = nest()
            .with(ATTR_PORT_INDEX, &128u32.to_ne_bytes())
            .with(ATTR_PORT_FLAVOUR, &4u16.to_ne_bytes())
            .with(ATTR_PORT_PCI_PF_NUMBER, &[0, 0])
            .with(ATTR_PORT_PCI_VF_NUMBER, &3u16.to_ne_bytes())
            .with_text(ATTR_PORT_NETDEV_NAME, "eth1")
            .with_nest(ATTR_PORT_FUNCTION, &function);
        let want = DevlinkPort {
            index: 128,
            flavour: Some("pcivf"),
            pf: Some(0),
            vf: Some(3),
            interface: Some("eth1".to_owned()),
            function_mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            function_active: Some(true),
        };
        assert_eq!(port(&bytes(message)), Some(want));
        assert_eq!(port(&[]), None);

        let leaf = nest()
            .with(ATTR_PORT_INDEX, &128u32.to_ne_bytes())
            .with(ATTR_RATE_TX_SHARE, &1_250_000u64.to_ne_bytes())
            .with(ATTR_RATE_TX_MAX, &6_250_000u64.to_ne_bytes())
            .with_text(ATTR_RATE_PARENT_NODE_NAME, "g1");
        let want = DevlinkRate {
            owner: RateOwner::Port(128),
            tx_share: 1_250_000,
            tx_max: 6_250_000,
            parent: Some("g1".to_owned()),
        };
        assert_eq!(rate(&bytes(leaf)), Some(want));
        let node = rate(&bytes(nest().with_text(ATTR_RATE_NODE_NAME, "g1"))).unwrap();
        assert_eq!((node.owner, node.tx_max), (RateOwner::Node("g1".to_owned()), 0));
    }

    #[test]
    fn a_device_that_devlink_does_not_know_has_no_eswitch() {
        // A kernel may have no devlink.
        let Ok(devlink) = Devlink::open() else { return };
        let device = DevlinkDevice::pci("ffff:ff:1f.7".parse().unwrap());
        match devlink.eswitch_mode(&device) {
            Err(error) => assert_eq!(error.errno(), Errno::PERM),
            mode => assert_eq!(mode, Ok(None)),
        }
        assert_eq!(devlink.info(&device).unwrap_err().errno(), Errno::NODEV);
        assert_eq!(devlink.ports(&device), Ok(vec![]));
    }
}

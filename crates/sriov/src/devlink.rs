//! devlink: what a NIC's driver offers beyond interfaces, by generic netlink.
//!
//! Follows `include/uapi/linux/devlink.h` and `Documentation/networking/devlink` of Linux.

use host::netlink::{GENL_HEADER, KernelError, Netlink, NetlinkMessage, attribute, u16_at};
use model::state::NicMode;
use rustix::io::Errno;

use crate::address::PciAddress;

const CMD_ESWITCH_GET: u8 = 29;
const CMD_ESWITCH_SET: u8 = 30;

const ATTR_BUS_NAME: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_ESWITCH_MODE: u16 = 25;

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
        let request = self.request(CMD_ESWITCH_SET, device).acknowledged();
        self.netlink.exchange(request.with(ATTR_ESWITCH_MODE, &number.to_ne_bytes()))?;
        Ok(())
    }
}

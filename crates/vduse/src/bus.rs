//! The vDPA bus, over generic netlink: `vdpa dev add name NAME mgmtdev vduse`, and
//! `vdpa dev del NAME`.
//!
//! The kernel answers when the device's driver has started or stopped, and asks the device for its
//! status meanwhile. So the thread that serves the device must not call this.
//!
//! Follows `linux/vdpa.h`.

use std::os::fd::BorrowedFd;

use host::launcher::{Answer, Request, ask, check_named};
use host::netlink::{GENL_HEADER, Netlink, NetlinkMessage, attribute, text};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::VduseError;
use crate::device::is_name;

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_CMD_DEV_GET: u8 = 5;
const VDPA_ATTR_MGMTDEV_BUS_NAME: u16 = 1;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;
/// Management device of VDUSE, which is on no bus.
const MGMTDEV: &str = "vduse";

/// Puts a device on the bus, where drivers find it; returns after a driver, if present, has
/// started. A device already on the bus stays there.
///
/// # Errors
/// The kernel's error, and the remedy.
pub fn add_to_bus(name: &str) -> Result<(), VduseError> {
    match change(name, true) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(source) => Err(error(name, "put on", source)),
    }
}

/// Removes a device from the bus; returns after its driver has released it. Succeeds if it is not
/// there.
///
/// # Errors
/// The kernel's error, and the remedy.
pub fn remove_from_bus(name: &str) -> Result<(), VduseError> {
    match change(name, false) {
        Ok(()) | Err(Errno::NODEV | Errno::NOENT) => Ok(()),
        Err(source) => Err(error(name, "taken off", source)),
    }
}

fn error(name: &str, what: &'static str, source: Errno) -> VduseError {
    let remedy = match source {
        Errno::PERM | Errno::ACCESS => {
            "the daemon needs CAP_NET_ADMIN in the host's own namespaces"
        }
        Errno::NOENT => "load the module: modprobe vdpa",
        _ => "see the kernel's log",
    };
    VduseError::Bus { name: name.to_owned(), what, remedy, source }
}

fn change(name: &str, add: bool) -> Result<(), Errno> {
    ask(ChangeBus { name: name.to_owned(), add }, &[]).map(drop)
}

/// Adds a device to the vDPA bus, or removes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeBus {
    name: String,
    add: bool,
}

impl Request for ChangeBus {
    const NAME: &'static str = "change-vdpa-bus";
    const DOES: &'static str = "adds a VDUSE device to the vDPA bus, or removes it";
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_named(&["vduse"], &self.name)?;
        if self.add {
            return Ok(());
        }
        let netlink = Netlink::generic()?;
        let request = NetlinkMessage::generic(netlink.family("vdpa")?, VDPA_CMD_DEV_GET);
        let device = netlink.exchange(request.with_text(VDPA_ATTR_DEV_NAME, &self.name))?;
        if is_of_vduse(&device) { Ok(()) } else { Err(Errno::PERM) }
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        if !is_name(&self.name) {
            return Err(Errno::INVAL);
        }
        let name = (VDPA_ATTR_DEV_NAME, self.name.as_str());
        match self.add {
            true => send(VDPA_CMD_DEV_NEW, &[name, (VDPA_ATTR_MGMTDEV_DEV_NAME, MGMTDEV)])?,
            false => send(VDPA_CMD_DEV_DEL, &[name])?,
        }
        Ok(((), Vec::new()))
    }
}

/// `true` if the kernel's message about a device says that VDUSE has made it.
pub(crate) fn is_of_vduse(device: &[u8]) -> bool {
    let attributes = device.get(GENL_HEADER..).unwrap_or_default();
    let has_name = |name: &[u8]| text(name) == MGMTDEV;
    attribute(attributes, VDPA_ATTR_MGMTDEV_DEV_NAME).is_some_and(has_name)
        && attribute(attributes, VDPA_ATTR_MGMTDEV_BUS_NAME).is_none()
}

/// Sends a request of the family `vdpa`, and waits for the answer.
fn send(command: u8, texts: &[(u16, &str)]) -> Result<(), Errno> {
    let netlink = Netlink::generic()?;
    let family = netlink.family("vdpa")?;
    netlink.exchange(dev_request(family, command, texts))?;
    Ok(())
}

/// A request of the family `vdpa` about a device, to be acknowledged.
pub(crate) fn dev_request(family: u16, command: u8, texts: &[(u16, &str)]) -> NetlinkMessage {
    let with = |request: NetlinkMessage, (kind, text): &(u16, &str)| request.with_text(*kind, text);
    texts.iter().fold(NetlinkMessage::generic(family, command).acknowledged(), with)
}

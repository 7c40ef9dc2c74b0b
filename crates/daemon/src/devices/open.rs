//! Opening a device: the interface of all kinds, and its error.

use std::fmt;

use port::xdp::GuestQueues;
use port::{OpenedDevice, PortHandover};
use wire::Mac;

/// Opens a device, as often as necessary.
pub(in super::super) trait DeviceOpener: Send + std::fmt::Debug {
    /// Opens the device.
    fn open(&mut self) -> Result<OpenedDevice, OpenError>;

    /// Checks, without a change, that the device can be opened once the one before it is closed.
    fn check(&self) -> Result<(), OpenError> {
        Ok(())
    }

    /// Adopts the device from the previous process.
    fn resume(&mut self, _handover: PortHandover) -> Result<OpenedDevice, OpenError> {
        self.open()
    }

    /// Interface name and network namespace, if the device is an interface.
    fn interface(&self) -> Option<(&str, Option<&str>)> {
        None
    }

    /// Returns `true` if the device must be reopened to follow the interface's MTU.
    fn follows_mtu(&self) -> bool {
        false
    }

    /// Queues beyond those of the port, as of the last open.
    fn queues(&self) -> Option<GuestQueues> {
        None
    }

    /// Changes the MAC address, if the device has one.
    fn set_mac(&mut self, _mac: Mac) {}

    /// Maximum MTU, if the MTU can be set.
    fn mtu_max(&self) -> Option<u16> {
        None
    }

    /// Replaces the receive filter, if the device has one.
    fn set_addresses(&mut self, _addresses: Vec<port::xdp::Address>) {}
}

/// Error of opening a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct OpenError {
    /// Error, with its sources.
    pub(in super::super) cause: String,
    /// Remedy, if the error names one.
    pub(in super::super) remedy: Option<String>,
    /// The device may appear later.
    pub(in super::super) may_appear: bool,
    /// Field of the wrong setting, if it is not the one that names the device.
    pub(in super::super) field: Option<&'static str>,
}

impl From<anyhow::Error> for OpenError {
    fn from(error: anyhow::Error) -> OpenError {
        let text = error.to_string();
        let (own, remedy) = match text.split_once("; ") {
            Some((own, remedy)) => (own.to_owned(), Some(remedy.to_owned())),
            None => (text, None),
        };
        let cause = error.chain().skip(1).fold(own, |cause, source| format!("{cause}: {source}"));
        OpenError { cause, remedy, may_appear: false, field: None }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

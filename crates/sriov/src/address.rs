//! Addresses of PCI functions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Address of a PCI function, written `0000:01:10.2` as in sysfs and `lspci -D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device (slot) on the bus, up to 31.
    pub device: u8,
    /// Function of the device, up to 7.
    pub function: u8,
}

/// A text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no PCI address; expected domain:bus:device.function, e.g. 0000:01:10.2")]
pub struct InvalidAddress(String);

impl FromStr for PciAddress {
    type Err = InvalidAddress;

    /// The form of sysfs: `DDDD:BB:DD.F`, in hexadecimal digits of exactly this number.
    fn from_str(text: &str) -> Result<PciAddress, InvalidAddress> {
        let parse = || {
            let (rest, function) = text.split_once('.')?;
            let mut parts = rest.split(':');
            let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
            let number = |text: &str, digits: usize| {
                let is_hex = text.len() == digits && text.bytes().all(|it| it.is_ascii_hexdigit());
                is_hex.then(|| u16::from_str_radix(text, 16).ok()).flatten()
            };
            let address = PciAddress {
                domain: number(domain, 4)?,
                bus: number(bus, 2)? as u8,
                device: number(device, 2)? as u8,
                function: number(function, 1)? as u8,
            };
            let is_valid = parts.next().is_none() && address.device < 32 && address.function < 8;
            is_valid.then_some(address)
        };
        parse().ok_or_else(|| InvalidAddress(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl TryFrom<String> for PciAddress {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<PciAddress, InvalidAddress> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["0000:01:10.2", "ffff:ff:1f.7"] {
            let address: PciAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(serde_json::to_string(&address).unwrap(), format!("{text:?}"));
        }
        for text in
            ["", "01:10.2", "0000:01:20.0", "0000:01:10.8", "0000:01:10.2.0", "00:00:1:10.2"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
        for text in ["0000:01:10", "+000:01:10.2", "0000:01:10.02", "0000:1:10.2", "../../etc"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}

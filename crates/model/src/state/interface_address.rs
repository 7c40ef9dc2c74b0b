//! Address of an interface in the document, such as `10.0.0.2/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use super::text::{InvalidText, numbers};

/// An address of an interface, with the prefix length of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    /// Unicast address.
    pub address: IpAddr,
    /// Prefix length: 1 to 32, or to 128.
    pub length: u8,
}

impl InterfaceAddress {
    /// `true` if the address is in the network.
    pub fn reaches(&self, other: IpAddr) -> bool {
        let length = u32::from(self.length);
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()) >> (32 - length) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()) >> (128 - length) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for InterfaceAddress {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (address, length) = text.split_once('/').ok_or(InvalidText)?;
        let address: IpAddr = address.parse().map_err(|_| InvalidText)?;
        let length = u8::try_from(numbers(length)?.0).map_err(|_| InvalidText)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        let is_unicast = !address.is_multicast() && !address.is_unspecified() && !broadcast;
        let good = is_unicast && (1..=bits).contains(&length);
        if good { Ok(InterfaceAddress { address, length }) } else { Err(InvalidText) }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reaches_its_network_alone() {
        let reaches = |own: &str, other: &str| {
            let own: InterfaceAddress = own.parse().unwrap();
            own.reaches(other.parse().unwrap())
        };
        assert!(reaches("10.0.0.2/24", "10.0.0.255") && !reaches("10.0.0.2/24", "10.0.1.0"));
        assert!(reaches("10.0.0.2/32", "10.0.0.2") && !reaches("10.0.0.2/32", "10.0.0.3"));
        assert!(reaches("10.0.0.2/1", "127.0.0.1") && !reaches("10.0.0.2/1", "128.0.0.1"));
        assert!(reaches("fd00::2/64", "fd00::ffff") && !reaches("fd00::2/64", "fd00:0:0:1::2"));
        assert!(reaches("fd00::2/128", "fd00::2") && !reaches("fd00::2/128", "fd00::3"));
        assert!(!reaches("10.0.0.2/24", "::ffff:10.0.0.2") && !reaches("fd00::2/64", "10.0.0.2"));
    }
}

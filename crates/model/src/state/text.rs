//! Values written as text in the document: addresses, ranges and prefixes.
//!
//! Model: each is a plain struct with inverse `FromStr` and `Display`. Its row in [`FORMATS`] has
//! its name in the schema, the text of its error, and its pattern for programs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use wire::Mac;

use super::interface_address::InterfaceAddress;
use super::nic::is_pci_address;
use super::protocol::IpProtocol;

/// A text is not in the form of its field; the field's row in [`FORMATS`] has the explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text does not have the form of this value")]
pub struct InvalidText;

/// Format of a text: the schema's `format`, the pattern for programs, and the words for people.
pub(super) struct TextFormat {
    pub(super) name: &'static str,
    /// Regular expression that accepts every valid text, and little more.
    pub(super) pattern: &'static str,
    /// Allowed texts, to follow "write".
    pub(super) allowed: &'static str,
    pub(super) takes: fn(&str) -> bool,
}

/// All formats.
pub(super) static FORMATS: [TextFormat; 24] = [
    TextFormat {
        name: "name",
        pattern: "^[a-z0-9-]{1,15}$",
        allowed: "1 to 15 of the characters a-z, 0-9 and -",
        takes: |text| (1..=15).contains(&text.len()) && text.bytes().all(is_name_byte),
    },
    TextFormat {
        name: "label",
        pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        allowed: "1 to 63 of the characters a-z, A-Z, 0-9, dot, - and _, the first a letter or \
                  digit",
        takes: is_label,
    },
    TextFormat {
        name: "path",
        pattern: "^/[^\\x00]{1,106}$",
        allowed: "an absolute path of at most 107 bytes, such as \"/run/shunt/web.sock\"",
        takes: is_socket_path,
    },
    TextFormat {
        name: "mac",
        pattern: "^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$",
        allowed: "a unicast MAC address, six hex pairs such as \"02:00:00:00:00:01\"",
        takes: |text| text.parse::<MacText>().is_ok(),
    },
    TextFormat {
        name: "mac-prefix",
        pattern: "^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){0,5}$",
        allowed: "the first 1 to 6 hex pairs of unicast MAC addresses, such as \"02:00:5e\"",
        takes: |text| text.parse::<MacPrefix>().is_ok(),
    },
    TextFormat {
        name: "vlan-range",
        pattern: "^[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})?$",
        allowed: "a VLAN or a range of them, 1 to 4094, such as \"7\" or \"100-199\"",
        takes: |text| text.parse::<VlanRange>().is_ok(),
    },
    TextFormat {
        name: "port-range",
        pattern: "^[0-9]{1,5}(-[0-9]{1,5})?$",
        allowed: "a port number or a range of them, 0 to 65535, such as \"53\" or \"8000-8099\"",
        takes: |text| text.parse::<PortRange>().is_ok(),
    },
    TextFormat {
        name: "ip-protocol",
        pattern: "^(icmp|igmp|tcp|udp|gre|esp|ah|icmpv6|vrrp|sctp)$",
        allowed: "a number, 0 to 255, or tcp, udp, sctp, icmp, icmpv6, igmp, gre, esp, ah or vrrp",
        takes: |text| IpProtocol::named(text).is_some(),
    },
    TextFormat {
        name: "ip-prefix",
        pattern: "^[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?$",
        allowed: "an IP address or prefix without host bits, such as \"10.0.0.0/8\" or \"fd00::1\"",
        takes: |text| text.parse::<IpPrefix>().is_ok(),
    },
    TextFormat {
        name: "ip-address",
        pattern: "^[0-9A-Fa-f.:]{2,45}$",
        allowed: "an IP address such as \"10.0.0.1\" or \"fd00::1\"",
        takes: |text| text.parse::<IpAddr>().is_ok(),
    },
    TextFormat {
        name: "interface-address",
        pattern: "^[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}$",
        allowed: "a unicast IP address with its prefix length, such as \"10.0.0.2/24\" or \
                  \"fd00::2/64\"",
        takes: |text| text.parse::<InterfaceAddress>().is_ok(),
    },
    TextFormat {
        name: "socket-address",
        pattern: "^.{2,47}:[0-9]{1,5}$",
        allowed: "an IP address and port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
        takes: |text| text.parse::<SocketAddr>().is_ok(),
    },
    TextFormat {
        name: "directory",
        pattern: "^/[^\\x00]{1,4094}$",
        allowed: "the absolute path of a directory, such as \"/var/lib/shunt\"",
        takes: |text| is_path(text, 4095),
    },
    TextFormat {
        name: "file",
        pattern: "^/[^\\x00]{1,4094}$",
        allowed: "the absolute path of a file, such as \"/etc/shunt/file\"",
        takes: |text| is_path(text, 4095),
    },
    TextFormat {
        name: "capture",
        pattern: "^/[^\\x00]{1,4094}$",
        allowed: "the absolute path of a file, such as \"/var/tmp/web.pcapng\"",
        takes: |text| is_path(text, 4095),
    },
    TextFormat {
        name: "interface",
        pattern: "^[^/:\\s]{1,15}$",
        allowed: "the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as \
                  \"eth1\"",
        takes: is_interface,
    },
    TextFormat {
        name: "device",
        pattern: "^([^/:\\s]{1,15}|[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7])$",
        allowed: "a PCI address such as \"0000:01:00.0\", or the name of an interface",
        takes: |text| is_interface(text) || is_pci_address(text),
    },
    TextFormat {
        name: "netns",
        pattern: "^(/[^\\x00]{1,4094}|[^/\\s\\x00]{1,255})$",
        allowed: "the absolute path of a network namespace, or the name of one in /run/netns, such \
                  as \"blue\"",
        takes: |text| is_path(text, 4095) || is_netns_name(text),
    },
    TextFormat {
        name: "group",
        pattern: "^[^:/\\s]{1,32}$",
        allowed: "the name of a group, such as \"kvm\", or its number",
        takes: is_group,
    },
    TextFormat {
        name: "permissions",
        pattern: "^06[0246]{2}$",
        allowed: "\"0600\" to \"0666\", of read and write permissions only, such as \"0660\"",
        takes: |text| text.parse::<SocketPermissions>().is_ok(),
    },
    TextFormat {
        name: "any-mac",
        pattern: "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$",
        allowed: "a MAC address, six hex pairs such as \"ff:ff:ff:ff:ff:ff\"",
        takes: |text| text.parse::<AnyMacText>().is_ok(),
    },
    TextFormat {
        name: "function",
        pattern: "^(uplink|pf|vf(0|[1-9][0-9]{0,2}))$",
        allowed: "a function of the NIC: \"uplink\", \"pf\", or a VF such as \"vf0\"",
        takes: |text| text.parse::<FunctionName>().is_ok(),
    },
    TextFormat {
        name: "rule-target",
        pattern: "^(uplink|pf|vf(0|[1-9][0-9]{0,2})|representor|drop)$",
        allowed: "\"drop\", \"representor\", or a function of the NIC such as \"uplink\" or \
                  \"vf0\"",
        takes: |text| text.parse::<RuleTarget>().is_ok(),
    },
    TextFormat {
        name: "attachment",
        pattern: super::attachment::SHORT_FORM,
        allowed: "a kind and its place, such as \"tap:web0\", \"xdp:eth1\" or \
                  \"vhost-user:/run/shunt/web.sock\", or a table with its fields",
        takes: |text| super::Attachment::table_of(text).is_some(),
    },
];

/// An absolute path of at most `most` bytes.
fn is_path(text: &str, most: usize) -> bool {
    text.starts_with('/') && (2..=most).contains(&text.len()) && !text.contains('\0')
}

/// Size of `sun_path` in bytes, without the final zero.
pub(super) const SOCKET_PATH_MAX: usize = 107;

/// Path of a socket: limited by the socket address, and its last part is a name.
fn is_socket_path(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    is_path(text, SOCKET_PATH_MAX) && !["", ".", ".."].contains(&last)
}

/// Valid interface name for Linux, as in `dev_valid_name`.
fn is_interface(text: &str) -> bool {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace() || c.is_control();
    (1..=15).contains(&text.len()) && ![".", ".."].contains(&text) && !text.chars().any(bad)
}

/// Valid name for `ip netns add`.
fn is_netns_name(text: &str) -> bool {
    let bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    (1..=255).contains(&text.len()) && ![".", ".."].contains(&text) && !text.chars().any(bad)
}

fn is_group(text: &str) -> bool {
    let bad = |c: char| matches!(c, ':' | '/') || c.is_whitespace() || c.is_control();
    (1..=32).contains(&text.chars().count()) && !text.chars().any(bad)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn is_label(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=63).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(rest)
}

/// Format of that name.
pub(super) fn format(name: &str) -> Option<&'static TextFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

/// A unicast MAC address that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacText(pub Mac);

impl FromStr for MacText {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let mac: Mac = text.parse().map_err(|_| InvalidText)?;
        if mac.is_multicast() || mac.is_zero() { Err(InvalidText) } else { Ok(MacText(mac)) }
    }
}

impl fmt::Display for MacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of VLANs, both ends included; 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanRange {
    /// Lowest.
    pub first: u16,
    /// Highest.
    pub last: u16,
}

impl VlanRange {
    /// `true` if the VLAN is in the range.
    pub fn contains(&self, vlan: u16) -> bool {
        (self.first..=self.last).contains(&vlan)
    }
}

impl FromStr for VlanRange {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (first, last) = numbers(text)?;
        let good = (1..=4094).contains(&first) && (first..=4094).contains(&last);
        if good { Ok(VlanRange { first, last }) } else { Err(InvalidText) }
    }
}

impl fmt::Display for VlanRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, self.first, self.last)
    }
}

/// A range of TCP, UDP or SCTP ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// Lowest.
    pub first: u16,
    /// Highest.
    pub last: u16,
}

impl FromStr for PortRange {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (first, last) = numbers(text)?;
        if first <= last { Ok(PortRange { first, last }) } else { Err(InvalidText) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, self.first, self.last)
    }
}

/// Parses `7` or `7-9`; `FromStr` of integers would also accept a plus sign.
pub(super) fn numbers(text: &str) -> Result<(u16, u16), InvalidText> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).ok_or(InvalidText)
    };
    Ok((number(first)?, number(last)?))
}

fn write_range(f: &mut fmt::Formatter<'_>, first: u16, last: u16) -> fmt::Result {
    if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
}

/// An IP address with a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    /// Address; bits beyond `length` are zero.
    pub address: IpAddr,
    /// Prefix length: 0 to 32, or to 128.
    pub length: u8,
}

impl FromStr for IpPrefix {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidText)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(text) => u8::try_from(numbers(text)?.0).map_err(|_| InvalidText)?,
            None => bits,
        };
        // Host bits are more often a mistake than intended.
        let in_front = match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let host_bits = in_front.checked_shl(length.into()).unwrap_or(0);
        let good = length <= bits && host_bits == 0;
        if good { Ok(IpPrefix { address, length }) } else { Err(InvalidText) }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        write!(f, "{}", self.address)?;
        if self.length == whole { Ok(()) } else { write!(f, "/{}", self.length) }
    }
}

/// A function of a NIC, or its uplink: `uplink`, `pf`, `vf0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionName {
    /// The uplink.
    Uplink,
    /// The PF, in use by a guest.
    Pf,
    /// A VF by index, 0 to 254.
    Vf(u16),
}

impl FunctionName {
    /// Linux name of the representor (`phys_port_name`), such as `pf0vf2`.
    pub fn port_name(self) -> String {
        match self {
            FunctionName::Uplink => "p0".to_owned(),
            FunctionName::Pf => "pf0".to_owned(),
            FunctionName::Vf(index) => format!("pf0vf{index}"),
        }
    }
}

impl FromStr for FunctionName {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match text {
            "uplink" => Ok(FunctionName::Uplink),
            "pf" => Ok(FunctionName::Pf),
            _ => {
                let number: u16 = text
                    .strip_prefix("vf")
                    .and_then(|number| number.parse().ok())
                    .ok_or(InvalidText)?;
                let name = FunctionName::Vf(number);
                // One form for each function: no leading zeros, no plus sign.
                if number < 255 && name.to_string() == text { Ok(name) } else { Err(InvalidText) }
            }
        }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionName::Uplink => f.write_str("uplink"),
            FunctionName::Pf => f.write_str("pf"),
            FunctionName::Vf(index) => write!(f, "vf{index}"),
        }
    }
}

/// Destination of a rule: a function, `representor`, or `drop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleTarget {
    /// A function, or the uplink.
    Function(FunctionName),
    /// The representor of the sending function, as if no rule had matched.
    Representor,
    /// Drop.
    Drop,
}

impl FromStr for RuleTarget {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match text {
            "representor" => Ok(RuleTarget::Representor),
            "drop" => Ok(RuleTarget::Drop),
            function => function.parse().map(RuleTarget::Function),
        }
    }
}

impl fmt::Display for RuleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleTarget::Function(function) => function.fmt(f),
            RuleTarget::Representor => f.write_str("representor"),
            RuleTarget::Drop => f.write_str("drop"),
        }
    }
}

/// Permissions of a socket: read and write for the owner, and for others as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketPermissions(pub u16);

impl FromStr for SocketPermissions {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let digits = text.strip_prefix("06").filter(|rest| rest.len() == 2).ok_or(InvalidText)?;
        let others = u16::from_str_radix(digits, 8).map_err(|_| InvalidText)?;
        if others & !0o066 == 0 { Ok(SocketPermissions(0o600 | others)) } else { Err(InvalidText) }
    }
}

impl fmt::Display for SocketPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// A MAC address, unicast or multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnyMacText(pub Mac);

impl FromStr for AnyMacText {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        text.parse().map(AnyMacText).map_err(|_| InvalidText)
    }
}

impl fmt::Display for AnyMacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A prefix of MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacPrefix {
    bytes: [u8; 6],
    /// Length in bytes, 1 to 6.
    len: u8,
}

impl MacPrefix {
    /// `true` if the address has this prefix.
    pub fn is_of(&self, mac: MacText) -> bool {
        let len = usize::from(self.len);
        self.bytes[..len] == mac.0.0[..len]
    }
}

impl FromStr for MacPrefix {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let mut prefix = MacPrefix { bytes: [0; 6], len: 0 };
        for part in text.split(':') {
            let two = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let byte = u8::from_str_radix(part, 16).ok().filter(|_| two).ok_or(InvalidText)?;
            *prefix.bytes.get_mut(usize::from(prefix.len)).ok_or(InvalidText)? = byte;
            prefix.len += 1;
        }
        if prefix.bytes[0] & 1 == 1 { Err(InvalidText) } else { Ok(prefix) }
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.bytes[..usize::from(self.len)].iter().enumerate() {
            write!(f, "{}{byte:02x}", if i > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

/// Serialises a type with `FromStr` and `Display` as JSON text, with a row of [`FORMATS`] as its
/// schema.
macro_rules! as_text {
    ($($kind:ty = $format:literal),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }

        impl PartialSchema for $kind {
            fn schema() -> RefOr<Schema> {
                schema($format)
            }
        }

        impl ToSchema for $kind {}
    )*};
}

as_text!(
    MacText = "mac",
    VlanRange = "vlan-range",
    PortRange = "port-range",
    IpPrefix = "ip-prefix",
    InterfaceAddress = "interface-address",
    MacPrefix = "mac-prefix",
    SocketPermissions = "permissions",
    AnyMacText = "any-mac",
    FunctionName = "function",
    RuleTarget = "rule-target"
);

/// Schema of a text of that format.
pub(super) fn schema(name: &str) -> RefOr<Schema> {
    let row = format(name).expect("each type names a row of the table");
    ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::Custom(row.name.to_owned())))
        .pattern(Some(row.pattern))
        .description(Some(row.allowed))
        .into()
}

/// Schema of an attachment's short form.
pub(super) fn attachment() -> RefOr<Schema> {
    schema("attachment")
}

/// Schema of an object's owner: at most 16 texts of at most 253 characters, by name.
pub(super) fn owner() -> RefOr<Schema> {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(253));
    let mut owner: Schema = ObjectBuilder::new()
        .max_properties(Some(16))
        .additional_properties(Some(Schema::Object(value.build())))
        .description(Some(
            "Labels of the owner, such as `pod = \"web-0\"`; the daemon only reports them.",
        ))
        .into();
    if let Schema::Object(owner) = &mut owner {
        owner.schema_type = Type::Object.into();
    }
    owner.into()
}

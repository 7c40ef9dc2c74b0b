//! IP protocols by number or name.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::text;

/// Protocols with a name, as in IANA's list of protocol numbers.
const NAMES: [(&str, u8); 10] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("vrrp", 112),
    ("sctp", 132),
];

/// IP protocol. Read as a number or a name; written as its name, or as a number without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// The protocol of that name.
    pub fn named(name: &str) -> Option<IpProtocol> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| IpProtocol(*number))
    }

    /// Its name, if it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, number)| *number == self.0).map(|(name, _)| *name)
    }
}

impl Serialize for IpProtocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_u8(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for IpProtocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrName;
        impl Visitor<'_> for NumberOrName {
            type Value = IpProtocol;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the number or name of an IP protocol")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<IpProtocol, E> {
                u8::try_from(number).map(IpProtocol).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<IpProtocol, E> {
                u8::try_from(number).map(IpProtocol).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<IpProtocol, E> {
                IpProtocol::named(name).ok_or_else(|| E::custom("unknown IP protocol"))
            }
        }
        deserializer.deserialize_any(NumberOrName)
    }
}

impl PartialSchema for IpProtocol {
    fn schema() -> RefOr<Schema> {
        let row = text::format("ip-protocol").expect("a row of the table");
        ObjectBuilder::new()
            .schema_type(SchemaType::Array(vec![Type::Integer, Type::String]))
            .format(Some(SchemaFormat::Custom(row.name.to_owned())))
            .minimum(Some(0))
            .maximum(Some(255))
            .description(Some(row.allowed))
            .into()
    }
}

impl ToSchema for IpProtocol {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_names_are_written_where_there_is_one() {
        let read = |json: &str| serde_json::from_str::<IpProtocol>(json).ok();
        for (name, number) in NAMES {
            let quoted = format!("\"{name}\"");
            assert_eq!(read(&quoted), Some(IpProtocol(number)));
            assert_eq!(read(&number.to_string()), Some(IpProtocol(number)));
            assert_eq!(serde_json::to_string(&IpProtocol(number)).unwrap(), quoted);
            let format = text::format("ip-protocol").unwrap();
            assert!((format.takes)(name) && format.allowed.contains(name), "{name}");
        }
        assert_eq!(read("255"), Some(IpProtocol(255)));
        for wrong in ["256", "-1", "\"17\"", "\"UDP\"", "\"quic\"", "1.5", "null"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(serde_json::to_string(&IpProtocol(255)).unwrap(), "255");
    }
}

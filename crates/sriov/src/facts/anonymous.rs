//! Facts without what tells one machine from others of its kind.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Bytes of a MAC address in hexadecimal digits and colons.
const MAC: usize = 17;

/// The same facts, where each MAC address keeps the vendor's three bytes and has `xx` for the
/// others, also in the name of an interface (`enx525400xxxxxx`).
///
/// Host names, serial numbers and IP addresses are not among the facts.
///
/// # Errors
/// The facts cannot be written as JSON.
pub fn anonymised<T: Serialize + DeserializeOwned>(facts: &T) -> serde_json::Result<T> {
    let mut value = serde_json::to_value(facts)?;
    anonymise(&mut value);
    serde_json::from_value(value)
}

fn anonymise(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_macs(text),
        Value::Array(items) => items.iter_mut().for_each(anonymise),
        Value::Object(fields) => fields.values_mut().for_each(anonymise),
        _ => {}
    }
}

/// Text with `xx` for the last three bytes of each MAC address.
fn without_macs(text: &str) -> String {
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some(next) = rest.chars().next() {
        let bytes = rest.as_bytes();
        let taken = if bytes.get(..MAC).is_some_and(is_mac) {
            out += &rest[..8];
            out += ":xx:xx:xx";
            MAC
        } else if is_named_by_mac(bytes) {
            out += &rest[..9];
            out += "xxxxxx";
            15
        } else {
            out.push(next);
            next.len_utf8()
        };
        rest = &rest[taken..];
    }
    out
}

fn is_mac(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, byte)| match i % 3 {
        2 => matches!(byte, b':' | b'-'),
        _ => byte.is_ascii_hexdigit(),
    })
}

/// `true` for `enx` or another type of systemd's names, and twelve digits.
fn is_named_by_mac(bytes: &[u8]) -> bool {
    let name = bytes.get(..15).unwrap_or_default();
    let is_typed = [&b"enx"[..], b"wlx", b"wwx", b"ibx"].iter().any(|it| name.starts_with(it));
    is_typed && name[3..].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_vendor_of_an_address_is_left() {
        for (text, want) in [
            ("52:54:00:12:34:56", "52:54:00:xx:xx:xx"),
            ("ä 52-54-00-12-34-56, 0000:01:10.2", "ä 52-54-00:xx:xx:xx, 0000:01:10.2"),
            ("enx525400123456", "enx525400xxxxxx"),
            ("enxtra0", "enxtra0"),
            ("16.35.1012 (MT_0000000012)", "16.35.1012 (MT_0000000012)"),
            ("00:11:22:33:44:55:66:77", "00:11:22:xx:xx:xx:66:77"),
        ] {
            assert_eq!(without_macs(text), want);
        }
    }
}

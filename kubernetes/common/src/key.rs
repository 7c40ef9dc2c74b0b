//! Names and MAC addresses of adapters that a program makes: the same for the same texts, so that a
//! repeated request finds what the first one made.

/// 64-bit FNV-1a hash of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// The key of texts, in their order.
    pub fn of(texts: &[&str]) -> Key {
        let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
        Key(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// Name of the adapter.
    pub fn name(self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.0)
    }

    /// MAC address of an adapter for which none is requested: locally administered.
    pub fn mac(self) -> String {
        let [a, b, c, d, e, ..] = self.0.to_be_bytes();
        format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}")
    }
}

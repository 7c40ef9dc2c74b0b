//! Bytes as text: two hexadecimal digits each.

/// Bytes as text.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes of a hexadecimal text; `None` if it is none.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
    let byte = |pair: &[u8]| Some(nibble(pair[0])? << 4 | nibble(pair[1])?);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|pair| byte(pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_text_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)).unwrap(), bytes);
        assert_eq!(to_hex(&[0x0a, 0xf0]), "0af0");
        assert!(from_hex("0").is_none() && from_hex("0g").is_none());
    }
}

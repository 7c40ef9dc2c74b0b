//! Token that authenticates clients over TCP.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Least bytes of a token.
pub const MIN_TOKEN_BYTES: usize = 16;
/// Most bytes of a token.
pub const MAX_TOKEN_BYTES: usize = 512;

/// The secret. It is never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Creates a token from text.
    ///
    /// # Errors
    /// It is too short or too long, or has characters other than visible ASCII.
    pub fn new(text: &str) -> Result<Token> {
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len()) {
            bail!(
                "the token has {} bytes; expected one of {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES}, such as \
                 `head -c 32 /dev/urandom | base64` gives",
                text.len()
            );
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("the token has characters beyond visible ASCII; choose another");
        }
        Ok(Token(text.as_bytes().to_vec()))
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    /// The file cannot be read, has no valid token, or is readable by others.
    pub fn read(path: &Path) -> Result<Token> {
        let shown = path.display();
        let file = File::open(path).with_context(|| {
            let us = rustix::process::geteuid().as_raw();
            format!("cannot open the token file {shown}, which user {us} must own and may read")
        })?;
        let mode = file.metadata()?.mode();
        if mode & 0o077 != 0 {
            bail!("the token file {shown} can be read by others; run: chmod 600 {shown}");
        }
        let mut text = String::new();
        file.take(4096)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read the token file {shown}"))?;
        let line = text.lines().next().unwrap_or_default();
        Token::new(line.trim_end()).with_context(|| format!("in {shown}"))
    }

    /// Expected value of the `Authorization` header.
    pub(super) fn bearer(&self) -> Vec<u8> {
        [b"Bearer ", self.0.as_slice()].concat()
    }

    /// The token for a fragment of a URL: each byte but letters, digits and `-._~` as `%XX` (RFC
    /// 3986).
    pub(super) fn escaped(&self) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let bytes = self.0.iter().map(|&byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        });
        bytes.collect()
    }

    /// Compares in constant time: the time reveals the length of `shown`, but nothing about the
    /// token.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        let mut different = u8::from(shown.len() != self.0.len());
        for (i, byte) in shown.iter().enumerate() {
            // Without the black box a compiler may stop at the first difference.
            different |= std::hint::black_box(byte ^ self.0[i % self.0.len()]);
        }
        std::hint::black_box(different) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_whole_token_is_it() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [&b""[..], b"0", b"0123456789abcdeg", b"0123456789abcde", b"0123456789abcdef0"]
        {
            assert!(!token.is(wrong));
        }
        let twice = b"0123456789abcdef0123456789abcdef";
        assert!(!token.is(twice), "a repetition is another text");
        assert_eq!(format!("{token:?}"), "Token(..)");
        let odd = Token::new("0123456789abcd+/=#%~").unwrap();
        assert_eq!(odd.escaped(), "0123456789abcd%2B%2F%3D%23%25~");
    }

    #[test]
    fn token_files_are_their_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let told = || format!("{:#}", Token::read(&path).unwrap_err());
        assert!(told().contains("cannot open the token file"));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(told().contains("chmod 600"), "{}", told());
        mode(0o600);
        assert!(Token::read(&path).unwrap().is(b"0123456789abcdef"));
        std::fs::write(&path, "short\n").unwrap();
        assert!(told().contains("5 bytes; expected one of 16 to 512"), "{}", told());
        std::fs::write(&path, "0123456789 abcdef\n").unwrap();
        assert!(told().contains("visible ASCII"), "{}", told());
    }
}

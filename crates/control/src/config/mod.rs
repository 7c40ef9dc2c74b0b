//! The TOML file of `shunt up --config shunt.toml`: read, checked, and turned into plain structs.
//!
//! Model: the file's text becomes a tree of values with their places (`toml`'s `DeTable`), and `read` walks that
//! tree by hand along one table of fields (`fields`) that also gives the error texts their lists of what is
//! allowed, and `docs/configuration.md` its rows. Walking by hand instead of deriving is what lets a run report
//! every independent mistake, each as one line with file, line, column, field, value and remedy.
//!
//! Tables of the state document (`[[switch]]`, `[[adapter]]`, and attachments) become JSON and are checked by its own rules,
//! together with what the file's NICs become there; what is wrong is told with its place in the file all the same.
//!
//! Nothing is half applied: the answer is either a whole [`Config`] that has passed every check the file alone
//! allows, or [`ConfigErrors`]. Whether a CPU exists or a directory can be written is for those who use it.
//!
//! Limits: a file of 1 MiB, 16 NICs, 64 lanes, 4096 further MACs a function; 20 errors are shown.

mod api;
mod desired;
mod error;
mod fields;
mod model;
mod place;
mod read;
mod syntax;
mod table;
#[cfg(test)]
mod tests;
mod unique;
mod value;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use api::{Api, ApiTcp, ApiTls};
pub use error::{ConfigError, ConfigErrors, Position};
pub use model::{Config, Function, Lanes, Limits, Nic, NicKind, Vf};

use error::Report;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// The most NICs of one daemon.
pub const MAX_NICS: usize = 16;
/// The most lanes of one daemon.
pub const MAX_LANES: usize = 64;
/// The most further MAC addresses (`macs`) of one function.
pub const MAX_FURTHER_MACS: usize = 4096;
/// The longest path of a UNIX socket, in bytes: `sun_path` less its closing zero.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every mistake that was found, up to 20, one line each; a file that cannot be read is one of them.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        let (name, text) = Config::read(path)?;
        Config::parse(&name, &text)
    }

    /// Reads a file: what errors call it, and its text, for [`Config::parse`].
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn read(path: &Path) -> Result<(String, String), ConfigErrors> {
        let name = path.display().to_string();
        let whole = |message: String| ConfigErrors::of_file(&name, message);
        let bytes = read_limited(path).map_err(|error| whole(cannot_read(&error)))?;
        if bytes.len() > MAX_FILE_BYTES {
            return Err(whole(format!("is larger than {MAX_FILE_BYTES} bytes, the most allowed")));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok((name, text)),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
                Err(whole(format!("line {line} is not UTF-8; save the file as UTF-8")))
            }
        }
    }

    /// Checks a file's text; `name` is what errors call the file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigErrors> {
        let report = Report::new(name, text);
        let (tree, mistakes) = DeTable::parse_recoverable(text);
        // A broken line makes the lines after it mean something else, so then only the syntax is reported.
        let mut config = None;
        if syntax::report(&report, tree.get_ref(), &mistakes).goes_on() {
            config = read::config(&report, tree.get_ref());
        }
        match (report.finish(), config) {
            (Some(errors), _) => Err(errors),
            (None, Some(config)) => Ok(config),
            (None, None) => unreachable!("a file that gave no config gave no error either"),
        }
    }
}

/// Where sockets and the counters file live unless the file says otherwise: `$XDG_RUNTIME_DIR/shunt`, or `/run/shunt`
/// for root, or `/tmp/shunt-UID`. Whoever creates the last must check its owner: anyone may create it first.
pub fn default_run_dir() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    run_dir_for(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), uid)
}

/// The XDG specification says to ignore a value that is not absolute.
fn run_dir_for(xdg_runtime_dir: Option<&OsStr>, uid: u32) -> PathBuf {
    match xdg_runtime_dir.map(Path::new).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("shunt"),
        None if uid == 0 => PathBuf::from("/run/shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{uid}")),
    }
}

/// Reads one byte more than is allowed, which is how the caller sees that there is more.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn cannot_read(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "no such file; give the path of a configuration with --config".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "no permission to read it; make the file and its directories readable for this user"
                .to_owned()
        }
        io::ErrorKind::IsADirectory => {
            "is a directory; give the path of a configuration file".to_owned()
        }
        _ => format!("cannot be read: {error}"),
    }
}

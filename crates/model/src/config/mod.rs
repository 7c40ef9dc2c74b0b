//! The configuration file of `shunt up`, and every file that a command reads: the state document
//! and, beside it, the daemon's own settings, in TOML or JSON.
//!
//! Model: a file's text becomes the same JSON value whichever syntax it has ([`source`]); that
//! value is held against the schema that the types derive, as a document of the API is, and then
//! becomes the types. So a setting is declared once, where its type is, and a mistake has the same
//! words wherever it is made; of a TOML file each is told with its line and column.
//!
//! Nothing is half applied: the answer is either a whole [`Config`] that has passed every check the
//! file alone allows, or [`ConfigErrors`]. Whether a CPU exists or a directory can be written is
//! for those who use it.
//!
//! Limits: a file of 1 MiB; 20 errors are shown.

mod error;
mod meaning;
mod old_names;
mod place;
mod source;
mod syntax;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use error::{ConfigError, ConfigErrors, Position};
pub use source::{MAX_FILE_BYTES, Source};

use crate::state::{ApiSettings, DaemonSettings, Lanes, Limits, Problems, State, shape};

/// File of the counters in the run directory.
pub const COUNTERS: &str = "counters";
/// Locked file there. It stays when the daemon has ended; the lock does not.
pub const LOCK: &str = "lock";

/// Where the API of a daemon with this run directory is.
pub fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("api.sock")
}

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the counters file, and of sockets with a relative path.
    pub run_dir: PathBuf,
    /// Directory in which the desired state is kept; without one it ends with the daemon.
    pub state_dir: Option<PathBuf>,
    /// The API.
    pub api: ApiSettings,
    /// The polling threads.
    pub lanes: Lanes,
    /// What guests may use of the machine.
    pub limits: Limits,
    /// The state at the first start.
    pub state: State,
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Every mistake in the file, or why it cannot be read.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        Config::of(&Source::read(path, "--config")?)
    }

    /// Checks the text of a file that errors call `name`.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigErrors> {
        Config::of(&Source::new(name, text))
    }

    /// Checks a file.
    ///
    /// # Errors
    /// Every mistake.
    pub fn of(source: &Source) -> Result<Config, ConfigErrors> {
        let (document, old_names) = source.value()?;
        Config::check(source, document, old_names)
    }

    /// Checks a file that a daemon of an older version was started with, and may be written in that
    /// version's words.
    ///
    /// # Errors
    /// Every mistake.
    pub fn of_older(source: &Source) -> Result<Config, ConfigErrors> {
        let (document, _) = source.value()?;
        Config::check(source, document, Problems::default())
    }

    /// Checks the document of a file in which these mistakes were found already.
    fn check(
        source: &Source,
        mut document: Value,
        found: Problems,
    ) -> Result<Config, ConfigErrors> {
        let tell = |problems| source.tell(problems);
        if document.get("version").is_none() {
            document["version"] = crate::state::VERSION.into();
        }
        found.beside(shape::check("Configuration", &document, "")).map_err(tell)?;
        let (daemon, state) = parts(document);
        let daemon: DaemonSettings = serde_json::from_value(daemon).map_err(|error| {
            // The schema lets nothing pass that serde does not take; a test holds them together.
            ConfigErrors::of_file(
                source.name(),
                format!("is not a configuration: {error}"),
                "correct it",
            )
        })?;
        let run_dir = daemon.run_dir.clone().unwrap_or_else(default_run_dir);
        if run_dir.to_str().is_none() {
            let error = "has no run_dir, and the default of this user is not UTF-8";
            return Err(ConfigErrors::of_file(source.name(), error, "write run_dir"));
        }
        let mut problems = Problems::default();
        meaning::check(&daemon, &run_dir, &state, &mut problems);
        let state = problems.beside(State::of_form(&state)).map_err(tell)?;
        let DaemonSettings { run_dir: _, state_dir, api, lanes, limits } = daemon;
        Ok(Config { run_dir, state_dir, api, lanes, limits, state })
    }
}

/// The daemon's settings and the state of a configuration.
fn parts(configuration: Value) -> (Value, Value) {
    let known = shape::schemas()["DaemonSettings"]["properties"].as_object();
    let is_daemons = |name: &str| known.is_some_and(|known| known.contains_key(name));
    let Value::Object(fields) = configuration else { return (Value::Null, Value::Null) };
    let (daemon, state): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| is_daemons(name));
    (Value::Object(daemon.into_iter().collect()), Value::Object(state.into_iter().collect()))
}

/// Where a daemon of this user puts its files if the configuration does not say.
pub fn default_run_dir() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    run_dir_for(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), uid)
}

fn run_dir_for(xdg_runtime_dir: Option<&OsStr>, uid: u32) -> PathBuf {
    match xdg_runtime_dir.map(Path::new).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("shunt"),
        None if uid == 0 => PathBuf::from("/run/shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{uid}")),
    }
}

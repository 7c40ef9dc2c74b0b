//! The configuration file of `shunt up`, and every file that a command reads: the state document,
//! and the daemon's own settings, in TOML or JSON.
//!
//! Model: TOML and JSON become the same JSON value ([`source_file`]). It is checked against the
//! schema derived from the types, like a document of the API, and then becomes the types. So each
//! setting is declared once, at its type, and each error has the same text everywhere. Errors of a
//! TOML file have line and column.
//!
//! Nothing is half applied: the result is either a [`Config`] that passes every check possible on
//! the file alone, or [`Problems`]. The users of the settings check that a CPU exists or a
//! directory is writable.
//!
//! Limits: a file of 1 MiB; 20 errors are shown.

mod field_position;
mod meaning;
mod old_names;
mod position;
mod source_file;
mod syntax;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use position::of_file;
use serde_json::Value;

pub use position::{Position, of_toml};
pub use source_file::{MAX_FILE_BYTES, SourceFile, cannot_read};

use crate::state::{
    ApiSettings, DaemonSettings, Lanes, Limits, Problems, SocketPermissions, State, schema,
};

/// File of the counters in the run directory.
pub const COUNTERS: &str = "counters";
/// Lock file in the run directory: lines with the process and the state file. It stays after the
/// daemon has ended; the lock does not.
pub const LOCK: &str = "lock";

/// API socket of a daemon with this run directory.
pub fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("api.sock")
}

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the counters file, and of sockets with a relative path.
    pub run_dir: PathBuf,
    /// Directory of the stored desired state, if the file names it.
    pub state_dir: Option<PathBuf>,
    /// Group of the sockets of guests, if the file names one.
    pub socket_group: Option<String>,
    /// Permissions of the sockets of guests, if the file has them.
    pub socket_mode: Option<SocketPermissions>,
    /// The API.
    pub api: ApiSettings,
    /// The polling threads.
    pub lanes: Lanes,
    /// Limits on the machine's resources that guests use.
    pub limits: Limits,
    /// The state at the first start.
    pub state: State,
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Every mistake in the file, or the reason why it cannot be read.
    pub fn load(path: &Path) -> Result<Config, Problems> {
        Config::of(&SourceFile::read(path, "--config")?)
    }

    /// Checks the text of a file; `name` is for errors.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(name: &str, text: &str) -> Result<Config, Problems> {
        Config::of(&SourceFile::new(name, text))
    }

    /// Checks a file.
    ///
    /// # Errors
    /// Every mistake.
    pub fn of(source: &SourceFile) -> Result<Config, Problems> {
        let (document, old_names) = source.value(&default_run_dir())?;
        Config::check(source, document, old_names)
    }

    /// Checks a file written for an older version of the daemon, with that version's names.
    ///
    /// # Errors
    /// Every mistake.
    pub fn of_older(source: &SourceFile) -> Result<Config, Problems> {
        let (document, _) = source.value(&default_run_dir())?;
        Config::check(source, document, Problems::default())
    }

    /// Checks the document of a file; `found` are mistakes found before.
    fn check(
        source: &SourceFile,
        mut document: Value,
        found: Problems,
    ) -> Result<Config, Problems> {
        if document.get("version").is_none() {
            document["version"] = crate::state::VERSION.into();
        }
        let written = document.clone();
        let tell = |problems: Problems| source.tell(problems.named(&written));
        found.beside(schema::check("Configuration", &document, "")).map_err(tell)?;
        let (daemon, state) = parts(document);
        let daemon: DaemonSettings = serde_json::from_value(daemon).map_err(|error| {
            // The schema accepts only what serde accepts; a test checks this.
            of_file(source.name(), format!("is not a configuration: {error}"), "correct it")
        })?;
        let run_dir = daemon.run_dir.clone().unwrap_or_else(default_run_dir);
        if run_dir.to_str().is_none() {
            let error = "has no run_dir, and this user's default is not UTF-8";
            return Err(of_file(source.name(), error, "write run_dir"));
        }
        let mut problems = Problems::default();
        meaning::check(&daemon, &run_dir, &state, &mut problems);
        let state = problems.beside(State::of_form(&state)).map_err(tell)?;
        let DaemonSettings { run_dir: _, state_dir, socket_group, socket_mode, api, lanes, limits } =
            daemon;
        Ok(Config { run_dir, state_dir, socket_group, socket_mode, api, lanes, limits, state })
    }
}

/// Splits a configuration into the daemon's settings and the state.
fn parts(configuration: Value) -> (Value, Value) {
    let known = schema::schemas()["DaemonSettings"]["properties"].as_object();
    let is_daemons = |name: &str| known.is_some_and(|known| known.contains_key(name));
    let Value::Object(fields) = configuration else { return (Value::Null, Value::Null) };
    let (daemon, state): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| is_daemons(name));
    (Value::Object(daemon.into_iter().collect()), Value::Object(state.into_iter().collect()))
}

/// Run directory of the service, and of root's daemons.
pub const SERVICE_RUN_DIR: &str = "/run/shunt";

/// Default run directory of this user.
pub fn default_run_dir() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    run_dir_for(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), uid)
}

/// Default run directories of this user's daemons, in any session, and of the service. The first is
/// [`default_run_dir`]; root has no other, so that its sessions and the service find each other.
pub fn default_run_dirs() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    run_dirs_for(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), uid)
}

fn run_dirs_for(xdg_runtime_dir: Option<&OsStr>, uid: u32) -> Vec<PathBuf> {
    if uid == 0 {
        return vec![run_dir_for(xdg_runtime_dir, uid)];
    }
    let session = PathBuf::from(format!("/run/user/{uid}/shunt"));
    let mut all = vec![run_dir_for(xdg_runtime_dir, uid)];
    for other in [run_dir_for(None, uid), SERVICE_RUN_DIR.into(), session] {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// Directory of the stored desired state of a daemon with this run directory, if its file names
/// none. Each run directory has its own, so no two daemons share one.
pub fn default_state_dir(run_dir: &Path) -> PathBuf {
    let env = |name: &str| std::env::var_os(name);
    let uid = rustix::process::geteuid().as_raw();
    state_dir_for(run_dir, uid, |name| env(name).map(PathBuf::from).filter(|dir| dir.is_absolute()))
}

fn state_dir_for(run_dir: &Path, uid: u32, directory: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let session = directory("XDG_RUNTIME_DIR").map(|dir| dir.join("shunt"));
    let name = match run_dir {
        _ if uid == 0 => None,
        dir if Some(dir) == session.as_deref() => Some("shunt"),
        dir if dir == run_dir_for(None, uid) => Some("shunt-tmp"),
        _ => None,
    };
    let users = |name| match directory("XDG_STATE_HOME") {
        Some(dir) => Some(dir.join(name)),
        None => Some(directory("HOME")?.join(".local/state").join(name)),
    };
    match name.and_then(users) {
        Some(dir) => dir,
        None if run_dir == Path::new(SERVICE_RUN_DIR) => PathBuf::from("/var/lib/shunt"),
        None => run_dir.join("state"),
    }
}

fn run_dir_for(xdg_runtime_dir: Option<&OsStr>, uid: u32) -> PathBuf {
    match xdg_runtime_dir.map(Path::new).filter(|dir| dir.is_absolute()) {
        _ if uid == 0 => PathBuf::from(SERVICE_RUN_DIR),
        Some(dir) => dir.join("shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{uid}")),
    }
}

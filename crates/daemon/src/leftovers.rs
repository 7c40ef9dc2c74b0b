//! Files removed at the daemon's end: counters, and a volatile state.

use std::path::PathBuf;

use anyhow::Result;
use api::store::Directory;
use model::config::Config;

/// Directory of a state that does not outlive the daemon, in the run directory.
pub(super) const FLEETING_STATE: &str = "state";

/// Files without use after the daemon's end or failed start; deleted on drop. A remaining file is
/// harmless: the next daemon creates its own.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) counters: PathBuf,
    /// Directory of a volatile state.
    state: Option<PathBuf>,
    /// The state directory belongs to another process.
    pub(super) spared: bool,
}

impl Leftovers {
    pub(super) fn new(config: &Config, counters: &str) -> Leftovers {
        let run_dir = &config.run_dir;
        let state = config.state_dir.is_none().then(|| run_dir.join(FLEETING_STATE));
        Leftovers { counters: run_dir.join(counters), state, spared: false }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Counters of stopped lanes must not pass for a daemon's.
        if std::fs::symlink_metadata(&self.counters).is_ok_and(|there| there.is_file()) {
            let _ = std::fs::remove_file(&self.counters);
        }
        if let (Some(state), false) = (&self.state, self.spared) {
            Directory::remove_fleeting(state);
        }
    }
}

/// Opens the state directory.
pub(super) fn open_state(config: &Config) -> Result<Directory> {
    Ok(match &config.state_dir {
        Some(directory) => Directory::open(directory)?,
        None => Directory::open_fleeting(&config.run_dir.join(FLEETING_STATE))?,
    })
}

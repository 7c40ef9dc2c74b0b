//! Files that a daemon leaves: where its counters are, and a state that is not to outlive it.

use std::path::PathBuf;

use anyhow::Result;
use api::store::Directory;
use model::config::Config;

/// Where the state is kept if it is not to outlive the daemon, in the run directory.
pub(super) const FLEETING_STATE: &str = "state";

/// Files of a daemon that are nobody's when it has ended, or could not start; dropping it removes
/// them. What stays does no harm: the next daemon begins with files of its own.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) counters: PathBuf,
    /// The directory of a state that does not outlive the daemon.
    state: Option<PathBuf>,
    /// Whether they are another process's.
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
        // Nobody shall take the counters of lanes that do not run for a daemon's.
        if std::fs::symlink_metadata(&self.counters).is_ok_and(|there| there.is_file()) {
            let _ = std::fs::remove_file(&self.counters);
        }
        if let (Some(state), false) = (&self.state, self.spared) {
            Directory::remove_fleeting(state);
        }
    }
}

/// Opens the directory where the state is kept.
pub(super) fn open_state(config: &Config) -> Result<Directory> {
    Ok(match &config.state_dir {
        Some(directory) => Directory::open(directory)?,
        None => Directory::open_fleeting(&config.run_dir.join(FLEETING_STATE))?,
    })
}

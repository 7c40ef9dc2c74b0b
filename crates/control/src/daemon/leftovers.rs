//! Files that a daemon leaves: where its counters are, and a state that is not to outlive it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::config::Config;
use crate::store::Directory;

/// The counter file's name in the run directory.
pub const COUNTERS: &str = "counters";
/// Where the state is kept if it is not to outlive the daemon, in the run directory.
pub(super) const FLEETING_STATE: &str = "state";

/// Where the counters of a daemon with this run directory are.
pub fn counters_path(run_dir: &Path) -> PathBuf {
    run_dir.join(COUNTERS)
}

/// Files of a daemon that are nobody's when it has ended, or could not start; dropping it removes
/// them. What stays does no harm: the next daemon begins with files of its own.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) counters: PathBuf,
    state: PathBuf,
    /// Whether they are another process's.
    pub(super) spared: bool,
}

impl Leftovers {
    pub(super) fn new(run_dir: &Path, counters: &str) -> Leftovers {
        let (counters, state) = (run_dir.join(counters), run_dir.join(FLEETING_STATE));
        Leftovers { counters, state, spared: false }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Nobody shall take the counters of lanes that do not run for a daemon's.
        let _ = std::fs::remove_file(&self.counters);
        if !self.spared {
            let _ = std::fs::remove_dir_all(&self.state);
        }
    }
}

/// Opens the directory where the state is kept.
pub(super) fn open_state(config: &Config) -> Result<Directory> {
    let Some(directory) = &config.state_dir else {
        // What changed in the life of the daemon before is not to outlive it.
        let directory = config.run_dir.join(FLEETING_STATE);
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let shown = directory.display();
                return Err(error).with_context(|| format!("cannot remove {shown}"));
            }
            _ => {}
        }
        return Ok(Directory::open(&directory)?.fleeting());
    };
    Ok(Directory::open(directory)?)
}

//! Directory of the stored desired state: that of the configuration, or the default.
//!
//! The default is in the file system that survives a reboot if the run directory is the default one
//! too, and otherwise the subdirectory `state` of the run directory. That is also the fallback if
//! the first cannot be written.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use api::store::{Directory, StoreError};
use model::config::{Config, default_state_dir};

/// The opened directory, and a warning if it may not survive a reboot although it should.
#[derive(Debug)]
pub(super) struct StateDir {
    pub(super) directory: Directory,
    pub(super) warning: Option<String>,
}

impl StateDir {
    /// Opens and locks the directory.
    ///
    /// # Errors
    /// It is damaged, in use, or cannot be written.
    pub(super) fn open(config: &Config) -> Result<StateDir, StoreError> {
        match &config.state_dir {
            Some(named) => Directory::open(named).map(StateDir::found),
            None => {
                StateDir::open_default(&default_state_dir(&config.run_dir), &in_run_dir(config))
            }
        }
    }

    fn found(directory: Directory) -> StateDir {
        StateDir { directory, warning: None }
    }

    fn open_default(default: &Path, in_run_dir: &Path) -> Result<StateDir, StoreError> {
        if default == in_run_dir {
            // The run directory may be one in which others may create files, such as /tmp.
            return Directory::open_own(in_run_dir).map(StateDir::found);
        }
        match Directory::open(default) {
            Err(error @ StoreError::Io { .. }) => {
                let directory = Directory::open_own(in_run_dir)?;
                Ok(StateDir { directory, warning: Some(fallback(default, Some(&error))) })
            }
            opened => opened.map(StateDir::found),
        }
    }

    /// Continues with the directory of the previous process, which holds this lock.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn inherit(config: &Config, lock: OwnedFd) -> Result<StateDir, StoreError> {
        let default = || default_state_dir(&config.run_dir);
        let named = config.state_dir.clone().unwrap_or_else(default);
        let in_run_dir = in_run_dir(config);
        let falls_back = config.state_dir.is_none()
            && named != in_run_dir
            && Directory::is_locked_by(&in_run_dir, &lock);
        let directory = Directory::inherit(if falls_back { &in_run_dir } else { &named }, lock)?;
        Ok(StateDir { directory, warning: falls_back.then(|| fallback(&named, None)) })
    }
}

fn in_run_dir(config: &Config) -> PathBuf {
    config.run_dir.join("state")
}

/// Warning that the state is not in the default directory.
fn fallback(default: &Path, error: Option<&StoreError>) -> String {
    let why = match error {
        Some(StoreError::Io { what, file, source }) => format!("cannot {what} {file}: {source}"),
        _ => format!("{} is not in use", default.display()),
    };
    format!(
        "changes survive a restart of the daemon, but no reboot: {why}; set state_dir to a directory that can be written"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_that_cannot_be_written_is_replaced_by_one_in_the_run_directory_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let (default, in_run_dir) = (dir.path().join("default"), dir.path().join("state"));
        let open = || StateDir::open_default(&default, &in_run_dir).unwrap();
        let opened = open();
        assert_eq!((opened.directory.path(), &opened.warning), (&*default, &None));
        drop(opened);
        std::fs::remove_dir_all(&default).unwrap();
        std::fs::write(&default, "").unwrap(); // a file in its place
        let opened = open();
        assert_eq!(opened.directory.path(), in_run_dir);
        let warning = opened.warning.unwrap();
        let cause = format!("cannot create the state directory {}: File exists", default.display());
        assert!(warning.contains(&cause) && warning.contains("set state_dir"), "{warning}");
    }
}

//! Files removed at the daemon's end.

use std::path::PathBuf;

use api::daemons::Link;

/// Files without use after the daemon's end or failed start; deleted on drop. A remaining file is
/// harmless: the next daemon creates its own.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) counters: PathBuf,
    /// Link by which commands find the daemon.
    pub(super) link: Option<Link>,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Counters of stopped lanes must not pass for a daemon's.
        if std::fs::symlink_metadata(&self.counters).is_ok_and(|there| there.is_file()) {
            let _ = std::fs::remove_file(&self.counters);
        }
    }
}

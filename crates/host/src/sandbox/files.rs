//! Files that the process may open: Landlock.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use rustix::fs::{Mode, OFlags};

/// Rights of the kernel interface that are used: Linux 6.10, or fewer on an older kernel.
const RIGHTS: ABI = ABI::V5;

/// Reason for which files cannot be restricted.
#[derive(Debug, thiserror::Error)]
#[error("cannot restrict the files of this process")]
pub struct FilesError(#[from] landlock::RulesetError);

/// Rights to the files below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRights {
    /// Reading.
    Read,
    /// Making, reading and removing symbolic links.
    Links,
    /// All but making devices and executing; the path has no links.
    Write,
}

/// Restricts the calling thread, and threads that it starts, to files below these paths; missing
/// ones are left out. Returns `false` if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses.
pub fn confine_files(paths: &[(PathBuf, FileRights)]) -> Result<bool, FilesError> {
    let all = AccessFs::from_all(RIGHTS);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut ruleset = ruleset.handle_access(all)?.create()?;
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Execute;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    for (path, rights) in paths {
        let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        // A daemon that is being replaced may put a link there meanwhile.
        if *rights == FileRights::Write && !is_at(&file, path) {
            continue;
        }
        let rights = match rights {
            FileRights::Read => reading,
            FileRights::Links => reading | AccessFs::MakeSym | AccessFs::RemoveFile,
            FileRights::Write => all & !devices,
        };
        // A file has fewer rights than a directory.
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(RIGHTS) };
        ruleset = ruleset.add_rule(PathBeneath::new(file, rights))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// `true` if this is the file's own path, without links.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(itself).is_ok_and(|real| real == path)
}

//! Files that the process may open, and abstract UNIX sockets that it may use: Landlock.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
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
    /// Reading; below a path of [`Write`](Self::Write), the path has no links.
    Read,
    /// Making, reading and removing symbolic links.
    Links,
    /// All but making devices and executing; the path has no links.
    Write,
}

/// Restricts the calling thread, and threads that it starts, to files below these paths; missing
/// ones are left out. Without `abstract_sockets`, Linux 6.12 also keeps them from connecting to
/// abstract UNIX sockets of other processes. Returns `false` if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses.
pub fn confine_files(
    paths: &[(PathBuf, FileRights)],
    abstract_sockets: bool,
) -> Result<bool, FilesError> {
    let all = AccessFs::from_all(RIGHTS);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut ruleset = ruleset.handle_access(all)?;
    if !abstract_sockets {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
    }
    let mut ruleset = ruleset.create()?;
    let written = |dir: &Path| paths.contains(&(dir.to_owned(), FileRights::Write));
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Execute;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    for (path, rights) in paths {
        let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        // A daemon that is being replaced may put a link there meanwhile.
        let is_replaced = match rights {
            FileRights::Read => place_below(path, written).is_some_and(|real| !is_at(&file, &real)),
            FileRights::Links => false,
            FileRights::Write => !is_at(&file, path),
        };
        if is_replaced {
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

/// Path without links of a file below a directory that is `written`; `None` if there is no such
/// directory above it.
fn place_below(file: &Path, written: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    file.ancestors().skip(1).find_map(|above| {
        let real = above.canonicalize().ok().filter(|real| written(real))?;
        Some(real.join(file.strip_prefix(above).ok()?))
    })
}

/// `true` if this is the file's own path, without links.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(itself).is_ok_and(|real| real == path)
}

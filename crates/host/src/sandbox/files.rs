//! Files that the process may open: Landlock.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};

/// Rights of the kernel interface that are used: Linux 6.10, or fewer on an older kernel.
const RIGHTS: ABI = ABI::V5;

/// Reason for which files cannot be restricted.
#[derive(Debug, thiserror::Error)]
#[error("cannot restrict the files of this process")]
pub struct FilesError(#[from] landlock::RulesetError);

/// Restricts the calling thread, and threads that it starts, to files below these paths; missing
/// ones are left out. Returns `false` if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses.
pub fn confine_files(read: &[&Path], write: &[&Path]) -> Result<bool, FilesError> {
    let all = AccessFs::from_all(RIGHTS);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut ruleset = ruleset.handle_access(all)?.create()?;
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Execute;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    for (paths, rights) in [(read, reading), (write, all & !devices)] {
        for path in paths {
            let Ok(file) = PathFd::new(path) else { continue };
            // A file has fewer rights than a directory.
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(RIGHTS) };
            ruleset = ruleset.add_rule(PathBeneath::new(file, rights))?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

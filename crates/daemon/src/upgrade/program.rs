//! Selection, check and start of the program that takes over.
//!
//! # Model
//! By default it is the file that this daemon was started from, in its current version, as replaced
//! by a package manager. Any other file may be named by root only, or by the daemon's own user if
//! the daemon has no more rights than that user. Otherwise a daemon with capabilities would lend
//! them to a program of its user.
//!
//! The file is opened once, checked, and started from that descriptor, so it cannot be replaced in
//! between. It must belong to root or to this user, and be writable by no one else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use model::state::{Problem, Problems, Remedy};
use rustix::fs::OFlags;

/// A program that may take over.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    file: File,
}

/// Chooses the program: one other than `own` only if this user may name it.
pub(super) fn choose(own: &Path, other: Option<&Path>, user: Option<u32>) -> Result<PathBuf> {
    let Some(other) = other.filter(|other| *other != own) else { return Ok(own.to_owned()) };
    if !other.is_absolute() {
        return Err(wrong(other, "is a relative path", "write an absolute path").into());
    }
    let capabilities = rustix::thread::capabilities(None).context("cannot read capabilities")?;
    let us = rustix::process::geteuid().as_raw();
    let has_more = us != 0 && !capabilities.permitted.is_empty();
    match user {
        Some(0) => {}
        Some(user) if user == us && !has_more => {}
        _ => {
            let own = own.display();
            let message = format!(
                "is another program than {own}, which only root may name, because the daemon has capabilities"
            );
            return Err(wrong(other, message, "leave it out, or use the command as root").into());
        }
    }
    Ok(other.to_owned())
}

/// Problem of a program.
fn wrong(path: &Path, message: impl Into<String>, remedy: &str) -> Problems {
    let allowed = "the path of the shunt binary, which only root or the daemon's user can change";
    Problem::of_path("binary", path, message, Remedy::choose(remedy, allowed)).into()
}

impl Program {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// It is not a program, or others could change it.
    pub(super) fn open(path: &Path) -> Result<Program, Problems> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path);
        let cannot = |error: io::Error| {
            wrong(path, format!("cannot be opened: {error}"), "name the shunt binary")
        };
        let file = file.map_err(cannot)?;
        let about = file.metadata().map_err(cannot)?;
        if !about.is_file() || about.mode() & 0o111 == 0 {
            return Err(wrong(path, "is not an executable file", "name the shunt binary"));
        }
        let us = rustix::process::geteuid().as_raw();
        if ![0, us].contains(&about.uid()) || about.mode() & 0o022 != 0 {
            let remedy = "make root or this user its owner, with mode 0755";
            return Err(wrong(path, "can be changed by others", remedy));
        }
        Ok(Program { path: path.to_owned(), file })
    }

    /// Starts it with one end of a socket as its standard input.
    ///
    /// # Errors
    /// The system cannot run it.
    pub(super) fn start(&self, socket: UnixStream, sandbox: bool) -> io::Result<NewProcess> {
        // The descriptor number is valid in the child until it executes the program.
        let child = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .arg0(&self.path)
            .args(["up", "--take-over"])
            .args((!sandbox).then_some("--sandbox=off"))
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .spawn()?;
        Ok(NewProcess { child: Some(child) })
    }
}

/// The process that is to take over. Killed on drop, unless released.
#[derive(Debug)]
pub(super) struct NewProcess {
    child: Option<Child>,
}

impl NewProcess {
    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Releases the process, so that it is not killed.
    pub(super) fn release(mut self) -> u32 {
        let pid = self.pid();
        self.child = None;
        pid
    }

    /// Kills the process if it does not exit within `deadline`; returns its own exit status, if
    /// any.
    pub(super) fn end(&mut self, deadline: Duration) -> Option<String> {
        let mut child = self.child.take()?;
        let until = Instant::now() + deadline;
        let mut own = child.try_wait().ok().flatten();
        while own.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            own = child.try_wait().ok().flatten();
        }
        // Even if the kill fails, a process that was waited for touches nothing.
        let _ = child.kill();
        let _ = child.wait();
        own.map(|status| status.to_string())
    }
}

impl Drop for NewProcess {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn who_may_say_what() {
        let us = rustix::process::geteuid().as_raw();
        let (own, other) = (Path::new("/usr/bin/shunt"), Path::new("/tmp/shunt"));
        assert_eq!(choose(own, None, None).unwrap(), own, "any user");
        assert_eq!(choose(own, Some(own), None).unwrap(), own);
        assert_eq!(choose(own, Some(other), Some(0)).unwrap(), other);
        assert!(choose(own, Some(other), None).is_err(), "unknown user");
        assert!(choose(own, Some(other), Some(us + 1)).is_err());
        let refused = choose(own, Some(Path::new("shunt")), Some(0)).unwrap_err().to_string();
        assert!(refused.contains("absolute path"), "{refused}");
    }

    #[test]
    fn only_a_program_that_others_cannot_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shunt");
        let told = || Program::open(&path).unwrap_err().to_string();
        assert!(told().contains("cannot be opened: No such file"), "{}", told());
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(told().contains("not an executable"), "{}", told());
        mode(0o775);
        assert!(told().contains("changed by others"), "{}", told());
        mode(0o755);
        assert_eq!(Program::open(&path).unwrap().path, path);
        let directory = Program::open(dir.path()).unwrap_err().to_string();
        assert!(directory.contains("not an executable"), "{directory}");
    }

    #[test]
    fn one_that_ends_by_itself_says_how() {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let program = Program::open(Path::new("/bin/false").canonicalize().unwrap().as_path());
        let mut new_process = program.unwrap().start(theirs, true).unwrap();
        let mut byte = [0; 1];
        let ended = std::io::Read::read(&mut &socket, &mut byte).unwrap();
        assert_eq!(ended, 0, "its end closed");
        let deadline = Duration::from_secs(10);
        assert_eq!(new_process.end(deadline).as_deref(), Some("exit status: 1"));
        assert_eq!(new_process.end(deadline), None);
    }
}

//! Which program takes over, who may say so, and how it is started.
//!
//! # Model
//! Without a name it is the file that this daemon was started from, as it is now: what a package
//! manager put in its place. Any other is for root, or for the daemon's own user if the daemon can
//! do no more than that user can: a daemon with capabilities would else lend them to whatever its
//! user names.
//!
//! The file is opened once, looked at, and started from what was opened, so nobody puts another in
//! its place meanwhile. It must be root's or this user's, and nobody else's to write to.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

/// A program that may take over.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    file: File,
}

/// Which program is to take over: another one than `own` only if that user may say so.
pub(super) fn choose(own: &Path, other: Option<&Path>, user: Option<u32>) -> Result<PathBuf> {
    let Some(other) = other.filter(|other| *other != own) else { return Ok(own.to_owned()) };
    if !other.is_absolute() {
        bail!("binary {}: write the whole path, from /", other.display());
    }
    let capabilities = rustix::thread::capabilities(None).context("capabilities are not known")?;
    let us = rustix::process::geteuid().as_raw();
    let has_more = us != 0 && !capabilities.permitted.is_empty();
    match user {
        Some(0) => {}
        Some(user) if user == us && !has_more => {}
        _ => bail!(
            "binary {}: only root may name another program than {}, for the daemon has rights that its user has not",
            other.display(),
            own.display()
        ),
    }
    Ok(other.to_owned())
}

impl Program {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// It is no program, or somebody else could change it.
    pub(super) fn open(path: &Path) -> Result<Program> {
        let shown = path.display();
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path);
        let file = file.with_context(|| format!("cannot open the program {shown}"))?;
        let about = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
        if !about.is_file() || about.mode() & 0o111 == 0 {
            bail!("{shown} is no program; name the shunt binary");
        }
        let us = rustix::process::geteuid().as_raw();
        if ![0, us].contains(&about.uid()) || about.mode() & 0o022 != 0 {
            bail!(
                "{shown} can be changed by others; let it be root's or this user's, of mode 0755"
            );
        }
        Ok(Program { path: path.to_owned(), file })
    }

    /// Starts it with one end of a socket as its standard input.
    ///
    /// # Errors
    /// The system does not run it.
    pub(super) fn start(&self, socket: UnixStream) -> io::Result<Successor> {
        // The child has the same descriptors until it has become the program.
        let child = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .arg0(&self.path)
            .args(["up", "--take-over"])
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .spawn()?;
        Ok(Successor { child: Some(child) })
    }
}

/// The process that is to take over. It is killed when this is dropped, unless it was let go.
#[derive(Debug)]
pub(super) struct Successor {
    child: Option<Child>,
}

impl Successor {
    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Lets it live.
    pub(super) fn let_go(mut self) -> u32 {
        let pid = self.pid();
        self.child = None;
        pid
    }

    /// Ends it for good, if it does not within `patience`; says how it ended if it did by itself.
    pub(super) fn end(&mut self, patience: Duration) -> Option<String> {
        let mut child = self.child.take()?;
        let until = Instant::now() + patience;
        let mut own = child.try_wait().ok().flatten();
        while own.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            own = child.try_wait().ok().flatten();
        }
        // Whatever becomes of the kill, a process that was waited for touches nothing.
        let _ = child.kill();
        let _ = child.wait();
        own.map(|status| status.to_string())
    }
}

impl Drop for Successor {
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
        assert_eq!(choose(own, None, None).unwrap(), own, "anybody who may ask at all");
        assert_eq!(choose(own, Some(own), None).unwrap(), own);
        assert_eq!(choose(own, Some(other), Some(0)).unwrap(), other);
        assert!(choose(own, Some(other), None).is_err(), "nobody knows who asks");
        assert!(choose(own, Some(other), Some(us + 1)).is_err());
        let refused = choose(own, Some(Path::new("shunt")), Some(0)).unwrap_err().to_string();
        assert!(refused.contains("whole path"), "{refused}");
    }

    #[test]
    fn only_a_program_that_others_cannot_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shunt");
        let told = || Program::open(&path).unwrap_err().to_string();
        assert!(told().contains("cannot open the program"), "{}", told());
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(told().contains("no program"), "{}", told());
        mode(0o775);
        assert!(told().contains("changed by others"), "{}", told());
        mode(0o755);
        assert_eq!(Program::open(&path).unwrap().path, path);
        let directory = Program::open(dir.path()).unwrap_err().to_string();
        assert!(directory.contains("no program"), "{directory}");
    }

    #[test]
    fn one_that_ends_by_itself_says_how() {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let program = Program::open(Path::new("/bin/false").canonicalize().unwrap().as_path());
        let mut successor = program.unwrap().start(theirs).unwrap();
        let mut byte = [0; 1];
        let ended = std::io::Read::read(&mut &socket, &mut byte).unwrap();
        assert_eq!(ended, 0, "its end closed");
        let patience = Duration::from_secs(10);
        assert_eq!(successor.end(patience).as_deref(), Some("exit status: 1"));
        assert_eq!(successor.end(patience), None);
    }
}

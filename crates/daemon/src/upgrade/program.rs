//! Selection, check and start of the program that takes over.
//!
//! # Model
//! By default it is the file that this daemon was started from, in its current version, as replaced
//! by a package manager. Any other file may be named by root only, or by the daemon's own user if
//! the daemon has no more rights than that user. Otherwise a daemon with capabilities would lend
//! them to a program of its user.
//!
//! The file is opened once, checked, and started from that descriptor, so it cannot be replaced in
//! between. It must belong to root or to this user, and be writable by no one else. Another file
//! than the daemon's own must be where programs are installed: a file of root in a container is no
//! program of the host.
//!
//! The program starts in `/`, since an interpreter might run a file of its working directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use api::UpgradeOrder;
use host::launcher::{Answer, Request, ask};
use model::state::{Problem, Problems, Remedy};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::super::sandbox::SandboxMode;

/// A program that may take over.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    file: File,
}

/// Chooses the program: one other than `own` only if this user may name it.
fn choose(own: &Path, other: Option<&Path>, user: Option<u32>) -> Result<PathBuf> {
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
    /// Opens the file at `path`; `own` is the program of this daemon.
    ///
    /// # Errors
    /// It is not a program, is not installed, or others could change it.
    fn open(path: &Path, own: &Path) -> Result<Program, Problems> {
        let cannot = |error: io::Error| {
            wrong(path, format!("cannot be opened: {error}"), "name the shunt binary")
        };
        let no_program = || wrong(path, "is not an executable file", "name the shunt binary");
        let file = host::regular_file::open(path).map_err(|errno| cannot(errno.into()))?;
        let file = file.ok_or_else(no_program)?;
        let about = file.metadata().map_err(cannot)?;
        if about.mode() & 0o111 == 0 {
            return Err(no_program());
        }
        let us = rustix::process::geteuid().as_raw();
        if ![0, us].contains(&about.uid()) || about.mode() & 0o022 != 0 {
            let remedy = "make root or this user its owner, with mode 0755";
            return Err(wrong(path, "can be changed by others", remedy));
        }
        let at = format!("/proc/self/fd/{}", file.as_raw_fd());
        let real = std::fs::read_link(at).map_err(cannot)?;
        if is_the_daemons(&real) {
            let remedy = "move it out of run_dir and state_dir";
            return Err(wrong(path, "can be changed by the daemon", remedy));
        }
        // In another mount namespace, such as a container's, a path names another file.
        let is_here = std::fs::metadata(&real)
            .is_ok_and(|here| (here.dev(), here.ino()) == (about.dev(), about.ino()));
        if path != own && !(is_here && is_installed(&real, own)) {
            let remedy = format!("install it beside {}, or below /usr or /opt", own.display());
            return Err(wrong(path, "is not where programs are installed", &remedy));
        }
        Ok(Program { path: path.to_owned(), file })
    }

    /// Command that starts it with one end of a socket as its standard input.
    fn command(&self, socket: OwnedFd, sandbox: &SandboxMode) -> Command {
        // The descriptor number is valid in the child until it executes the program.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command
            .arg0(&self.path)
            .args(["up", "--take-over"])
            .args(match sandbox {
                SandboxMode::On => Vec::new(),
                SandboxMode::Off => vec![OsStr::new("--sandbox=off")],
                SandboxMode::File(file) => {
                    vec!["--sandbox=file".as_ref(), "--config".as_ref(), file.as_os_str()]
                }
            })
            .envs(OWN_FILES.get().map(|own| (FILES, own.to_text())))
            .current_dir("/")
            .stdin(Stdio::from(socket));
        command
    }
}

/// Starts a program that takes over, with one end of a socket as its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct StartProgram {
    /// Another program than that of this daemon.
    other: Option<PathBuf>,
    /// User that asks for it.
    user: Option<u32>,
}

/// A started program.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct StartedProgram {
    pid: u32,
    path: PathBuf,
}

/// Reason for which a program is not started.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) enum NotStarted {
    /// It may not be.
    Refused(Problems),
    /// The system cannot run it.
    Failed(String),
}

impl Request for StartProgram {
    const NAME: &'static str = "start-program";
    const DOES: &'static str = "starts the program that takes over; it is installed, and neither others nor the daemon can change it";
    type Reply = Result<StartedProgram, NotStarted>;

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 3)?;
        let started = || -> Result<StartedProgram> {
            let OwnProgram { path: own, sandbox } = OWN_PROGRAM.get().context("no daemon runs")?;
            let path = choose(own, self.other.as_deref(), self.user)?;
            let program = Program::open(&path, own)?;
            let started = program.command(socket, sandbox).spawn();
            let child = started.with_context(|| format!("{} does not start", path.display()))?;
            Ok(StartedProgram { pid: adopt(child), path })
        };
        let failed = |error: anyhow::Error| match error.downcast() {
            Ok(problems) => NotStarted::Refused(problems),
            Err(error) => NotStarted::Failed(format!("{error:#}")),
        };
        Ok((started().map_err(failed), Vec::new()))
    }
}

/// Ends a started program, or tells it to stop.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in super::super) struct EndProgram {
    pid: u32,
    how: EndMode,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum EndMode {
    /// Kills it if it does not exit within so many milliseconds.
    Kill { after_ms: u64 },
    /// Forwards an order to stop.
    Stop,
}

impl Request for EndProgram {
    const NAME: &'static str = "end-program";
    const DOES: &'static str = "ends a program that the launcher has started";
    /// Its own exit status, if it exited by itself.
    type Reply = Option<String>;

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Option<String>> {
        let status = match self.how {
            EndMode::Kill { after_ms } => {
                let child = children().remove(&self.pid).ok_or(Errno::SRCH)?;
                end(child, Duration::from_millis(after_ms))
            }
            EndMode::Stop => {
                // The pid cannot be reused: this process is its parent, and has not waited for it.
                let is_ours = children().contains_key(&self.pid);
                let pid = Pid::from_raw(self.pid as i32).filter(|_| is_ours).ok_or(Errno::SRCH)?;
                rustix::process::kill_process(pid, Signal::TERM)?;
                None
            }
        };
        Ok((status, Vec::new()))
    }
}

/// Kills a process that does not exit within `deadline`; returns its own exit status, if any.
fn end(mut child: Child, deadline: Duration) -> Option<String> {
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

/// Programs started by this process, by pid.
fn children() -> MutexGuard<'static, BTreeMap<u32, Child>> {
    static CHILDREN: Mutex<BTreeMap<u32, Child>> = Mutex::new(BTreeMap::new());
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a started program; returns its pid.
pub(super) fn adopt(child: Child) -> u32 {
    let pid = child.id();
    children().insert(pid, child);
    pid
}

/// Paths of its configuration that the sandbox leaves to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct Files {
    /// Files that it may read.
    pub(in super::super) read: Vec<PathBuf>,
    /// Directories in which it may create files; no links.
    pub(in super::super) write: Vec<PathBuf>,
}

/// Environment variable of a started program: the [`Files`] of the daemon that it takes over from.
const FILES: &str = "SHUNT_FILES";

impl Files {
    fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // an empty text allows no takeover
    }

    fn have(&self, other: &Files) -> bool {
        let all =
            |ours: &[PathBuf], others: &[PathBuf]| others.iter().all(|one| ours.contains(one));
        all(&self.read, &other.read) && all(&self.write, &other.write)
    }
}

/// Files of the daemon, as it named them before it could be attacked.
static OWN_FILES: OnceLock<Files> = OnceLock::new();

/// `true` if the daemon may create or change this file.
fn is_the_daemons(file: &Path) -> bool {
    OWN_FILES.get().is_some_and(|own| own.write.iter().any(|dir| file.starts_with(dir)))
}

/// `true` for a file in the directory of the daemon's own program, or below `/usr` or `/opt`.
fn is_installed(file: &Path, own: &Path) -> bool {
    file.parent() == own.parent() || ["/usr", "/opt"].iter().any(|dir| file.starts_with(dir))
}

/// Names the files of the daemon, before it can be attacked: no program below its directories is
/// started, and one that takes over has no other files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct NameFiles(Files);

impl Request for NameFiles {
    const NAME: &'static str = "name-files";
    const DOES: &'static str = "names, once, the daemon's files, to which `start-program` keeps";
    type Reply = ();

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        OWN_FILES.set(self.0).map_err(|_| Errno::PERM)?;
        Ok(((), Vec::new()))
    }
}

/// Tells the launcher the files of this daemon; call it once. If a launcher has started this
/// program, they must be among those of the daemon from which it takes over.
///
/// # Errors
/// There are others, it was called before, or the launcher has ended.
pub(in super::super) fn name_files(files: Files) -> Result<()> {
    check_files(std::env::var_os(FILES).as_deref(), &files)?;
    let named = ask(NameFiles(files), &[]).map(drop);
    named.context("cannot tell the launcher the daemon's files")
}

/// Directories in which the daemon from which this program takes over may create files.
pub(in super::super) fn directories_before() -> Vec<PathBuf> {
    std::env::var_os(FILES).and_then(|text| parse_files(&text)).map_or(Vec::new(), |it| it.write)
}

fn parse_files(text: &OsStr) -> Option<Files> {
    text.to_str().and_then(|text| serde_json::from_str(text).ok())
}

fn check_files(before: Option<&OsStr>, files: &Files) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let before = parse_files(before);
    if !before.is_some_and(|before| before.have(files)) {
        bail!("the daemon hands over other directories or files than those of its start");
    }
    Ok(())
}

/// Program of this daemon.
#[derive(Debug)]
pub(in super::super) struct OwnProgram {
    /// File that it was started from.
    pub(in super::super) path: PathBuf,
    /// Sandbox of its successors: its own.
    pub(in super::super) sandbox: SandboxMode,
}

static OWN_PROGRAM: OnceLock<OwnProgram> = OnceLock::new();

/// Sets the program of this daemon; once.
pub(in super::super) fn set_own_program(own: OwnProgram) {
    let _ = OWN_PROGRAM.set(own);
}

/// The process that is to take over. Killed on drop, unless released.
#[derive(Debug)]
pub(super) struct NewProcess {
    pid: Option<u32>,
    /// Its program.
    pub(super) path: PathBuf,
}

impl NewProcess {
    /// Starts the program that `order` names.
    ///
    /// # Errors
    /// It may not be started, or the system cannot run it.
    pub(super) fn start(order: &UpgradeOrder, socket: UnixStream) -> Result<NewProcess> {
        let (other, user) = (order.binary.clone(), order.user);
        let (started, _) = ask(StartProgram { other, user }, &[socket.as_fd()])
            .context("the launcher cannot start a program")?;
        match started {
            Ok(StartedProgram { pid, path }) => Ok(NewProcess { pid: Some(pid), path }),
            Err(NotStarted::Refused(problems)) => Err(problems.into()),
            Err(NotStarted::Failed(text)) => Err(anyhow!(text)),
        }
    }

    /// Releases the process, so that it is not killed; returns its pid.
    pub(super) fn release(mut self) -> u32 {
        self.pid.take().unwrap_or_default()
    }

    /// Kills the process if it does not exit within `deadline`; returns its own exit status, if
    /// any.
    pub(super) fn end(&mut self, deadline: Duration) -> Option<String> {
        let how = EndMode::Kill { after_ms: deadline.as_millis() as u64 };
        ask(EndProgram { pid: self.pid.take()?, how }, &[]).ok()?.0
    }
}

/// Forwards an order to stop to a process that has taken over; returns `true` if that worked.
pub(super) fn stop(pid: u32) -> bool {
    ask(EndProgram { pid, how: EndMode::Stop }, &[]).is_ok()
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
        let told = || Program::open(&path, &path).unwrap_err().to_string();
        assert!(told().contains("cannot be opened: No such file"), "{}", told());
        std::fs::write(&path, "").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(told().contains("not an executable"), "{}", told());
        mode(0o775);
        assert!(told().contains("changed by others"), "{}", told());
        mode(0o755);
        assert_eq!(Program::open(&path, &path).unwrap().path, path);
        let directory = Program::open(dir.path(), &path).unwrap_err().to_string();
        assert!(directory.contains("not an executable"), "{directory}");
    }

    #[test]
    fn another_program_is_installed_where_programs_are() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = dir.path().canonicalize().unwrap().join("shunt");
        let (beside, other) = (own.with_file_name("new"), elsewhere.path().join("new"));
        for path in [&beside, &other] {
            std::fs::copy("/bin/true", path).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let link = own.with_file_name("link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        for path in [&beside, Path::new("/bin/true"), Path::new("/usr/bin/true")] {
            assert!(Program::open(path, &own).is_ok(), "{}", path.display());
        }
        // Of another version of the file a process has only the descriptor.
        let replaced = File::open(&beside).unwrap();
        std::fs::remove_file(&beside).unwrap();
        let replaced = PathBuf::from(format!("/proc/self/fd/{}", replaced.as_raw_fd()));
        for path in [&other, &link, &replaced] {
            let refused = Program::open(path, &own).unwrap_err().to_string();
            assert!(refused.contains(&format!("install it beside {}", own.display())), "{refused}");
        }
    }

    #[test]
    fn one_that_ends_by_itself_says_how() {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let program = Path::new("/bin/false").canonicalize().unwrap();
        let program = Program::open(&program, &program).unwrap();
        let mut command = program.command(theirs.into(), &SandboxMode::On);
        assert_eq!(command.get_current_dir(), Some(Path::new("/")), "without a file `up`");
        let child = command.spawn().unwrap();
        drop(command);
        let mut byte = [0; 1];
        let ended = std::io::Read::read(&mut &socket, &mut byte).unwrap();
        assert_eq!(ended, 0, "its end closed");
        let deadline = Duration::from_secs(10);
        assert_eq!(end(child, deadline).as_deref(), Some("exit status: 1"));
    }

    #[test]
    fn no_program_from_a_directory_of_the_daemon() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&own, &other] {
            std::fs::copy("/bin/true", dir.path().join("shunt")).unwrap();
            let mode = PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(dir.path().join("shunt"), mode).unwrap();
        }
        let files = |dir: &tempfile::TempDir| Files {
            read: Vec::new(),
            write: vec![dir.path().canonicalize().unwrap()],
        };
        name_files(files(&own)).unwrap();
        let again = NameFiles(files(&other)).serve(&[]).unwrap_err();
        assert_eq!(again, Errno::PERM, "only once");
        let link = other.path().join("link");
        std::os::unix::fs::symlink(own.path().join("shunt"), &link).unwrap();
        for path in [own.path().join("shunt"), link] {
            let refused = Program::open(&path, &path).unwrap_err().to_string();
            assert!(refused.contains("can be changed by the daemon"), "{refused}");
        }
        let program = other.path().join("shunt");
        assert!(Program::open(&program, &program).is_ok());
    }

    #[test]
    fn a_successor_has_the_files_of_its_predecessor() {
        let files = |read: &[&str], write: &[&str]| {
            let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect();
            Files { read: paths(read), write: paths(write) }
        };
        let before = files(&["/etc/token"], &["/run/shunt", "/var/lib/shunt"]).to_text();
        let check = |files| check_files(Some(before.as_ref()), &files).is_ok();
        assert!(check(files(&["/etc/token"], &["/run/shunt", "/var/lib/shunt"])));
        assert!(check(files(&[], &["/run/shunt"])));
        assert!(!check(files(&["/etc/shadow"], &["/run/shunt"])));
        assert!(!check(files(&[], &["/run/shunt", "/etc"])));
        assert!(check_files(None, &files(&[], &["/etc"])).is_ok(), "no launcher has started it");
        assert!(check_files(Some("".as_ref()), &files(&[], &[])).is_err());
    }

    #[test]
    fn only_a_program_that_was_started_is_ended() {
        let child = Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert!(!stop(pid), "another process");
        assert_eq!(adopt(child), pid);
        assert!(stop(pid));
        let mut stopped = NewProcess { pid: Some(pid), path: PathBuf::new() };
        let ended = stopped.end(Duration::from_secs(10));
        assert_eq!(ended.as_deref(), Some("signal: 15 (SIGTERM)"));
        assert_eq!(stopped.end(Duration::ZERO), None);
    }
}

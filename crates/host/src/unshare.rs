//! New network namespaces for this process.
//!
//! Model: the network namespace has no name. It lives while a process is in it or holds it open, so
//! it vanishes however the process ends.
//!
//! Limits: Linux lets an ordinary user make one only inside a new user namespace, in which the user
//! is root; some machines forbid even that. See namespaces(7), user_namespaces(7),
//! network_namespaces(7).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Reasons that a namespace cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum UnshareError {
    /// The kernel permits neither kind.
    #[error(
        "no network namespace: this user may create neither one nor a user namespace; run as root, or \
         allow it (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Refused(#[source] io::Error),
    /// The user namespace exists, but its id maps cannot be written.
    #[error("cannot write {file}: the new user namespace has no root user")]
    Map {
        /// The file.
        file: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Moves the calling thread, and threads it starts later, into a new network namespace. Without
/// permission for that, it makes one inside a new user namespace in which this user is root; this
/// works only in a single-threaded process.
///
/// # Errors
/// The machine permits neither, or the process has other threads.
pub fn new_network() -> Result<(), UnshareError> {
    match unshare(UnshareFlags::NEWNET) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(error) => return Err(UnshareError::Refused(error.into())),
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
        .map_err(|error| UnshareError::Refused(error.into()))?;
    // The kernel accepts a group map from its user only after setgroups is denied.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {} 1", user.as_raw())),
        ("/proc/self/gid_map", format!("0 {} 1", group.as_raw())),
    ] {
        fs::write(file, text).map_err(|source| UnshareError::Map { file, source })?;
    }
    Ok(())
}

/// A new network namespace that no process is in: it ends with its file, unless a socket of it is
/// open. IPv6 is off in it, so that its interfaces send nothing by themselves.
///
/// # Errors
/// The caller is not root, or no thread can be started.
pub fn network_file() -> Result<OwnedFd, UnshareError> {
    let make = || {
        unshare(UnshareFlags::NEWNET).map_err(|error| UnshareError::Refused(error.into()))?;
        // A kernel without IPv6 has no such file.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let file = fs::File::open("/proc/thread-self/ns/net").map_err(UnshareError::Refused)?;
        Ok(OwnedFd::from(file))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, make);
        let thread = thread.map_err(UnshareError::Refused)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[expect(unsafe_code, reason = "the system call is unsafe for one of its flags")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only with FILES could a thread lose descriptors that others hold.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::interface::Interfaces;
    use crate::links::Links;
    use crate::netns;

    #[test]
    fn a_thread_is_alone_with_its_loopback_or_told_why_not() {
        // With other threads only the plain kind can work, which needs root.
        let seen = std::thread::spawn(|| {
            let own = || fs::read_link("/proc/thread-self/ns/net").unwrap();
            let before = own();
            new_network().map(|()| (before, own(), fs::read_to_string("/proc/thread-self/net/dev")))
        });
        match seen.join().unwrap() {
            Ok((before, after, devices)) => {
                assert_ne!(before, after);
                let devices = devices.unwrap();
                assert_eq!(devices.lines().skip(2).count(), 1, "{devices}");
                assert!(devices.contains("lo:"), "{devices}");
            }
            Err(error) => assert!(error.to_string().contains("run as root"), "{error}"),
        }
    }

    #[test]
    fn an_interface_goes_to_a_namespace_without_processes_and_back() {
        let (first, second) = match (network_file(), network_file()) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(error), _) | (_, Err(error)) => {
                assert!(error.to_string().contains("run as root"), "{error}");
                return;
            }
        };
        let [in_first, in_second] =
            [&first, &second].map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let index = |netns: &str, name: &str| {
            Interfaces::of(Some(netns)).unwrap().state(name).ok().map(|state| state.index)
        };
        let links = |netns: &str| netns::within(Some(netns), || Links::open().unwrap()).unwrap();
        let made = links(&in_first).add_pair("a0", "shunt-test-a0", std::process::id());
        if let Err(error) = made {
            assert_eq!(error.source, Errno::OPNOTSUPP, "a kernel without veth");
            return;
        }
        let found = index(&in_first, "a0").unwrap();
        links(&in_first).move_to(second.as_fd(), found, "b0").unwrap();
        assert_eq!(index(&in_first, "a0"), None);
        let found = index(&in_second, "b0").unwrap();
        links(&in_second).move_to(first.as_fd(), found, "a0").unwrap();
        assert_eq!(index(&in_second, "b0"), None);
        assert!(index(&in_first, "a0").is_some());
        let error = links(&in_second).move_to(first.as_fd(), u32::MAX >> 1, "a0").unwrap_err();
        assert_eq!(error.source, Errno::NODEV);
        links(&in_first).remove("a0").unwrap();
    }
}

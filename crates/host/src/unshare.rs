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

#[expect(unsafe_code, reason = "the system call is unsafe for one of its flags")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only with FILES could a thread lose descriptors that others hold.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

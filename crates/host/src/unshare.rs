//! Network namespaces of one's own.
//!
//! Model: a network namespace has no name here. It lives as long as a process is in it or holds it
//! open, so that nothing stays behind, however a process ends.
//!
//! Limits: Linux lets an ordinary user make one only inside a user namespace of his own, where he
//! then is root, and some machines do not even allow that. See namespaces(7), user_namespaces(7),
//! network_namespaces(7).

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Why there is no namespace.
#[derive(Debug, thiserror::Error)]
pub enum UnshareError {
    /// Neither is allowed.
    #[error(
        "this machine lets this user make no network namespace, nor a user namespace for one; run as root, or \
         allow it (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Refused(#[source] io::Error),
    /// The user namespace is there, but nobody in it.
    #[error("cannot write {file}, so that nobody is root in the new user namespace")]
    Map {
        /// The file.
        file: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Moves the calling thread, and those that it starts from now on, into a new network namespace: a
/// plain one where that is allowed, else one inside a new user namespace in which this user is
/// root. The latter works only while the process has a single thread.
///
/// # Errors
/// The machine allows neither, or the process has other threads.
pub fn new_network() -> Result<(), UnshareError> {
    match unshare(UnshareFlags::NEWNET) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(error) => return Err(UnshareError::Refused(error.into())),
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
        .map_err(|error| UnshareError::Refused(error.into()))?;
    // A group may be mapped by its user only once nobody can drop groups any more.
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
    // SAFETY: only with FILES could a thread lose sight of descriptors that others hold.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alone_with_its_loopback_or_told_why_not() {
        // In a thread with others beside it only the plain kind can work, which takes root.
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

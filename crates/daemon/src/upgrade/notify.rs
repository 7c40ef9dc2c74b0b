//! Notifications to the service manager, if it wants them: sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that another process is the daemon from now on.
pub(in super::super) fn main_pid(pid: u32) {
    say(std::env::var_os("NOTIFY_SOCKET"), &format!("MAINPID={pid}\n"));
}

/// Reports that the daemon serves.
pub(in super::super) fn ready() {
    say(std::env::var_os("NOTIFY_SOCKET"), "READY=1\n");
}

/// Errors are ignored: a manager that does not listen needs no message.
fn say(to: Option<std::ffi::OsString>, what: &str) {
    let Some(to) = to.and_then(|to| to.into_string().ok()) else { return };
    let address = match to.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&to),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(what.as_bytes(), &address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_it_where_it_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        say(Some(path.into()), "MAINPID=7\n");
        let mut heard = [0; 64];
        let n = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..n], b"MAINPID=7\n");
        say(None, "READY=1\n");
        say(Some("/nobody/listens".into()), "READY=1\n");
    }
}

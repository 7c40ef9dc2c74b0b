//! Peer of a socket.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// `true` if the peer has closed the connection, even with unread data left. Such a connection must
/// not block the peer's next one.
pub fn has_hung_up(stream: impl AsFd) -> bool {
    let mut sockets = [PollFd::new(&stream, PollFlags::RDHUP)];
    poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

//! The other end of a socket.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether it has closed the connection, though what it sent in its last moments may wait: it must
/// not keep its successor out.
pub fn has_hung_up(stream: impl AsFd) -> bool {
    let mut sockets = [PollFd::new(&stream, PollFlags::RDHUP)];
    poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

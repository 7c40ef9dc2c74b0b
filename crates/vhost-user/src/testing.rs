//! Sockets that wait on close, for tests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A TCP socket whose close waits for its peer to read all data, and the peer.
///
/// # Panics
/// There is no loopback.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    let long = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&socket, long).unwrap();
    (socket.into(), peer)
}

/// Reads to the end, so that a lingering socket closes.
///
/// # Panics
/// It cannot be read.
pub fn drain(mut peer: TcpStream) {
    while peer.read(&mut [0; 1 << 16]).unwrap() > 0 {}
}

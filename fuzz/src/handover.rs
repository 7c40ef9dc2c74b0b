//! Messages of a hot restart, from a process that writes anything.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::Reached;
use crate::input::Input;

const MAGIC: &[u8] = b"SHUNTUP\n";

/// `data` is messages: a header that may lie, descriptors, and text.
pub(crate) fn handover(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let (ours, mut peer) = UnixStream::pair().expect("a socket pair");
    for end in [&ours, &peer] {
        end.set_nonblocking(true).expect("a socket");
    }
    let file = File::open("/dev/null").expect("/dev/null");
    // A full socket ends the input: its other end is read later.
    while !input.is_empty() && send(&mut peer, &mut input, file.as_fd()).is_ok() {}
    drop(peer);
    let mut reached = Reached::default();
    reached.add("messages", daemon::testing::receive_handover(ours) as u64);
    reached
}

/// Sends the next message of the input, with copies of this descriptor.
fn send(peer: &mut UnixStream, input: &mut Input<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    let (kind, len) = (input.byte(), usize::from(input.u16() % 2048));
    let text = input.bytes(len);
    let fds = usize::from(kind >> 4 & 3);
    let told = match kind & 7 {
        0 => [input.u32(), input.u32()],
        _ => [text.len() as u32, fds as u32],
    };
    let head = [MAGIC, &told[0].to_le_bytes(), &told[1].to_le_bytes()].concat();
    peer.write_all(if kind & 15 == 9 { &head[1..] } else { &head })?;
    if fds > 0 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = vec![file; fds];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let byte = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&*peer, &byte, &mut control, SendFlags::empty())?;
    }
    peer.write_all(text)
}

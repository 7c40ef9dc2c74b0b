use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::FdFlags;

use super::*;
use crate::message::{Flags, PAYLOAD_SIZE_MAX, Request};

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

/// Sends bytes with any number of descriptors, which the code under test refuses to do.
fn send_raw(stream: &UnixStream, bytes: &[u8], count: usize) {
    let events: Vec<_> = (0..count).map(|_| event()).collect();
    let fds: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
    let slices = [IoSlice::new(bytes)];
    let sent = rustix::net::sendmsg(stream, &slices, &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, bytes.len());
}

#[test]
fn a_half_message_does_not_block() {
    let (peer, us) = pair();
    let mut receiver = Receiver::new();
    let bytes = Message::request(Request::SetFeatures, &7u64).to_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        assert!(receiver.poll(&us).unwrap().is_none());
        assert_eq!(receiver.is_partial(), at > 0);
        send_raw(&peer, &[*byte], 0);
    }
    let message = receiver.poll(&us).unwrap().unwrap();
    assert_eq!(message.request, Request::SetFeatures.code());
    assert_eq!(message.payload, 7u64.to_ne_bytes());
    assert!(!receiver.is_partial());
    assert!(receiver.poll(&us).unwrap().is_none());
}

#[test]
fn the_end_is_told_apart_from_a_broken_message() {
    let (peer, us) = pair();
    drop(peer);
    assert!(matches!(Receiver::new().poll(&us), Err(SocketError::Closed)));
    let (peer, us) = pair();
    send_raw(&peer, &[1, 0, 0], 0);
    drop(peer);
    let result = Receiver::new().poll(&us);
    assert!(matches!(result, Err(SocketError::ClosedWithin { got: 3, want: 12 })));
}

#[test]
fn descriptors_stay_with_their_message() {
    let (peer, us) = pair();
    let fd = event();
    for count in [1, 0, 8] {
        let message = Message::request(Request::SetVringKick, &0u64);
        send_before(&peer, &message, &vec![fd.as_fd(); count], soon()).unwrap();
    }
    let mut receiver = Receiver::new();
    for count in [1, 0, 8] {
        let message = receiver.poll(&us).unwrap().unwrap();
        assert_eq!(message.fds.len(), count);
        for fd in &message.fds {
            assert_eq!(rustix::io::fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
    }
    assert!(receiver.poll(&us).unwrap().is_none());
}

#[test]
fn too_many_descriptors_are_an_error() {
    let bytes = Message::request(Request::SetFeatures, &7u64).to_bytes();
    // All at once: the kernel keeps back those that do not fit.
    for count in [9, 10, 40] {
        let (peer, us) = pair();
        send_raw(&peer, &bytes, count);
        let error = Receiver::new().poll(&us).unwrap_err();
        assert!(
            matches!(error, SocketError::FdsTruncated | SocketError::TooManyFds),
            "{count}: {error}"
        );
    }
    // A few with each part.
    let (peer, us) = pair();
    for part in bytes.chunks(4) {
        send_raw(&peer, part, 3);
    }
    let mut receiver = Receiver::new();
    assert!(matches!(receiver.poll(&us), Err(SocketError::TooManyFds)));
    assert!(receiver.fds.is_empty(), "descriptors of a broken message must be closed");
    // And none are sent.
    let fd = event();
    let message = Message::request(Request::SetFeatures, &7u64);
    let result = send_before(&peer, &message, &[fd.as_fd(); 9], soon());
    assert!(matches!(result, Err(SocketError::TooManyFds)));
}

#[test]
fn an_invalid_header_is_an_error() {
    for (flags, size) in [(0u32, 0u32), (2, 0), (0x11, 0), (1, PAYLOAD_SIZE_MAX as u32 + 1)] {
        let (peer, us) = pair();
        let header = [1u32, flags, size].map(u32::to_ne_bytes).concat();
        send_raw(&peer, &header, 2);
        let error = Receiver::new().poll(&us).unwrap_err();
        assert!(matches!(error, SocketError::Header(_)), "{error}");
    }
    let (peer, us) = pair();
    let mut message = Message::reply(1, vec![5; PAYLOAD_SIZE_MAX]);
    message.flags |= Flags::NEED_REPLY;
    send(&peer, &message).unwrap();
    let received = Receiver::new().poll(&us).unwrap().unwrap();
    assert_eq!((received.payload, received.flags), (message.payload, message.flags));
}

#[test]
fn a_peer_that_does_not_read_delays_no_other() {
    let (_peer, us) = pair();
    let message = Message::reply(1, vec![0; 4096]);
    let stuck = (0..1000).find_map(|_| send(&us, &message).err());
    assert!(matches!(stuck, Some(SocketError::PeerStuck)));
    let deadline = Instant::now() + Duration::from_millis(10);
    let result = send_before(&us, &message, &[], deadline);
    assert!(matches!(result, Err(SocketError::TimedOut)));
}

#[test]
fn waiting_ends_with_the_message_or_the_deadline() {
    let (peer, us) = pair();
    let mut receiver = Receiver::new();
    let deadline = Instant::now() + Duration::from_millis(10);
    assert!(matches!(receiver.receive(&us, deadline), Err(SocketError::TimedOut)));
    let sender = std::thread::spawn(move || {
        let bytes = Message::request(Request::SetFeatures, &7u64).to_bytes();
        for part in bytes.chunks(3) {
            send_raw(&peer, part, 0);
        }
        peer
    });
    assert_eq!(receiver.receive(&us, soon()).unwrap().payload, 7u64.to_ne_bytes());
    drop(sender.join().unwrap());
    assert!(matches!(receiver.receive(&us, soon()), Err(SocketError::Closed)));
}

#[test]
fn another_receiver_goes_on_with_half_a_message() {
    let bytes = Message::request(Request::SetVringKick, &1u64).to_bytes();
    for cut in [1, 11, 12, 13, bytes.len() - 1] {
        let (peer, us) = pair();
        let mut receiver = Receiver::new();
        send_raw(&peer, &bytes[..cut], 1);
        assert!(receiver.poll(&us).unwrap().is_none());
        let (received, fds) = receiver.partial();
        assert_eq!((received, fds.len()), (&bytes[..cut], 1));
        let fds = fds.iter().map(|fd| fd.as_fd().try_clone_to_owned().unwrap()).collect();
        let mut successor = Receiver::within(received, fds, &Closer::default()).unwrap();
        assert!(successor.is_partial() && successor.poll(&us).unwrap().is_none());
        send_raw(&peer, &bytes[cut..], 0);
        let message = successor.poll(&us).unwrap().expect("the rest is there");
        assert_eq!((message.payload, message.fds.len()), (1u64.to_le_bytes().to_vec(), 1));
    }
    assert!(
        Receiver::within(&[0xff; HEADER_SIZE], Vec::new(), &Closer::default()).is_err(),
        "no header"
    );
    let more = [&bytes[..], &[0]].concat();
    assert!(
        Receiver::within(&more, Vec::new(), &Closer::default()).is_err(),
        "more than a message"
    );
}

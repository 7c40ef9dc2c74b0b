//! A peer of a stream port, against a plain parser of the same bytes.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use port::stream::{SocketRole, StreamSpec, resume};
use port::{OpenedDevice, PortHandover};
use vhost_user::SocketAccess;

use crate::Reached;
use crate::input::Input;
use crate::kernel_port::{poll, words};

/// Longest frame that QEMU sends.
const FRAME_MAX: usize = 4096 + 65536;
const MTU: u16 = 1500;

/// Beginning of a stream.
enum Next<'a> {
    Frame(&'a [u8], &'a [u8]),
    Incomplete,
    ImpossibleLength,
}

/// The next frame of a stream, and the bytes behind it.
fn split(bytes: &[u8]) -> Next<'_> {
    let Some((len, rest)) = bytes.split_first_chunk() else { return Next::Incomplete };
    match u32::from_be_bytes(*len) as usize {
        len @ 0..=FRAME_MAX => match rest.split_at_checked(len) {
            Some((frame, rest)) => Next::Frame(frame, rest),
            None => Next::Incomplete,
        },
        _ => Next::ImpossibleLength,
    }
}

/// A port whose peer is connected, with bytes that the previous process had received.
fn port(received: &[u8], unsent: &[u8]) -> (OpenedDevice, UnixStream) {
    let (ours, peer) = UnixStream::pair().expect("a socket pair");
    ours.set_nonblocking(true).expect("a socket");
    let spec = StreamSpec {
        socket: PathBuf::from("/nonexistent/shunt-fuzz"),
        role: SocketRole::Client,
        access: SocketAccess::OWNER,
        mtu: MTU,
    };
    let state = [words(&[0, 1]), counted(received), counted(unsent)].concat();
    let handover = PortHandover { fds: vec![Arc::new(OwnedFd::from(ours))], state };
    (resume(&spec, handover).expect("a complete state"), peer)
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&words(&[bytes.len() as u64])[..], bytes].concat()
}

/// `data` is what a peer writes, in pieces; each piece begins with its length.
pub(crate) fn stream(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let received = usize::from(input.byte());
    let mut pending = input.bytes(received).to_vec();
    let (mut device, mut peer) = port(&pending, b"");
    let mut reached = Reached::default();
    loop {
        // A burst can end before the last frame that is here.
        loop {
            let (frames, polled) = poll(&mut device);
            let mut rest = &pending[..];
            for (frame, malformed) in &frames {
                let Next::Frame(expected, behind) = split(rest) else {
                    panic!("{} bytes came from nowhere", frame.len());
                };
                assert_eq!(frame, expected);
                let is_fine = (14..=usize::from(MTU) + 22).contains(&frame.len());
                assert!(is_fine || *malformed);
                rest = behind;
            }
            pending = rest.to_vec();
            reached.add("frames", frames.len() as u64);
            reached.add("malformed", u64::from(polled.malformed()));
            if !polled.backlog && frames.is_empty() {
                break;
            }
        }
        let is_connected =
            device.housekeeping.as_ref().is_some_and(|housekeeping| housekeeping.is_connected());
        match split(&pending) {
            Next::Frame(..) => panic!("a whole frame was left"),
            Next::Incomplete => assert!(is_connected, "a good peer was disconnected"),
            Next::ImpossibleLength => {
                assert!(!is_connected, "an impossible length was accepted");
                reached.add("disconnected", 1);
                return reached;
            }
        }
        if input.is_empty() {
            break;
        }
        let len = usize::from(input.u16() % 2048);
        let piece = input.bytes(len);
        pending.extend(piece);
        peer.write_all(piece).expect("the other end is open and read");
    }
    hand_over(device, &pending);
    reached
}

/// Bytes that were received and not forwarded go to the next process.
fn hand_over(mut device: OpenedDevice, pending: &[u8]) {
    let state = device.pairs[0].transmit.handover_state();
    assert_eq!(state, pending);
    let housekeeping = device.housekeeping.as_mut().expect("a stream has work for control");
    let handover = housekeeping.handover(&[state]).expect("a stream is handed over");
    assert_eq!(handover.state, [words(&[0, 1]), counted(pending), counted(b"")].concat());
}

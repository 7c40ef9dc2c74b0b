//! Stream sockets, with a peer that speaks as QEMU does, or worse.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::guests::{Layout, Sender, frame};
use super::lent::Lent;
use super::offload::{GSO, MSS, left, payload_of, tcp};
use vhost_user::SocketAccess;

use crate::stream::{OUT_BYTES, SocketRole, StreamError, StreamSpec, open, resume};
use crate::{
    BURST, Delivered, Housekeeping, OffloadSet, OpenedDevice, PortHandover, Transmit, VlanEdit,
};

/// A port on a socket of its own.
struct Port {
    opened: OpenedDevice,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Port {
    fn new(role: SocketRole) -> Port {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nic");
        let opened = open(&StreamSpec {
            socket: socket.clone(),
            role,
            access: SocketAccess::OWNER,
            mtu: 1500,
        })
        .unwrap();
        Port { opened, socket, _dir: dir }
    }

    /// One with a peer.
    fn connected() -> (Port, UnixStream) {
        let mut port = Port::new(SocketRole::Server);
        let peer = UnixStream::connect(&port.socket).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        port.housekeeping().tick(Instant::now());
        assert!(port.housekeeping().is_connected());
        (port, peer)
    }

    fn housekeeping(&mut self) -> &mut dyn Housekeeping {
        self.opened.housekeeping.as_deref_mut().unwrap()
    }

    fn transmit(&mut self) -> Lent<&mut dyn Transmit> {
        Lent::new(self.opened.pairs[0].transmit.as_mut())
    }

    /// The frames of a poll, and whether there are more.
    fn poll(&mut self) -> (Vec<Vec<u8>>, bool) {
        let mut transmit = self.transmit();
        let polled = transmit.poll();
        let frames = transmit.frames();
        assert_eq!(frames.len(), polled.frames as usize);
        transmit.complete();
        (frames, polled.backlog)
    }

    /// Sends the frames as a guest's burst.
    fn send(&mut self, frames: &[Vec<u8>]) -> Delivered {
        let mut from = Sender::new(12, 1514);
        for frame in frames {
            from.send(frame, &Layout::chain(&[30]));
        }
        self.carry(&mut from, frames.len())
    }

    fn carry(&mut self, from: &mut Sender, count: usize) -> Delivered {
        let indices: Vec<u8> = (0..count as u8).collect();
        from.ring.poll();
        let mut receive = Lent::new(self.opened.pairs[0].receive.as_mut());
        let delivered = receive.deliver(&from.ring.burst(), &indices, VlanEdit::None);
        receive.publish();
        from.ring.complete();
        delivered
    }
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

/// The next frame that a peer gets; `None` at the end.
fn next(peer: &mut UnixStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    peer.read_exact(&mut len).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    peer.read_exact(&mut frame).unwrap();
    Some(frame)
}

#[test]
fn frames_arrive_however_the_stream_is_cut() {
    let sent: Vec<_> = [14, 60, 1514, 15].into_iter().map(|len| frame(len, len)).collect();
    let bytes: Vec<u8> = sent.iter().flat_map(|frame| framed(frame)).collect();
    for cut in [1, 2, 3, 5, 60, 64, 700, bytes.len()] {
        let (mut port, mut peer) = Port::connected();
        let mut received = Vec::new();
        for part in bytes.chunks(cut) {
            peer.write_all(part).unwrap();
            received.extend(port.poll().0);
        }
        assert_eq!(received, sent, "in parts of {cut}");
        assert!(!port.transmit().enable_notification());
    }
}

#[test]
fn many_frames_arrive_in_bursts_and_memory_is_used_again() {
    let (mut port, mut peer) = Port::connected();
    let (mut sent, mut received) = (0, 0);
    while received < 3000 {
        for _ in 0..BURST + 6 {
            peer.write_all(&framed(&frame(sent, 600 + sent % 900))).unwrap();
            sent += 1;
        }
        while port.transmit().enable_notification() {
            let (frames, backlog) = port.poll();
            assert!(!backlog || frames.len() == BURST);
            for bytes in frames {
                assert_eq!(bytes, frame(received, 600 + received % 900));
                received += 1;
            }
        }
        assert_eq!(received, sent);
    }
}

#[test]
fn frames_for_the_peer_have_their_length_in_front() {
    let (mut port, mut peer) = Port::connected();
    let sent: Vec<_> = (0..BURST).map(|i| frame(i, 14 + i * 20)).collect();
    let delivered = port.send(&sent);
    let bytes: usize = sent.iter().map(Vec::len).sum();
    assert_eq!((delivered.frames as usize, delivered.bytes), (BURST, bytes as u64));
    sent.iter().for_each(|frame| assert_eq!(next(&mut peer).as_ref(), Some(frame)));
}

#[test]
fn what_was_left_to_do_is_done() {
    let (mut port, mut peer) = Port::connected();
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let (large, payload) = tcp(30_500);
    from.send_with(left(GSO, MSS as u16), &large, &Layout::chain(&[]));
    let delivered = port.carry(&mut from, 1);
    assert_eq!((delivered.frames, delivered.no_buffer), (31, 0));
    let frames: Vec<_> = (0..31).map(|_| next(&mut peer).unwrap()).collect();
    assert_eq!(payload_of(&frames), payload);
}

#[test]
fn a_peer_that_does_not_read_misses_whole_frames() {
    let (mut port, mut peer) = Port::connected();
    let (mut taken, mut number) = (Vec::new(), 0);
    let mut missed = 0;
    while missed < 3 * BURST as u32 {
        let sent: Vec<_> = (0..BURST).map(|i| frame(number + i, 1514)).collect();
        let delivered = port.send(&sent);
        assert_eq!(delivered.frames + delivered.no_buffer, BURST as u32);
        // Those that were taken came before those for which there was no room.
        taken.extend(number..number + delivered.frames as usize);
        number += BURST;
        missed += delivered.no_buffer;
        assert!(number < 100 * OUT_BYTES / 1514, "it never gets full");
    }
    // The last of them are sent by polling alone, as the peer reads.
    for number in taken {
        if port.transmit().enable_notification() {
            assert_eq!(port.poll().0.len(), 0);
        }
        assert_eq!(next(&mut peer), Some(frame(number, 1514)));
    }
    assert_eq!(port.send(&[frame(7, 60)]).frames, 1, "there is room again");
    assert_eq!(next(&mut peer), Some(frame(7, 60)));
}

#[test]
fn an_impossible_length_ends_the_connection_and_the_next_peer_is_served() {
    let (mut port, mut peer) = Port::connected();
    let mut waiting = UnixStream::connect(&port.socket).unwrap();
    peer.write_all(&framed(&frame(1, 60))).unwrap();
    peer.write_all(&(69_633u32.to_be_bytes())).unwrap();
    peer.write_all(&frame(2, 60)).unwrap();
    port.housekeeping().tick(Instant::now());
    assert_eq!(port.poll().0, [frame(1, 60)], "what came before it counts");
    assert_eq!(port.poll().0.len(), 0);
    assert!(!port.housekeeping().is_connected());
    assert!(next(&mut peer).is_none());
    assert!(!port.transmit().enable_notification(), "nothing more is expected from it");
    assert_eq!(port.send(&[frame(3, 60)]).no_buffer, 1, "no peer");

    waiting.write_all(&framed(&frame(4, 60))).unwrap();
    port.housekeeping().tick(Instant::now());
    assert!(port.housekeeping().is_connected());
    assert_eq!(port.poll().0, [frame(4, 60)]);
    assert_eq!(port.send(&[frame(5, 60)]).frames, 1);
    assert_eq!(next(&mut waiting), Some(frame(5, 60)));
}

#[test]
fn lengths_that_are_no_frames_are_told() {
    let (mut port, mut peer) = Port::connected();
    for len in [0, 13, 60, 1523, 69_632] {
        peer.write_all(&framed(&frame(1, len))).unwrap();
    }
    let mut polled = port.transmit().poll();
    assert_eq!((polled.frames, polled.runts, polled.oversize), (5, 2, 2));
    port.transmit().complete();
    polled = port.transmit().poll();
    assert_eq!(polled.frames, 0);
}

#[test]
fn a_client_finds_its_peer_whenever_that_comes() {
    let mut port = Port::new(SocketRole::Client);
    assert!(!port.housekeeping().is_connected());
    let mut now = Instant::now();
    for turn in 0..3 {
        let listener = UnixListener::bind(&port.socket).unwrap();
        now += Duration::from_secs(1);
        port.housekeeping().tick(now);
        assert!(port.housekeeping().is_connected());
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&framed(&frame(turn, 60))).unwrap();
        assert!(port.transmit().enable_notification(), "what came is noticed");
        assert_eq!(port.poll().0, [frame(turn, 60)]);
        assert_eq!(port.send(&[frame(turn, 100)]).frames, 1);
        assert_eq!(next(&mut peer), Some(frame(turn, 100)));
        drop((peer, listener));
        std::fs::remove_file(&port.socket).unwrap();
        assert!(port.transmit().enable_notification(), "its end is noticed");
        assert_eq!(port.poll().0.len(), 0);
        assert!(!port.housekeeping().is_connected());
        now += Duration::from_secs(1);
        port.housekeeping().tick(now);
        assert!(!port.housekeeping().is_connected());
    }
}

#[test]
fn a_path_that_cannot_be_is_refused() {
    let socket = PathBuf::from("/nowhere/at/all");
    let error = open(&StreamSpec {
        socket,
        role: SocketRole::Server,
        access: SocketAccess::OWNER,
        mtu: 1500,
    })
    .unwrap_err();
    assert!(matches!(error, StreamError::Listen(_)), "{error}");
    let socket = PathBuf::from("/x".repeat(100));
    let error = open(&StreamSpec {
        socket,
        role: SocketRole::Client,
        access: SocketAccess::OWNER,
        mtu: 1500,
    })
    .unwrap_err();
    assert!(error.to_string().contains("at most 107"), "{error}");
}

#[test]
fn another_process_goes_on_in_the_middle_of_frames() {
    let (mut port, mut peer) = Port::connected();
    let frames: Vec<Vec<u8>> = (0..3).map(|i| frame(i, 700)).collect();
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    let cut = 704 + 300; // within the second
    peer.write_all(&bytes[..cut]).unwrap();
    assert_eq!(port.poll().0, frames[..1]);
    // Bytes wait while the peer does not read, and the socket cannot hold them all.
    let many: Vec<Vec<u8>> = (0..BURST).map(|i| frame(i, 1514)).collect();
    let taken = (0..4).map(|_| port.send(&many).frames).sum::<u32>();
    assert!(taken > 100);

    let Port { opened, socket, _dir } = port;
    let OpenedDevice { mut pairs, housekeeping, .. } = opened;
    let handover_state = vec![pairs.remove(0).transmit.handover_state()];
    assert_eq!(handover_state[0], bytes[704..cut]);
    let mut housekeeping = housekeeping.unwrap();
    let handover = housekeeping.handover(&handover_state).unwrap();
    drop(housekeeping);
    assert!(socket.exists(), "it is the next one's");
    let spec = StreamSpec {
        socket: socket.clone(),
        role: SocketRole::Server,
        access: SocketAccess::OWNER,
        mtu: 1500,
    };
    // The peer reads on, so that there is room; one that takes over and fails has sent nothing, and
    // removed nothing.
    let read = 50;
    (0..read).for_each(|i| assert_eq!(next(&mut peer).as_ref(), Some(&many[i])));
    drop(resume(&spec, handover.clone()).unwrap());
    assert!(socket.exists());
    let mut opened = resume(&spec, handover.clone()).unwrap();
    opened.housekeeping.as_mut().unwrap().adopt();
    let mut port = Port { opened, socket, _dir };
    assert!(port.housekeeping().is_connected());
    peer.write_all(&bytes[cut..]).unwrap();
    assert_eq!(port.poll().0, frames[1..]);
    for number in read..taken as usize {
        port.poll(); // sends what waits
        assert_eq!(next(&mut peer).as_ref(), Some(&many[number % BURST]), "frame {number}");
    }
    let cut_off = PortHandover { state: handover.state[..20].to_vec(), ..handover };
    assert!(matches!(resume(&spec, cut_off), Err(StreamError::IncompleteHandover(_))));
    let Port { opened, socket, _dir } = port;
    drop(opened);
    assert!(!socket.exists(), "what was adopted is removed");
}

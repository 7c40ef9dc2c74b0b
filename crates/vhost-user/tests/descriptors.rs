//! Thousands of hostile messages leave no descriptor open. The only test in its process, since it
//! counts the process's open files.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vhost_user::checked::CheckedDevice;
use vhost_user::socket::send_before;
use vhost_user::{
    Backend, BackendConfig, Closer, Features, Flags, Message, ProtocolFeatures, Receiver, Request,
    SocketError,
};

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A small pseudo-random generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A message of a real request, sometimes valid, with 0 to 8 descriptors.
fn hostile(random: &mut Random) -> (Message, usize) {
    let request = Request::ALL[random.below(Request::ALL.len() as u64) as usize];
    let words = match request {
        Request::SetMemTable => 1 + 4 * random.below(3),
        Request::AddMemReg | Request::RemMemReg | Request::SetVringAddr => 5,
        _ => random.below(8) / 3,
    };
    let mut payload = Vec::new();
    for word in 0..words {
        let small = match (request, word) {
            (Request::SetMemTable, 0) => (words - 1) / 4,
            _ => random.below(4) << (12 * random.below(2)),
        };
        let value = if random.below(20) == 0 { random.next() } else { small };
        payload.extend(value.to_ne_bytes());
    }
    let fds = match (request, random.below(3)) {
        (Request::SetMemTable, 0..2) => (words as usize - 1) / 4,
        (_, 0) => 1,
        _ => random.below(9) as usize,
    };
    let mut message = Message::request(request, &payload[..]);
    message.flags.set(Flags::NEED_REPLY, random.below(2) == 0);
    (message, fds)
}

/// Sends bytes as they are, with descriptors.
fn send_raw(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let slices = [IoSlice::new(bytes)];
    let sent = rustix::net::sendmsg(stream, &slices, &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, bytes.len());
}

/// Messages of one hostile front-end. The last one is never complete, and with `broken` not a
/// message at all, but its descriptors are sent.
fn send_session(peer: &UnixStream, random: &mut Random, fds: &[BorrowedFd<'_>], broken: bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let bits = ProtocolFeatures::SUPPORTED.bits();
    let open = Message::request(Request::SetProtocolFeatures, &bits);
    send_before(peer, &open, &[], deadline).unwrap();
    for _ in 0..60 {
        let (message, count) = hostile(random);
        let from = random.below(8) as usize;
        send_before(peer, &message, &fds[from..from + count], deadline).unwrap();
        if random.below(30) == 0 {
            break;
        }
    }
    let mut last = Message::request(Request::SetMemTable, &[0u8; 4000]).to_bytes();
    last.truncate(1 + random.below(300) as usize);
    if broken {
        last.splice(..8.min(last.len()), [0xff; 8]);
        last.resize(20, 0);
    }
    send_raw(peer, &last, &fds[..8]);
}

/// CVE-2019-14818 (DPDK): descriptors of rejected messages stayed open.
#[test]
fn message_descriptor_leak() {
    let config = BackendConfig {
        features: Features::VERSION_1.bits(),
        protocol_features: ProtocolFeatures::SUPPORTED,
        queue_pairs_max: 2,
        mem_slots_max: 8,
    };
    let mut backend = Backend::new(config).unwrap();
    let offered = Features::VERSION_1 | Features::PROTOCOL_FEATURES;
    let mut device = CheckedDevice::new(4, offered.bits());
    // Some are events, some are not.
    let files: Vec<OwnedFd> = (0..16)
        .map(|at| match at % 3 {
            0 => File::open("/dev/null").unwrap().into(),
            _ => eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        })
        .collect();
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut random = Random(4);
    let closer = Closer::default();
    let before = open_descriptors();
    let (mut errors, mut accepted_fds) = (0, 0);
    for session in 0..400 {
        let (peer, us) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::with(&closer);
        device.refusals = if session % 4 == 0 { random.next() } else { 0 };
        let broken = session % 3 == 0;
        send_session(&peer, &mut random, &fds, broken);
        let end = loop {
            let message = match receiver.poll(&us) {
                Ok(Some(message)) => message,
                end => break end,
            };
            let with_fds = !message.fds.is_empty();
            match backend.handle(message, &mut device) {
                Ok(_) => accepted_fds += u32::from(with_fds),
                // A daemon would close here; continuing tests more.
                Err(_) => errors += 1,
            }
        };
        assert_eq!(end.is_err(), broken, "{end:?}");
        // A partial message may keep its descriptors as long as its receiver lives; an error may
        // not.
        let kept = broken.then_some(receiver);
        backend.disconnect(&mut device);
        drop((peer, us));
        all_closed(&closer);
        assert_eq!(open_descriptors(), before, "session {session} left descriptors open");
        drop(kept);
    }
    assert!(errors > 5000 && accepted_fds > 200, "{errors} errors, {accepted_fds} accepted");

    let peer_sends = Message::request(Request::SetVringKick, &0u64).to_bytes();
    limit_is_reached(&peer_sends, &fds[..8], &closer);
    all_closed(&closer);
    assert_eq!(open_descriptors(), before);
}

/// Waits until the closer has closed all descriptors.
fn all_closed(closer: &Closer) {
    while closer.waiting() > 0 {
        std::thread::yield_now();
    }
}

/// At the limit of open files, the kernel drops descriptors; that must not pass for a message with
/// fewer of them.
fn limit_is_reached(bytes: &[u8], fds: &[BorrowedFd<'_>], closer: &Closer) {
    let (peer, us) = UnixStream::pair().unwrap();
    let limit = getrlimit(Resource::Nofile);
    let room_for_one = us.as_raw_fd().max(peer.as_raw_fd()) as u64 + 2;
    let low = Rlimit { current: Some(room_for_one), ..limit };
    setrlimit(Resource::Nofile, low).unwrap();
    send_raw(&peer, bytes, fds);
    let result = Receiver::with(closer).poll(&us);
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(matches!(result, Err(SocketError::FdsTruncated)), "{result:?}");
}

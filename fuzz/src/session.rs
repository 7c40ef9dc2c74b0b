//! Two front-ends with guests, at a daemon with lanes, sockets and all of its device: mapping,
//! records, logs, transfer of state, descriptors of any kind.
//!
//! One daemon serves all inputs. The guest at `vf0` sends, and the one at `vf1` receives. The lane
//! runs beside this thread, so an input need not always reach the same code.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use model::config::Config;
use port::virtio_net::HEADER_LEN;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::retry_on_intr;
use rustix::pipe::pipe;
use vhost_user::payload::{RegionPayload, TableHeader, VringAddr, VringState};
use vhost_user::{Features, Flags, Message, ProtocolFeatures, Request};
use virtq::{Addresses, Content};
use zerocopy::IntoBytes;

use crate::Reached;
use crate::guest::{BASE, Guest, REGION, USER};
use crate::input::Input;
use crate::messages::{event, message};

/// Time within which the daemon answers, also after it banned a front-end for 5 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// A daemon for all inputs.
fn daemon() -> &'static Mutex<tempfile::TempDir> {
    static DAEMON: OnceLock<Mutex<tempfile::TempDir>> = OnceLock::new();
    DAEMON.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let vf = |n: u8| {
            format!(
                "[[nic.vf]]\nmac = \"02:00:00:00:00:0{n}\"\nspoof_check = false\ntrust = true\n\
                 promiscuous = true\nattachment = {{ socket = \"vf{n}\", in_order = true }}\n"
            )
        };
        let text = format!(
            "run_dir = \"{}\"\n[lanes]\npoll_us = 20\nyield_us = 20\n\
             [[nic]]\nname = \"n\"\nkind = \"soft\"\n{}{}",
            dir.path().display(),
            vf(0),
            vf(1)
        );
        let config = Config::parse("fuzz.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let (daemon, stop) = daemon::Daemon::start(&config).expect("a daemon");
        std::thread::spawn(move || {
            daemon.serve().expect("a daemon serves until it is stopped");
            drop(stop);
        });
        Mutex::new(dir)
    })
}

/// Connects to a socket of the daemon, and waits until it serves this front-end: the one before may
/// still be leaving.
fn connect(path: &Path) -> UnixStream {
    let end = Instant::now() + PATIENCE;
    loop {
        let stream = UnixStream::connect(path).expect("the daemon listens");
        stream.set_nonblocking(true).expect("a socket");
        if is_answered(&stream) {
            return stream;
        }
        assert!(Instant::now() < end, "the daemon serves no new front-end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks for the features and waits for any answer; `false` if the daemon ended the session.
fn is_answered(stream: &UnixStream) -> bool {
    let question = Message::request(Request::GetFeatures, &());
    vhost_user::socket::send(stream, &question).is_ok() && wait(stream) && drain(stream)
}

/// Waits until the daemon has sent something, or closed.
fn wait(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let time = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    // libFuzzer's alarm interrupts it.
    let ready = retry_on_intr(|| poll(&mut fds, Some(&time)));
    assert!(ready.is_ok_and(|ready| ready > 0), "the daemon hangs");
    true
}

/// Reads all that is there; `false` at the end of the stream.
fn drain(mut stream: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A front-end and its guest, with one ring.
struct Frontend {
    stream: UnixStream,
    guest: Guest,
    ring: u32,
    kick: OwnedFd,
    /// File of the last log or records.
    shared: OwnedFd,
    is_open: bool,
}

impl Frontend {
    fn new(input: &mut Input<'_>, dir: &Path, ring: u32) -> Frontend {
        let (name, content) = match ring {
            0 => ("vf1", Content::Writable),
            _ => ("vf0", Content::Readable { header: HEADER_LEN, keep: true }),
        };
        let guest = Guest::new(input, content);
        let (stream, kick, shared) = (connect(&dir.join(name)), event(), event());
        Frontend { stream, guest, ring, kick, shared, is_open: true }
    }

    fn send(&mut self, message: &Message) {
        // Fails once the daemon has ended the session.
        self.is_open &= vhost_user::socket::send(&self.stream, message).is_ok();
    }

    fn request(&mut self, request: Request, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let fds = fds.iter().map(|fd| fd.try_clone_to_owned().expect("a descriptor").into());
        let message = Message {
            request: request.code(),
            flags: Flags::empty(),
            payload: payload.to_vec(),
            fds: fds.collect(),
        };
        self.send(&message);
    }

    /// Starts the ring, as QEMU does.
    fn set_up(&mut self, input: &mut Input<'_>) {
        let index = self.ring;
        let mut features = Features::VERSION_1 | Features::PROTOCOL_FEATURES | Features::MRG_RXBUF;
        for (has, bit) in [
            (virtq::Features::INDIRECT, Features::INDIRECT_DESC),
            (virtq::Features::EVENT_IDX, Features::EVENT_IDX),
            (virtq::Features::IN_ORDER, Features::IN_ORDER),
            (virtq::Features::PACKED, Features::RING_PACKED),
        ] {
            features.set(bit, self.guest.features.contains(has));
        }
        features.set(Features::LOG_ALL, input.flag());
        self.request(Request::SetFeatures, features.bits().as_bytes(), &[]);
        let protocol = ProtocolFeatures::SUPPORTED.bits();
        self.request(Request::SetProtocolFeatures, protocol.as_bytes(), &[]);
        let count = self.guest.files.len() as u32;
        let mut table = TableHeader { count, padding: 0 }.as_bytes().to_vec();
        for i in 0..u64::from(count) {
            let guest_addr = BASE + i * REGION;
            let (user_addr, mmap_offset) = (guest_addr + USER, 0);
            let region = RegionPayload { guest_addr, size: REGION, user_addr, mmap_offset };
            table.extend_from_slice(region.as_bytes());
        }
        let files = self.guest.files.iter();
        let files: Vec<OwnedFd> =
            files.map(|file| file.fd().try_clone_to_owned().expect("a descriptor")).collect();
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        self.request(Request::SetMemTable, &table, &files);
        let num = self.guest.size.into();
        self.request(Request::SetVringNum, VringState { index, num }.as_bytes(), &[]);
        let Addresses { desc, avail, used } = self.guest.addresses;
        let flags = u32::from(input.byte() & 7 == 7);
        let address = VringAddr { index, flags, desc, used, avail, log: used - USER };
        self.request(Request::SetVringAddr, address.as_bytes(), &[]);
        let num = self.guest.base();
        self.request(Request::SetVringBase, VringState { index, num }.as_bytes(), &[]);
        let call = event();
        let number = u64::from(index);
        self.request(Request::SetVringCall, number.as_bytes(), &[call.as_fd()]);
        let kick = self.kick.try_clone().expect("a descriptor");
        self.request(Request::SetVringKick, number.as_bytes(), &[kick.as_fd()]);
        self.request(Request::SetVringEnable, VringState { index, num: 1 }.as_bytes(), &[]);
    }

    /// A descriptor for a request: mostly of the right kind.
    fn descriptor(&mut self, request: Request, input: &mut Input<'_>) -> OwnedFd {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
        match input.byte() {
            0xf8 => return File::open("/dev/null").expect("/dev/null").into(),
            0xf9 => return UnixStream::pair().expect("a socket pair").0.into(),
            0xfa => return pipe().expect("a pipe").0,
            0xfb => return event(),
            0xfc => return memory_file(u64::from(input.u16())),
            0xfd => return copy(self.shared.as_fd()),
            0xfe => return copy(self.guest.files[0].fd()),
            0xff => return copy(self.stream.as_fd()),
            _ => {}
        }
        match request {
            Request::SetMemTable | Request::AddMemReg => copy(self.guest.files[0].fd()),
            Request::SetLogBase => {
                self.shared = memory_file(u64::from(input.u16()));
                copy(self.shared.as_fd())
            }
            Request::SetInflightFd => {
                self.shared = records(input);
                copy(self.shared.as_fd())
            }
            Request::SetDeviceStateFd => {
                let (reader, writer) = pipe().expect("a pipe");
                let state = match input.byte() & 3 {
                    0 => input.bytes(64).to_vec(),
                    1 => br#"{"version":1,"mac":"02:00:00:00:00:01","mtu":1500}"#.to_vec(),
                    _ => br#"{"version":1,"mac":null,"mtu":1400}"#.to_vec(),
                };
                File::from(writer).write_all(&state).expect("an empty pipe");
                reader
            }
            Request::SetBackendReqFd => UnixStream::pair().expect("a socket pair").0.into(),
            _ => event(),
        }
    }

    /// One act of the front-end or of its guest.
    fn act(&mut self, input: &mut Input<'_>, reached: &mut Reached) {
        match input.below(16) {
            0 => self.set_up(input),
            1..=4 => {
                let message = message(input, |request, input| self.descriptor(request, input));
                self.send(&message);
                reached.add("messages", 1);
            }
            5 => {
                // A file that the daemon may have mapped shrinks, or grows again.
                let bytes = u64::from(input.byte()) << 8;
                let file = match input.flag() {
                    true => self.guest.files[1].fd(),
                    false => self.shared.as_fd(),
                };
                let _ = ftruncate(file, bytes); // an eventfd has no length
            }
            6..=13 => self.guest.act(input),
            _ => {
                let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
                self.is_open = self.is_open && is_answered(&self.stream);
            }
        }
        self.is_open = self.is_open && drain(&self.stream);
    }

    /// Leaves, and waits until the daemon has closed the session.
    fn leave(self, reached: &mut Reached) {
        reached.add("ended by the daemon", u64::from(!self.is_open));
        let _ = self.stream.shutdown(Shutdown::Write);
        while drain(&self.stream) && wait(&self.stream) {}
    }
}

fn memory_file(bytes: u64) -> OwnedFd {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, bytes).expect("a little memory");
    file
}

/// In-flight records as the daemon creates them, for two rings of 256 entries; then any bytes.
fn records(input: &mut Input<'_>) -> OwnedFd {
    let file = memory_file(1 << 16);
    let (ring_size, rings) = (256u32.to_le_bytes(), 2u32.to_le_bytes());
    let mut bytes = [&b"shuntinf"[..], &ring_size, &rings, &[0; 48]].concat();
    bytes.extend_from_slice(input.bytes(64));
    let mut file = File::from(file);
    file.write_all(&bytes).expect("a little memory");
    file.into()
}

/// `data` is the acts of two front-ends and their guests.
pub(crate) fn session(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let dir = daemon().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut sides = [1, 0].map(|ring| Frontend::new(&mut input, dir.path(), ring));
    let used = |side: &Frontend| side.guest.used_by_device();
    let before = [used(&sides[0]), used(&sides[1])];
    sides.iter_mut().for_each(|side| side.set_up(&mut input));
    while !input.is_empty() {
        let side = usize::from(input.flag());
        sides[side].act(&mut input, &mut reached);
    }
    for (side, place) in sides.iter_mut().zip(["frames sent", "frames received"]) {
        side.is_open = side.is_open && is_answered(&side.stream);
        let i = usize::from(side.ring == 0);
        let is_used = !side.guest.is_packed() && used(side) != before[i];
        reached.add(place, u64::from(is_used));
    }
    sides.into_iter().for_each(|side| side.leave(&mut reached));
    reached
}

//! A capture's file holds the delivered frames.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use tempfile::TempDir;

use super::contents::{edited, takes_tagged};
use super::guests::{Layout, Sender, frame, tagged_frame};
use super::lent::Lent;
use super::offload::{GSO, MSS, left, payload_of, tcp};
use crate::capture::{Capture, CaptureError, CaptureLimits};
use crate::virtio_net::HEADER_LEN;
use crate::{BURST, Delivered, OffloadSet, Receive, VlanEdit};

const NAME: &str = "web/eth0";
const FRAME_MAX: u32 = 9018;
/// Number of frames of which a ring holds all pieces at once, whatever their layout.
const FEW: usize = BURST / 2;

/// Less memory than by default, which takes a while to touch.
const LIMITS: CaptureLimits =
    CaptureLimits { snap_len: 262_144, buffer_bytes: 1 << 20, file_bytes_max: 1 << 30 };

/// A frame as it is in a file.
#[derive(Debug, PartialEq, Eq)]
struct Captured {
    bytes: Vec<u8>,
    len: u32,
    missed: u64,
}

fn whole(bytes: Vec<u8>) -> Captured {
    Captured { len: bytes.len() as u32, bytes, missed: 0 }
}

/// The frames of a file with one interface, and their times.
fn read(path: &Path, snap_len: u32) -> (Vec<Captured>, Vec<Duration>) {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let (mut frames, mut times) = (Vec::new(), Vec::new());
    let mut interfaces = 0;
    while let Some(block) = reader.next_block() {
        match block.unwrap().0 {
            Block::InterfaceDescription(interface) => {
                interfaces += 1;
                assert_eq!((interface.linktype, interface.snaplen), (DataLink::ETHERNET, snap_len));
                let name = InterfaceDescriptionOption::IfName(NAME.into());
                assert!(interface.options.contains(&name), "{interface:?}");
            }
            Block::EnhancedPacket(packet) => {
                let missed = packet.options.iter().map(|option| match option {
                    EnhancedPacketOption::DropCount(missed) => *missed,
                    other => panic!("{other:?}"),
                });
                let missed = missed.sum();
                times.push(packet.timestamp);
                let bytes = packet.data.to_vec();
                frames.push(Captured { bytes, len: packet.original_len, missed });
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(interfaces, 1);
    (frames, times)
}

/// A guest that sends, and a capture of it.
struct Bench {
    dir: TempDir,
    from: Sender,
    capture: Capture,
    half: Lent<Box<dyn Receive>>,
    limits: CaptureLimits,
}

impl Bench {
    fn new(limits: CaptureLimits) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (capture, half) = Capture::create(&dir.path().join("m.pcapng"), NAME, limits).unwrap();
        let (from, half) = (Sender::new(HEADER_LEN, FRAME_MAX), Lent::new(half));
        Bench { dir, from, capture, half, limits }
    }

    /// Sends frames and delivers them, without publishing.
    fn deliver(&mut self, frames: &[Vec<u8>], layout: &Layout, edit: VlanEdit) -> Delivered {
        for frame in frames {
            self.from.send(frame, layout);
        }
        self.from.ring.poll();
        let indices: Vec<u8> = (0..frames.len() as u8).collect();
        let delivered = self.half.deliver(&self.from.ring.burst(), &indices, edit);
        self.from.ring.complete();
        self.from.reap();
        self.from.rewind();
        delivered
    }

    /// Waits until so many frames are in the file.
    fn wait(&self, written: u64) {
        let mut patience = 60_000;
        while self.capture.counts().written < written {
            assert!(self.capture.error().is_none(), "{:?}", self.capture.error());
            std::thread::sleep(Duration::from_millis(1));
            patience -= 1;
            assert!(patience > 0, "{:?}", self.capture.counts());
        }
    }

    fn read(&self) -> (Vec<Captured>, Vec<Duration>) {
        read(&self.dir.path().join("m.pcapng"), self.limits.snap_len)
    }

    /// Another capture continues with the file and the buffer of this one.
    fn go_on(self) -> Bench {
        let Bench { dir, from, mut capture, half, limits } = self;
        drop(half);
        capture.finish();
        let (file, bytes) = capture.file();
        let buffer = capture.into_buffer().expect("nothing else holds it");
        let (path, file) = (dir.path().join("m.pcapng"), (file.try_clone().unwrap(), bytes));
        let (capture, half) = Capture::resume(&path, file, NAME, limits, buffer).unwrap();
        Bench { dir, from, capture, half: Lent::new(half), limits }
    }

    /// Ends the capture; returns the frames in the file.
    fn end(self) -> Vec<Captured> {
        let Bench { dir, capture, half, limits, .. } = self;
        drop(half);
        drop(capture);
        read(&dir.path().join("m.pcapng"), limits.snap_len).0
    }
}

const EDITS: [VlanEdit; 4] = [
    VlanEdit::None,
    VlanEdit::Pop,
    VlanEdit::Push([0x81, 0, 0x20, 7]),
    VlanEdit::Retag([0x88, 0xa8, 0x0f, 0xfe]),
];

#[test]
fn a_file_has_every_byte_of_every_frame() {
    let mut bench = Bench::new(LIMITS);
    let mut expected = Vec::new();
    let sizes: Vec<usize> = (18..300).chain((300..9000).step_by(311)).collect();
    for layout in [Layout::chain(&[]), Layout::chain(&[12, 9, 30, 3])] {
        for edit in EDITS {
            for sizes in sizes.chunks(FEW) {
                let make = if takes_tagged(edit) { tagged_frame } else { frame };
                let frames: Vec<_> = sizes.iter().map(|&len| make(len, len)).collect();
                let delivered = bench.deliver(&frames, &layout, edit);
                let arrive: Vec<_> = frames.iter().map(|frame| edited(frame, edit)).collect();
                let bytes = arrive.iter().map(|frame| frame.len() as u64).sum();
                let frames = frames.len() as u32;
                assert_eq!(delivered, Delivered { frames, bytes, ..Delivered::default() });
                assert!(!bench.half.publish(), "no notification");
                expected.extend(arrive.into_iter().map(whole));
                bench.wait(expected.len() as u64); // the ring is smaller than all of this
            }
        }
    }
    let (while_it_runs, times) = bench.read();
    assert_eq!(while_it_runs, expected);
    assert!(times.iter().all(|time| *time > Duration::ZERO));
    assert!(times[..FEW].iter().all(|time| *time == times[0]), "of one delivery");
    assert_eq!(bench.capture.counts().lost, 0);
    assert_eq!(bench.end(), expected);
}

#[test]
fn a_frame_is_cut_to_the_snap_length() {
    for snap_len in [16, 17, 60, 128, 200] {
        let mut bench = Bench::new(CaptureLimits { snap_len, ..LIMITS });
        let frames: Vec<_> = (14..64).map(|n| frame(n, n * 5)).collect();
        let push = VlanEdit::Push([0x81, 0, 0, 9]);
        let delivered = bench.deliver(&frames, &Layout::chain(&[30]), push);
        let arrive: Vec<_> = frames.iter().map(|frame| edited(frame, push)).collect();
        assert_eq!(delivered.bytes, arrive.iter().map(|frame| frame.len() as u64).sum::<u64>());
        bench.half.publish();
        let cut = arrive.into_iter().map(whole).map(|mut captured| {
            captured.bytes.truncate(snap_len as usize);
            captured
        });
        assert_eq!(bench.end(), cut.collect::<Vec<_>>());
    }
}

#[test]
fn what_was_judged_is_what_is_captured() {
    let mut bench = Bench::new(LIMITS);
    let honest = tagged_frame(1, 400);
    let at = bench.from.send(&honest, &Layout::chain(&[]));
    bench.from.ring.poll();
    bench.from.ring.snapshot_headers();
    bench.from.write(at, &[0x66; 400]);
    for edit in EDITS {
        bench.half.deliver(&bench.from.ring.burst(), &[0], edit);
    }
    bench.half.publish();
    let expected = [&honest[..128], &[0x66; 272]].concat();
    assert_eq!(bench.end(), EDITS.map(|edit| whole(edited(&expected, edit))));
}

#[test]
fn frames_that_a_full_buffer_has_no_room_for_are_counted() {
    let limits = CaptureLimits { snap_len: 1514, buffer_bytes: 64 << 10, ..LIMITS };
    let mut bench = Bench::new(limits);
    let frames: Vec<_> = (0..BURST).map(|n| frame(n, 1500)).collect();
    // Nothing is published, so the writer sees nothing and the ring fills.
    let delivered = bench.deliver(&frames, &Layout::chain(&[]), VlanEdit::None);
    let fit = (64 << 10) / (1500 + 24);
    assert_eq!((delivered.frames, delivered.no_buffer), (fit, BURST as u32 - fit));
    assert_eq!(delivered.bytes, u64::from(fit) * 1500);
    bench.half.publish();
    bench.wait(fit.into());
    bench.deliver(&frames[..2], &Layout::chain(&[]), VlanEdit::None);
    bench.half.publish();
    let mut expected: Vec<_> = frames[..fit as usize].iter().cloned().map(whole).collect();
    expected.push(Captured { missed: (BURST as u32 - fit).into(), ..whole(frames[0].clone()) });
    expected.push(whole(frames[1].clone()));
    assert_eq!(bench.end(), expected);
}

#[test]
fn whoever_ends_a_capture_its_frames_are_in_the_file() {
    let frames: Vec<_> = (0..BURST).map(|n| frame(n, 60 + n)).collect();
    let expected: Vec<_> = frames.iter().cloned().map(whole).collect();
    for handle_first in [false, true] {
        let mut bench = Bench::new(LIMITS);
        bench.deliver(&frames, &Layout::chain(&[]), VlanEdit::None);
        bench.half.publish();
        if handle_first {
            bench.capture.finish();
            assert_eq!(bench.capture.counts().written, BURST as u64);
            assert_eq!(bench.read().0, expected);
            let late = bench.deliver(&frames[..3], &Layout::chain(&[]), VlanEdit::None);
            assert_eq!(late, Delivered { no_buffer: 3, ..Delivered::default() });
            bench.half.publish();
        }
        assert_eq!(bench.end(), expected);
    }
}

#[test]
fn only_a_regular_file_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let create = |path: &Path| Capture::create(path, NAME, LIMITS);
    fs::write(at("precious"), "of others").unwrap();
    symlink(at("precious"), at("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RWXU).unwrap();
    for path in [at("link"), at("fifo"), at(""), "/dev/null".into(), "/dev/full".into()] {
        let error = create(&path).err().expect("refused");
        assert!(matches!(error, CaptureError::NotAFile { .. }), "{error:?}");
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
    assert_eq!(fs::read_to_string(at("precious")).unwrap(), "of others");
    // Files that are not captures stay unchanged, however short.
    for other in ["of others", "no"] {
        fs::write(at("precious"), other).unwrap();
        let error = create(&at("precious")).err().expect("refused");
        assert!(matches!(error, CaptureError::NotACapture { .. }), "{error:?}");
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), other);
    }
    let error = create(&at("no/such/directory")).err().expect("refused");
    assert!(matches!(error, CaptureError::Open { .. }), "{error:?}");

    // An existing capture is overwritten, unless another one writes to it.
    fs::write(at("old"), [&[0x0a, 0x0d, 0x0d, 0x0a][..], &[7; 100_000]].concat()).unwrap();
    let first = create(&at("old")).unwrap();
    let error = create(&at("old")).err().expect("refused");
    assert!(matches!(error, CaptureError::Busy { .. }), "{error:?}");
    drop(first);
    assert_eq!(read(&at("old"), 262_144).0, []);
    drop(create(&at("old")).unwrap());
    drop(create(&at("new")).unwrap());
    let mode = fs::metadata(at("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "only the owner reads guests' frames");
}

#[test]
fn limits_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.pcapng");
    let good = CaptureLimits::default();
    assert!(Capture::create(&dir.path().join("by default"), NAME, good).is_ok());
    for (limits, name, expected) in [
        (CaptureLimits { snap_len: 15, ..good }, NAME, "snap_len: 15 "),
        (CaptureLimits { snap_len: 262_145, ..good }, NAME, "snap_len: 262145 "),
        (
            CaptureLimits { buffer_bytes: 65_535, snap_len: 16, ..good },
            NAME,
            "buffer_bytes: 65535 ",
        ),
        (CaptureLimits { buffer_bytes: 262_144, ..good }, NAME, "buffer_bytes: 262144 "),
        (CaptureLimits { buffer_bytes: u32::MAX, ..good }, NAME, "buffer_bytes: 4294967295 "),
        (CaptureLimits { file_bytes_max: 0, ..good }, NAME, "file_bytes_max: 0 "),
        (good, "", "bytes of the interface's name: 0 "),
        (good, &"x".repeat(256), "bytes of the interface's name: 256 "),
    ] {
        let error = Capture::create(&path, name, limits).err().expect("refused").to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!path.exists(), "nothing is made");
    }
}

#[test]
fn a_capture_whose_file_is_full_is_over() {
    let mut bench = Bench::new(CaptureLimits { file_bytes_max: 8192, ..LIMITS });
    let frames: Vec<_> = (0..20).map(|n| frame(n, 1000)).collect();
    bench.deliver(&frames, &Layout::chain(&[]), VlanEdit::None);
    bench.half.publish();
    bench.capture.finish();
    let counts = bench.capture.counts();
    assert_eq!((counts.written, counts.lost), (7, 13));
    assert!(counts.file_bytes <= 8192);
    assert!(matches!(bench.capture.error(), Some(CaptureError::Full { bytes: 8192, .. })));
    let expected: Vec<_> = frames[..7].iter().cloned().map(whole).collect();
    assert_eq!(bench.end(), expected);
}

#[test]
fn what_was_left_to_do_is_done_before_it_is_written() {
    let mut bench = Bench::new(CaptureLimits::default());
    bench.from = Sender::leaving(OffloadSet::all(), FRAME_MAX);
    let (large, payload) = tcp(30_500);
    bench.from.send_with(left(GSO, MSS as u16), &large, &Layout::chain(&[]));
    bench.from.ring.poll();
    let delivered = bench.half.deliver(&bench.from.ring.burst(), &[0], VlanEdit::None);
    assert_eq!((delivered.frames, delivered.no_buffer), (31, 0));
    bench.half.publish();
    bench.wait(31);
    let frames: Vec<_> = bench.end().into_iter().map(|captured| captured.bytes).collect();
    assert_eq!(payload_of(&frames), payload);
}

#[test]
fn captures_follow_one_another_in_one_buffer() {
    let mut bench = Bench::new(LIMITS);
    let mut expected = Vec::new();
    for turn in 1..5 {
        let frames: Vec<_> = (0..FEW).map(|i| frame(turn * FEW + i, 60 + i)).collect();
        bench.deliver(&frames, &Layout::chain(&[]), VlanEdit::None);
        bench.half.publish();
        expected.extend(frames.into_iter().map(whole));
        bench = bench.go_on();
    }
    assert_eq!(bench.end(), expected);
}

#[test]
fn what_comes_while_a_capture_is_paused_is_in_the_file() {
    let mut bench = Bench::new(LIMITS);
    let frames: Vec<_> = (0..4 * FEW).map(|i| frame(i, 60 + i)).collect();
    for (turn, frames) in frames.chunks(FEW).enumerate() {
        if turn == 2 {
            bench.capture.pause();
            assert_eq!(bench.read().0.len(), 2 * FEW, "what came before is written");
        }
        bench.deliver(frames, &Layout::chain(&[]), VlanEdit::None);
        bench.half.publish();
    }
    assert_eq!(bench.capture.counts().written, 2 * FEW as u64, "no thread writes any more");
    let expected: Vec<_> = frames.into_iter().map(whole).collect();
    assert_eq!(bench.end(), expected);
}

#[test]
fn a_buffer_that_a_lane_still_holds_is_no_others() {
    let Bench { mut capture, half, dir: _dir, .. } = Bench::new(LIMITS);
    capture.finish();
    assert!(capture.into_buffer().is_none());
    drop(half);
}

//! Tests of the ring's two ends, and of what a disk may do to a capture.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::ring::{CaptureBuffer, Consumer, Producer, Record};
use super::writer::{CaptureDisk, CaptureWriter};
use super::{CaptureCounts, CaptureError, CaptureLimits, CaptureState};
use crate::deliver;

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 7 + i) as u8).collect()
}

/// Reads the next frame, after an update.
fn next(consumer: &mut Consumer, bytes: &mut Vec<u8>) -> Option<Record> {
    consumer.refresh();
    consumer.next(bytes)
}

/// Puts a frame into the ring, as a lane does.
fn put(producer: &mut Producer, bytes: &[u8], missed: u64) -> bool {
    let len = bytes.len() as u32;
    let record = Record { time_ns: u64::from(len) << 32, captured: len, len: len + 1, missed };
    let Some(room) = producer.claim(Record::LEN + len) else {
        return false;
    };
    let mut writer = deliver::SliceWriter::new(room);
    writer.write(&record.to_bytes());
    writer.write(bytes);
    true
}

/// A ring of `size` bytes.
fn ring(size: u32) -> (Producer, Consumer) {
    let limits = CaptureLimits { buffer_bytes: size, ..CaptureLimits::default() };
    let (producer, consumer, _) = CaptureBuffer::new(limits).unwrap().begin();
    (producer, consumer)
}

#[test]
fn a_ring_hands_on_what_was_published_and_no_more() {
    let (mut producer, mut consumer) = ring(64 << 10);
    let mut bytes = Vec::new();
    let mut waiting = VecDeque::new();
    for number in 0..5000 {
        // Sizes that make records run over the ring's end at every place.
        let sent = frame(number, number * 37 % 1600);
        assert!(put(&mut producer, &sent, number as u64));
        if number % 3 != 0 {
            assert!(next(&mut consumer, &mut bytes).is_none(), "not published");
            waiting.push_back((number, sent));
            continue;
        }
        producer.publish();
        waiting.push_back((number, sent));
        assert!(consumer.next(&mut bytes).is_none(), "not looked at");
        consumer.refresh();
        for (number, sent) in waiting.drain(..) {
            let record = consumer.next(&mut bytes).expect("published");
            assert_eq!(bytes, sent);
            assert_eq!((record.captured, record.len), (sent.len() as u32, sent.len() as u32 + 1));
            assert_eq!((record.time_ns, record.missed), ((sent.len() as u64) << 32, number as u64));
        }
        assert!(next(&mut consumer, &mut bytes).is_none());
    }
}

#[test]
fn a_full_ring_takes_nothing_until_there_is_room() {
    const LEN: usize = 1001;
    let (mut producer, mut consumer) = ring(64 << 10);
    let each = LEN as u32 + Record::LEN;
    let fit = (64 << 10) / each;
    for number in 0..fit {
        assert!(put(&mut producer, &frame(number as usize, LEN), 0));
    }
    let rest = ((64 << 10) - fit * each - Record::LEN) as usize;
    assert!(!put(&mut producer, &frame(0, rest + 1), 0));
    assert!(put(&mut producer, &frame(0, rest), 0), "to the last byte");
    assert!(!put(&mut producer, &[], 0));
    producer.publish();
    let mut bytes = Vec::new();
    assert!(next(&mut consumer, &mut bytes).is_some());
    assert!(!put(&mut producer, &frame(1, LEN + 1), 0));
    assert!(put(&mut producer, &frame(1, LEN), 0));
}

#[test]
fn two_threads_may_hold_the_ends() {
    let (mut producer, mut consumer) = ring(64 << 10);
    let count = 20_000;
    let sender = std::thread::spawn(move || {
        for number in 0..count {
            while !put(&mut producer, &frame(number, number % 1500), 0) {
                producer.publish();
                std::thread::yield_now();
            }
            if number % 5 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut bytes = Vec::new();
    for number in 0..count {
        while next(&mut consumer, &mut bytes).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(bytes, frame(number, number % 1500));
    }
    sender.join().unwrap();
}

/// A disk that fails when it is told to.
#[derive(Clone, Default)]
struct Moody(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// Bytes that there is still room for, if they are counted.
    room: Option<usize>,
    cannot_cut: bool,
    /// Writes asked for.
    asked: u32,
}

impl Moody {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    /// The frames in the file, and how many are missing before each.
    fn frames(&self) -> Vec<(Vec<u8>, u64)> {
        let bytes = self.with(|state| state.bytes.clone());
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut frames = Vec::new();
        while let Some(block) = reader.next_block() {
            if let (Block::EnhancedPacket(packet), _) = block.expect("only whole blocks") {
                let missed = packet.options.iter().map(|option| match option {
                    EnhancedPacketOption::DropCount(missed) => *missed,
                    other => panic!("{other:?}"),
                });
                frames.push((packet.data.to_vec(), missed.sum()));
            }
        }
        frames
    }
}

impl CaptureDisk for Moody {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.with(|state| {
            state.asked += 1;
            let at = at as usize;
            let n = state.room.map_or(bytes.len(), |room| room.min(bytes.len()));
            state.bytes.resize(state.bytes.len().max(at + n), 0);
            state.bytes[at..at + n].copy_from_slice(&bytes[..n]);
            if n == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        })
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            if state.cannot_cut {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            state.bytes.truncate(len as usize);
            Ok(())
        })
    }
}

struct Bench {
    disk: Moody,
    producer: Producer,
    writer: CaptureWriter<Moody>,
    shared: Arc<CaptureState>,
    now: Instant,
}

impl Bench {
    fn new(limits: CaptureLimits) -> Bench {
        let (producer, consumer) = ring(1 << 20);
        let shared = Arc::new(CaptureState::new(PathBuf::from("mirror.pcapng")));
        let disk = Moody::default();
        let writer =
            CaptureWriter::begin(disk.clone(), consumer, shared.clone(), limits, ("web/eth0", 0))
                .unwrap();
        Bench { disk, producer, writer, shared, now: Instant::now() }
    }

    /// Puts in one frame and lets the writer look, so many milliseconds after the start.
    fn send(&mut self, bytes: &[u8], at_ms: u64) -> CaptureCounts {
        assert!(put(&mut self.producer, bytes, 0));
        self.producer.publish();
        assert!(self.writer.drain(self.now + Duration::from_millis(at_ms)));
        self.shared.counts()
    }
}

#[test]
fn a_file_is_whole_after_every_look() {
    let mut bench = Bench::new(CaptureLimits::default());
    assert!(bench.disk.frames().is_empty());
    let mut sent = Vec::new();
    for number in 0..100 {
        sent.push((frame(number, 14 + 17 * number), 0));
        let counts = bench.send(&sent[number].0, 0);
        assert_eq!((counts.written, counts.lost), (number as u64 + 1, 0));
        assert_eq!(counts.file_bytes, bench.disk.with(|state| state.bytes.len() as u64));
        assert_eq!(bench.disk.frames(), sent);
    }
    assert!(!bench.writer.drain(bench.now), "nothing more");
}

#[test]
fn a_full_disk_loses_frames_but_no_blocks() {
    let mut bench = Bench::new(CaptureLimits::default());
    bench.send(&frame(0, 100), 0);
    bench.disk.with(|state| state.room = Some(50)); // a part of the block
    bench.send(&frame(1, 100), 1);
    let error = bench.shared.error.get().expect("reported");
    assert!(matches!(error, CaptureError::Write { .. }), "{error}");
    assert_eq!(bench.disk.frames(), [(frame(0, 100), 0)], "what was written in part is cut off");

    let asked = bench.disk.with(|state| state.asked);
    bench.send(&frame(2, 100), 500);
    assert_eq!(bench.disk.with(|state| state.asked), asked, "not asked again within a second");
    bench.send(&frame(3, 100), 1001);
    assert_eq!(bench.disk.with(|state| state.asked), asked + 1, "then it is");

    bench.disk.with(|state| state.room = None);
    let counts = bench.send(&frame(4, 100), 2001);
    assert_eq!((counts.written, counts.lost), (2, 3));
    assert_eq!(bench.disk.frames(), [(frame(0, 100), 0), (frame(4, 100), 3)]);
    bench.send(&frame(5, 100), 2002);
    assert_eq!(bench.disk.frames()[2], (frame(5, 100), 0));
}

#[test]
fn what_could_not_be_cut_off_is_cut_off_before_the_next_block() {
    let mut bench = Bench::new(CaptureLimits::default());
    bench.disk.with(|state| (state.room, state.cannot_cut) = (Some(900), true));
    bench.send(&frame(1, 1000), 0);
    bench.disk.with(|state| state.room = None);
    let counts = bench.send(&frame(2, 60), 1000);
    assert_eq!((counts.written, counts.lost), (0, 2), "the rest of the torn block would show");
    bench.disk.with(|state| state.cannot_cut = false);
    bench.send(&frame(3, 60), 2000);
    assert_eq!(bench.disk.frames(), [(frame(3, 60), 2)]);
}

#[test]
fn frames_that_the_lane_missed_are_told_once() {
    let mut bench = Bench::new(CaptureLimits::default());
    assert!(put(&mut bench.producer, &frame(0, 60), 7));
    bench.disk.with(|state| state.room = Some(0));
    bench.send(&frame(1, 60), 0);
    bench.disk.with(|state| state.room = None);
    bench.send(&frame(2, 60), 1000);
    assert_eq!(bench.disk.frames(), [(frame(2, 60), 9)], "seven by the lane, two by the disk");
    bench.send(&frame(3, 60), 1000);
    assert_eq!(bench.disk.frames()[1].1, 0);
}

#[test]
fn a_file_does_not_outgrow_its_limit() {
    let mut bench = Bench::new(CaptureLimits { file_bytes_max: 4096, ..CaptureLimits::default() });
    let mut number = 0;
    let before = loop {
        let before = bench.shared.counts();
        number += 1;
        if bench.send(&frame(number, 300), 0).lost > 0 {
            break before;
        }
    };
    assert!(before.file_bytes > 4096 - 340 && before.file_bytes <= 4096, "{before:?}");
    assert!(matches!(bench.shared.error.get(), Some(CaptureError::Full { bytes: 4096, .. })));
    assert!(bench.shared.closed.load(std::sync::atomic::Ordering::Relaxed));
    let after = bench.send(&frame(0, 14), 5000);
    assert_eq!(after, CaptureCounts { lost: 2, ..before }, "nor do small frames slip in");
    assert_eq!(bench.disk.frames().len() as u64, before.written);
}

//! Captures: what they record of bursts, and how they begin and end. The property tests of traces
//! compare a capture with what happens to random frames.

use bridge::PortId;
use port::capture::filter::Filter;
use port::capture::live::{Direction, LiveFrame, LiveParser};

use super::kit::*;
use crate::capture::{CaptureSpec, CaptureStream};

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

/// A capture with its client.
pub(super) struct Capture {
    stream: CaptureStream,
    parser: LiveParser,
    lost: u64,
}

/// All frames of these ports; of all if there are none.
pub(super) fn all_of(ports: &[&str]) -> CaptureSpec {
    let ports = ports.iter().map(|port| (*port).to_owned()).collect();
    CaptureSpec { ports, dropped: false, direction: None, filter: None, snap_len: 4096 }
}

impl Capture {
    pub(super) fn of(bench: &Bench, spec: CaptureSpec) -> Capture {
        let stream = CaptureStream::begin(bench.fabric.nics().to_vec(), spec).unwrap();
        Capture { stream, parser: LiveParser::default(), lost: 0 }
    }

    /// Frames recorded since the last call.
    pub(super) fn frames(&mut self) -> Vec<LiveFrame> {
        while let Some(bytes) = self.stream.next_bytes().filter(|bytes| !bytes.is_empty()) {
            self.parser.add(&bytes);
        }
        let mut frames = Vec::new();
        while let Some(block) = self.parser.next_block().unwrap() {
            self.lost = block.lost.unwrap_or(self.lost);
            frames.extend(block.frame);
        }
        frames
    }

    /// Waits for exactly `n` frames.
    fn wait_for(&mut self, n: usize) -> Vec<LiveFrame> {
        let mut frames = Vec::new();
        until("frames of a capture", || {
            frames.extend(self.frames());
            frames.len() >= n
        });
        assert_eq!(frames.len(), n, "{frames:#?}");
        frames
    }
}

/// Counter of the drop that a frame's comments tell.
pub(super) fn dropped(frame: &LiveFrame) -> Option<&str> {
    let text = frame.comments.iter().find_map(|comment| comment.strip_prefix("dropped: "))?;
    text.split_once(": ").map(|(counter, _)| counter)
}

/// Port, direction, contents and comments.
fn shown(frame: &LiveFrame) -> (&str, Direction, &[u8], Vec<&str>) {
    let comments = frame.comments.iter().map(String::as_str).collect();
    (&frame.port, frame.direction, &frame.bytes, comments)
}

#[test]
fn a_burst_is_recorded_where_it_enters_and_where_it_leaves() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender, mut receiver] = bench.guests([VF0, VF1]);
    let mut both = Capture::of(&bench, all_of(&["n/vf1", "n/vf0"]));
    let only = CaptureSpec { direction: Some(Direction::In), ..all_of(&["n/vf1"]) };
    let mut none = Capture::of(&bench, only);
    let sent: Vec<_> = (0..5).map(|n| frame(mac(1), mac(0), n, 60 + n as usize)).collect();
    sent.iter().for_each(|frame| sender.post(frame));
    sender.flush();
    assert_eq!(receiver.wait_for(5), sent);
    let frames = both.wait_for(10);
    for (pair, sent) in frames.chunks(2).zip(&sent) {
        let (vf0, vf1) = (vec!["path vf, VF 0"], vec!["path vf, VF 1"]);
        assert_eq!(shown(&pair[0]), ("n/vf0", Direction::In, &sent[..], vf0));
        assert_eq!(shown(&pair[1]), ("n/vf1", Direction::Out, &sent[..], vf1));
        assert_eq!((pair[0].len as usize, pair[0].missed), (sent.len(), 0));
        assert!(pair[0].time.as_secs() > 1_700_000_000 && pair[0].time == pair[1].time);
    }
    assert!(none.frames().is_empty());
    assert_eq!(both.stream.totals(), [10, 0]);
    bench.expect("n/vf0", "tx_frames", 5);
    bench.expect("n/vf1", "rx_frames", 5);
}

#[test]
fn a_receiver_gets_and_a_capture_shows_the_edited_frame() {
    let bench = Bench::new(vec![access(0, 5), plain(1)], 1);
    let [mut sender, mut wire] = bench.guests([VF0, PortId::UPLINK]);
    let mut capture = Capture::of(&bench, all_of(&["n/uplink", "n/vf0"]));
    let out = frame(OUTSIDE, mac(0), 1, 60);
    sender.send(&out);
    let on_wire = tagged(&out, 0x8100, 5);
    assert_eq!(wire.wait_for(1), [&on_wire[..]]);
    wire.send(&tagged(&frame(mac(0), OUTSIDE, 2, 200), 0x8100, 5));
    assert_eq!(sender.wait_for(1), [frame(mac(0), OUTSIDE, 2, 200)]);
    let frames = capture.wait_for(4);
    let ends: Vec<_> = frames.iter().map(|it| (&*it.port, it.direction, it.bytes.len())).collect();
    let expected = [
        ("n/vf0", Direction::In, 60),
        ("n/uplink", Direction::Out, 64),
        ("n/uplink", Direction::In, 204),
        ("n/vf0", Direction::Out, 200),
    ];
    assert_eq!(ends, expected);
    assert_eq!(frames[1].bytes, on_wire);
    assert_eq!(frames[1].comments, ["path uplink"]);
}

#[test]
fn paths_of_the_switch_are_told_apart() {
    let paths = [Path::Vf, Path::Synthetic, Path::Vmq].map(Adapter::plain);
    let net = Net::of(&paths, 1);
    let mut guests = net.guests();
    let mut capture = Capture::of(&net.bench, all_of(&[]));
    for to in [1, 2] {
        guests[0].send(&frame(mac(to), mac(0), 1, 60));
        guests[usize::from(to)].wait_for(1);
    }
    let frames = capture.wait_for(4);
    let paths: Vec<_> = frames.iter().map(|frame| &*frame.comments[0]).collect();
    assert_eq!(paths, ["path vf, VF 0", "path synthetic", "path vf, VF 0", "path vmq"]);
}

#[test]
fn of_a_burst_each_frame_has_its_own_result() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender] = bench.guests([VF0]);
    let mut receiver = Guest::empty(Shape::default());
    receiver.pair.refill_with(3);
    receiver.attach(bench.vf(1));
    let mut capture = Capture::of(&bench, all_of(&[]));
    let sent: Vec<_> = (0..8).map(|n| frame(mac(1), mac(0), n, 60)).collect();
    let spoofed = frame(mac(1), mac(1), 8, 60);
    sent.iter().for_each(|frame| sender.post(frame));
    sender.post(&spoofed);
    sender.flush();
    let frames = capture.wait_for(17);
    let results: Vec<_> = frames.iter().filter(|it| it.direction == Direction::Out).collect();
    let passed = results.iter().take_while(|frame| dropped(frame).is_none()).count();
    assert_eq!(passed, 3);
    assert!(results[3..].iter().all(|frame| dropped(frame) == Some("rx_no_buffer")));
    let told = &frames[16].comments[1];
    assert!(told.starts_with("dropped: tx_spoofed_mac: The source MAC is not"), "{told}");
    assert_eq!(frames[16].bytes, spoofed);
    bench.expect("n/vf1", "rx_drop_no_buffer", 5);
    assert_eq!(receiver.frames(), sent[..3]);
}

#[test]
fn a_filter_and_a_snap_length_leave_out_the_rest() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender, mut receiver] = bench.guests([VF0, VF1]);
    let filter = Some(Filter::parse("udp dst port 53 and greater 100").unwrap());
    let mut capture =
        Capture::of(&bench, CaptureSpec { filter, snap_len: 150, ..all_of(&["n/vf0"]) });
    let mut sent = Vec::new();
    for (n, (port, len)) in [(53, 200), (80, 200), (53, 60), (53, 140)].into_iter().enumerate() {
        let mut bytes = super::filters::udp((mac(1), mac(0)), (4000, port), n as u32);
        bytes.resize(len, 0);
        sender.post(&bytes);
        sent.push(bytes);
    }
    sender.flush();
    receiver.wait_for(4);
    let frames = capture.wait_for(2);
    assert_eq!((frames[0].len, &frames[0].bytes), (200, &sent[0][..150].to_vec()));
    assert_eq!((frames[1].len, &frames[1].bytes), (140, &sent[3]));
}

#[test]
fn a_capture_survives_a_change_and_leaves_nothing_behind() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let nic = &bench.fabric.nics()[0];
    let [mut sender, mut receiver] = bench.guests([VF0, VF1]);
    let mut capture = Capture::of(&bench, all_of(&["n/vf1"]));
    let is_direct = || nic.snapshot().direct(VF0, VF1).is_some();
    assert!(!is_direct());
    let config = bridge::nic::NicConfig {
        vfs: vec![Some(plain(0)), Some(plain(1))],
        ..bridge::nic::NicConfig::default()
    };
    bench.set_table(bridge::nic::Table::build(&config).unwrap());
    sender.send(&frame(mac(1), mac(0), 1, 60));
    receiver.wait_for(1);
    assert_eq!(capture.wait_for(1).len(), 1);

    // Its stream ends once it was read.
    let end = capture.stream.end_handle();
    sender.send(&frame(mac(1), mac(0), 2, 60));
    receiver.wait_for(1);
    assert!(end.is_held());
    end.end();
    assert_eq!(capture.wait_for(1).len(), 1);
    assert!(capture.stream.next_bytes().is_none());
    drop(capture);
    assert!(!end.is_held() && is_direct() && nic.snapshot().captures.is_empty());
    bench.set_table(bridge::nic::Table::build(&config).unwrap());
    assert!(is_direct());
    sender.send(&frame(mac(1), mac(0), 3, 60));
    receiver.wait_for(1);
}

#[test]
fn a_capture_that_is_not_read_loses_frames_and_guests_lose_none() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender, mut receiver] = bench.guests([VF0, VF1]);
    let mut capture = Capture::of(&bench, all_of(&["n/vf0", "n/vf1"]));
    let sent = frame(mac(1), mac(0), 1, FRAME_MAX as usize);
    // More than the buffer holds.
    let bursts = port::capture::live::BUFFER_BYTES / (2 * 32 * FRAME_MAX) + 20;
    for _ in 0..bursts {
        (0..32).for_each(|_| sender.post(&sent));
        sender.flush();
        assert_eq!(receiver.wait_for(32).len(), 32);
        sender.settle();
    }
    bench.expect("n/vf1", "rx_frames", u64::from(bursts) * 32);
    let [recorded, lost] = capture.stream.totals();
    assert_eq!(recorded + lost, u64::from(bursts) * 64);
    assert!(lost > 0, "{recorded} recorded");
    assert_eq!(capture.frames().len() as u64, recorded);
    // The next frame tells how many are missing before it, and the totals say the same.
    sender.send(&sent);
    let next = capture.wait_for(2);
    assert_eq!((next[0].missed, next[1].missed), (lost, 0));
    capture.stream.report();
    capture.frames();
    assert_eq!(capture.lost, lost);
}

#[test]
fn frames_of_the_daemon_are_recorded_where_they_arrive() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [_from, mut other] = bench.guests([VF0, VF1]);
    let mut capture = Capture::of(&bench, all_of(&["n/vf0", "n/vf1"]));
    let announced = frame(wire::Mac::BROADCAST, mac(0), 1, 60);
    bench.fabric.nics()[0].inject(bench.vf(0), &announced);
    other.wait_for(1);
    let frames = capture.wait_for(1);
    assert_eq!((&*frames[0].port, frames[0].direction), ("n/vf1", Direction::Out));
}

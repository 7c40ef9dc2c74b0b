//! Captures that are played, and written.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;

use super::guests::{Layout, Receiver, Sender, frame};
use super::lent::Lent;
use crate::pcap::{Pace, PcapError, PcapSpec, open, resume};
use crate::{BURST, OpenedDevice, PortHandover, QueuePair, Transmit, VlanEdit};

/// A frame of a file: what was captured, of how many bytes, and when.
type Recorded = (Vec<u8>, u32, Duration);

fn recorded(number: usize, len: usize, time_us: u64) -> Recorded {
    (frame(number, len), len as u32, Duration::from_secs(1000) + Duration::from_micros(time_us))
}

fn write_pcap(path: &Path, frames: &[Recorded], datalink: DataLink) {
    let header = PcapHeader { datalink, snaplen: 262_144, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for (bytes, len, time) in frames {
        writer.write_packet(&PcapPacket::new(*time, *len, &bytes[..]).unwrap()).unwrap();
    }
}

fn write_pcapng(path: &Path, frames: &[Recorded]) {
    let mut writer = PcapNgWriter::new(File::create(path).unwrap()).unwrap();
    let linktype = DataLink::ETHERNET;
    let interface = InterfaceDescriptionBlock { linktype, snaplen: 0, options: vec![] };
    writer.write_pcapng_block(interface).unwrap();
    for (i, (bytes, len, time)) in frames.iter().enumerate() {
        let data = Cow::Borrowed(&bytes[..]);
        if i % 3 == 2 {
            writer.write_pcapng_block(SimplePacketBlock { original_len: *len, data }).unwrap();
            continue;
        }
        let (interface_id, timestamp, original_len) = (0, *time, *len);
        let options = vec![];
        let block = EnhancedPacketBlock { interface_id, timestamp, original_len, data, options };
        writer.write_pcapng_block(block).unwrap();
    }
}

fn spec(file: PathBuf) -> PcapSpec {
    PcapSpec { file, sink: None, name: "web".into(), pace: Pace::Pps(1_000_000), repeat: 1 }
}

/// The half that plays.
fn playing(opened: &mut OpenedDevice) -> Lent<&mut dyn Transmit> {
    Lent::new(opened.pairs[0].transmit.as_mut())
}

/// The next frames that are played, up to as many.
fn play(opened: &mut OpenedDevice, count: usize) -> Vec<Vec<u8>> {
    let mut transmit = playing(opened);
    let begin = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(begin.elapsed() < Duration::from_secs(20), "only {} frames came", frames.len());
        let polled = transmit.poll();
        assert_eq!(polled.malformed(), 0);
        frames.extend(transmit.frames());
        transmit.complete();
    }
    frames
}

/// Returns `true` if a file becomes readable before the timeout.
fn wakes(opened: &OpenedDevice, within: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let kick = opened.pairs[0].transmit.kick().unwrap();
    let mut fds = [PollFd::from_borrowed_fd(kick, PollFlags::IN)];
    let within = Timespec::try_from(within).unwrap();
    poll(&mut fds, Some(&within)) == Ok(1)
}

#[test]
fn files_of_either_format_are_played_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let frames: Vec<_> =
        (0..200).map(|i| recorded(i, [60, 14, 1514, 9014, 65_557, 17][i % 6], i as u64)).collect();
    for name in ["a.pcap", "a.pcapng"] {
        let file = dir.path().join(name);
        match name {
            "a.pcap" => write_pcap(&file, &frames, DataLink::ETHERNET),
            _ => write_pcapng(&file, &frames),
        }
        let mut opened = open(&PcapSpec { repeat: 2, ..spec(file) }).unwrap();
        assert!(opened.notes.is_empty());
        let wanted = frames.iter().chain(&frames).map(|(bytes, ..)| bytes);
        assert!(play(&mut opened, 400).iter().eq(wanted), "{name}");
        assert!(!playing(&mut opened).enable_notification(), "it is over");
        assert_eq!(playing(&mut opened).poll().frames, 0);
    }
}

#[test]
fn nothing_comes_before_it_is_due_and_a_timer_wakes_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("slow.pcap");
    write_pcap(&file, &[recorded(1, 60, 0), recorded(2, 60, 20_000)], DataLink::ETHERNET);
    let mut opened = open(&PcapSpec { pace: Pace::Recorded, ..spec(file) }).unwrap();
    let begin = Instant::now();
    assert_eq!(play(&mut opened, 1), [frame(1, 60)]);
    // However long this thread was kept from its CPU: it is due already, or the timer wakes.
    if !playing(&mut opened).enable_notification() {
        assert!(wakes(&opened, Duration::from_secs(20)));
    }
    assert_eq!(playing(&mut opened).poll().frames, 1);
    assert!(begin.elapsed() >= Duration::from_millis(20), "it came too early");
    playing(&mut opened).complete();
}

#[test]
fn a_file_is_played_for_ever_if_so_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    write_pcap(&file, &[recorded(1, 60, 0), recorded(2, 90, 0)], DataLink::ETHERNET);
    let mut opened = open(&PcapSpec { repeat: 0, pace: Pace::Recorded, ..spec(file) }).unwrap();
    let frames = play(&mut opened, 1000);
    assert!(frames.chunks(2).all(|two| two == [frame(1, 60), frame(2, 90)]));
}

#[test]
fn what_comes_is_written_and_can_be_played_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, sink) = (dir.path().join("in.pcap"), dir.path().join("out.pcapng"));
    let frames: Vec<_> = (0..100).map(|i| recorded(i, 60 + i, i as u64)).collect();
    write_pcap(&file, &frames, DataLink::ETHERNET);
    let mut opened = open(&PcapSpec { sink: Some(sink.clone()), ..spec(file) }).unwrap();
    let OpenedDevice { pairs, .. } = &mut opened;
    let QueuePair { transmit, receive } = &mut pairs[0];
    let (mut transmit, mut receive) = (Lent::new(&mut **transmit), Lent::new(&mut **receive));
    let begin = Instant::now();
    let mut delivered = 0;
    while delivered < 100 {
        assert!(begin.elapsed() < Duration::from_secs(20));
        let indices: Vec<u8> = (0..transmit.poll().frames as u8).collect();
        let more = receive.deliver(&transmit.burst(), &indices, VlanEdit::None);
        assert_eq!(more.frames as usize, indices.len());
        delivered += more.frames;
        receive.publish();
        transmit.complete();
    }
    drop(opened); // waits for the disk
    let mut again = open(&spec(sink)).unwrap();
    let wanted: Vec<_> = frames.into_iter().map(|(bytes, ..)| bytes).collect();
    assert_eq!(play(&mut again, 100), wanted);
}

#[test]
fn a_guest_gets_what_is_played_and_without_a_sink_frames_are_only_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    write_pcap(&file, &[recorded(1, 60, 0), recorded(2, 1514, 0)], DataLink::ETHERNET);
    let mut opened = open(&PcapSpec { pace: Pace::Recorded, ..spec(file) }).unwrap();
    let QueuePair { transmit, receive } = &mut opened.pairs[0];
    let (mut transmit, mut receive) = (Lent::new(&mut **transmit), Lent::new(&mut **receive));
    let mut to = Receiver::new(12, false);
    (0..2).for_each(|_| to.post(2048, &Layout::chain(&[])));
    assert_eq!(transmit.poll().frames, 2);
    let burst = transmit.burst();
    let counted = receive.deliver(&burst, &[1, 0], VlanEdit::None);
    assert_eq!((counted.frames, counted.bytes), (2, 1574));
    assert_eq!(to.ring.deliver(&burst, &[0, 1], VlanEdit::None).frames, 2);
    to.ring.publish();
    let received: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
    assert_eq!(received, [frame(1, 60), frame(2, 1514)]);
}

#[test]
fn frames_that_are_not_whole_are_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cut.pcap");
    let (bytes, _, time) = recorded(2, 100, 5);
    let frames = [recorded(1, 60, 0), (bytes, 1500, time), recorded(3, 66_000, 9)];
    write_pcap(&file, &frames, DataLink::ETHERNET);
    let mut opened = open(&PcapSpec { repeat: 2, ..spec(file) }).unwrap();
    assert!(opened.notes[0].ends_with("skipped 2 truncated or oversize frames"));
    assert_eq!(play(&mut opened, 2), [frame(1, 60), frame(1, 60)]);
}

#[test]
fn unplayable_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_pcap(&at("empty.pcap"), &[], DataLink::ETHERNET);
    write_pcap(&at("raw.pcap"), &[recorded(1, 60, 0)], DataLink::RAW);
    std::fs::write(at("text"), "no capture at all, but long enough to be one").unwrap();
    write_pcap(&at("whole.pcap"), &vec![recorded(1, 60, 0); 3], DataLink::ETHERNET);
    let whole = std::fs::read(at("whole.pcap")).unwrap();
    std::fs::write(at("short.pcap"), &whole[..whole.len() - 5]).unwrap();
    assert!(PcapReader::new(&whole[..]).is_ok());
    for (name, what) in [
        ("nothing.pcap", "cannot be read"),
        ("empty.pcap", "no complete frame"),
        ("raw.pcap", "not a capture of Ethernet"),
        ("text", "truncated, or no capture (after 0 frames)"),
        ("short.pcap", "truncated, or no capture (after 2 frames)"),
        (".", "not a regular file"),
    ] {
        let error = open(&spec(at(name))).unwrap_err();
        assert!(error.to_string().contains(what), "{name}: {error}");
    }
    let error = open(&PcapSpec { sink: Some(at("text")), ..spec(at("whole.pcap")) }).unwrap_err();
    assert!(matches!(error, PcapError::Sink(_)), "{error}");
}

#[test]
fn another_process_plays_on_and_writes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (file, sink) = (dir.path().join("a.pcap"), dir.path().join("sink.pcapng"));
    let frames: Vec<_> = (0..BURST + 10).map(|i| recorded(i, 200, i as u64)).collect();
    write_pcap(&file, &frames, DataLink::ETHERNET);
    let spec = PcapSpec { sink: Some(sink.clone()), repeat: 2, ..spec(file) };
    let mut opened = open(&spec).unwrap();
    let bytes = |range: std::ops::Range<usize>| -> Vec<Vec<u8>> {
        frames[range].iter().map(|(bytes, ..)| bytes.clone()).collect()
    };
    let mut played = play(&mut opened, 1);
    deliver(&mut opened, 3);

    let OpenedDevice { mut pairs, housekeeping, .. } = opened;
    let handover_state = vec![pairs.remove(0).transmit.handover_state()];
    let handover = housekeeping.unwrap().handover(&handover_state).unwrap();
    let mut opened = resume(&spec, handover.clone()).unwrap();
    deliver(&mut opened, 2);
    played.extend(play(&mut opened, 2 * frames.len() - played.len()));
    assert_eq!(played, [bytes(0..frames.len()), bytes(0..frames.len())].concat());
    drop(opened);
    let mut reader = pcap_file::pcapng::PcapNgReader::new(File::open(&sink).unwrap()).unwrap();
    let mut blocks = 0;
    while let Some(block) = reader.next_block() {
        block.unwrap();
        blocks += 1;
    }
    assert_eq!(blocks, 1 + 3 + 2, "one interface, and all frames");
    let cut_off = PortHandover { state: handover.state[..24].to_vec(), ..handover };
    assert!(matches!(resume(&spec, cut_off), Err(PcapError::IncompleteHandover(_))));
}

/// Delivers so many frames.
fn deliver(opened: &mut OpenedDevice, count: usize) {
    let mut from = Sender::new(12, 1514);
    for i in 0..count {
        from.send(&frame(i, 100), &Layout::chain(&[12, 100]));
    }
    let indices: Vec<u8> = (0..count as u8).collect();
    from.ring.poll();
    let mut receive = Lent::new(opened.pairs[0].receive.as_mut());
    assert_eq!(receive.deliver(&from.ring.burst(), &indices, VlanEdit::None).frames, count as u32);
    receive.publish();
    from.ring.complete();
}

//! Tests of a live capture from its lanes' end to the client's parser.

use super::*;

fn record<'a>(port: &'a str, bytes: &'a [u8]) -> LiveRecord<'a> {
    let (time_ns, len) = (1_700_000_000_123_456_789, bytes.len() as u32);
    LiveRecord { time_ns, port, direction: Direction::Out, note: [1, 2, 3, 4, 5, 6], len, bytes }
}

fn comments(note: Note) -> Vec<String> {
    vec![format!("{note:?}"), "second".to_owned()]
}

/// Parses a stream that comes in pieces of `piece` bytes.
fn parsed(stream: &[u8], piece: usize) -> Vec<LiveBlock> {
    let (mut parser, mut blocks) = (LiveParser::default(), Vec::new());
    for bytes in stream.chunks(piece) {
        parser.add(bytes);
        while let Some(block) = parser.next_block().unwrap() {
            blocks.push(block);
        }
    }
    let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes.clone()).collect();
    assert_eq!(bytes, stream, "no byte is lost between blocks");
    blocks
}

#[test]
fn a_client_reads_what_a_lane_recorded() {
    let (mut input, mut output) = LiveCapture::begin(64).unwrap();
    let frame: Vec<u8> = (0..100).collect();
    output.describe("nic0/web");
    assert!(input.put(&record("nic0/web", &frame)));
    assert!(input.put(&LiveRecord { direction: Direction::In, ..record("nic0/db", &frame[..20]) }));
    input.lose(3);
    assert!(input.put(&record("nic0/web", &[])));
    let mut stream = output.read(comments);
    output.report([3, 3]);
    output.report([3, 3]);
    stream.extend(output.read(comments));
    for piece in [1, 7, 4096] {
        let blocks = parsed(&stream, piece);
        assert_eq!(blocks.len(), 7, "a section, two interfaces, three frames, totals");
        assert_eq!(blocks[6].lost, Some(3));
        let frames: Vec<_> = blocks.iter().filter_map(|block| block.frame.clone()).collect();
        let ports: Vec<_> = frames.iter().map(|frame| (&*frame.port, frame.direction)).collect();
        let (input, output) = (Direction::In, Direction::Out);
        assert_eq!(ports, [("nic0/web", output), ("nic0/db", input), ("nic0/web", output)]);
        assert_eq!((frames[0].len, &frames[0].bytes[..]), (100, &frame[..64]));
        assert_eq!((frames[1].len, &frames[1].bytes[..]), (20, &frame[..20]));
        assert_eq!(frames[0].time.as_nanos(), 1_700_000_000_123_456_789);
        assert_eq!(frames[0].comments, ["[1, 2, 3, 4, 5, 6]", "second"]);
        assert_eq!([0, 1, 2].map(|n| frames[n].missed), [0, 0, 3]);
    }
}

#[test]
fn a_full_ring_loses_frames_and_tells_how_many() {
    let (mut input, mut output) = LiveCapture::begin(262_144).unwrap();
    let frame = vec![7; 65_536];
    let taken = (0..1000).filter(|_| input.put(&record("p", &frame))).count() as u64;
    let each = u64::from(Record::LEN) + PREFIX as u64 + 1 + frame.len() as u64;
    assert_eq!(taken, u64::from(BUFFER_BYTES) / each);
    let mut stream = Vec::new();
    loop {
        let more = output.read(comments);
        if more.is_empty() {
            break;
        }
        assert!(more.len() < READ_BYTES + frame.len() + 200, "a read is bounded");
        stream.extend(more);
    }
    assert!(input.put(&record("p", &frame)));
    stream.extend(output.read(comments));
    let frames: Vec<_> = parsed(&stream, 65_536).into_iter().filter_map(|it| it.frame).collect();
    assert_eq!(frames.len() as u64, taken + 1);
    let missed: u64 = frames.iter().map(|frame| frame.missed).sum();
    assert_eq!((missed, frames[frames.len() - 1].missed), (1000 - taken, 1000 - taken));
}

#[test]
fn a_malformed_stream_is_refused() {
    for bytes in [[0xff; 40], [0; 40]] {
        let mut parser = LiveParser::default();
        parser.add(&bytes);
        let error = parser.next_block().unwrap_err().to_string();
        assert!(error.contains("same version"), "{error}");
    }
    assert!(LiveCapture::begin(15).is_err() && LiveCapture::begin(262_145).is_err());
}

//! Live captures: frames from lanes to a reader in this process, as a stream of pcapng.
//!
//! # Model
//! [`LiveCapture::begin`] makes two ends of a ring of bytes. Lanes put records into the
//! [`LiveInput`], in turn; a full ring takes nothing, and the loss is counted. The reader takes
//! blocks from the [`LiveOutput`]. A record carries the name of its port, so that an interface is
//! described before its first frame; and a [`Note`], of which the reader makes comments.
//!
//! A lane reads a frame with [`read_frame`] into its own memory first. So no lane waits for
//! another that accesses the memory of a guest.
//!
//! [`parse`] is the reverse, for a client.

use std::collections::HashMap;

use pcap_file::Endianness;
use pcap_file::pcapng::PcapNgWriteError;

use super::blocks::{Blocks, PacketBlock};
use super::ring::{Consumer, Producer, Record};
use super::{CaptureBuffer, CaptureError, CaptureLimits, now_ns};
use crate::burst::{Burst, HeaderEdit, VlanEdit};
use crate::deliver::SliceWriter;
use crate::software_offload::continue_frame;

mod parse;

pub use parse::{LiveBlock, LiveFrame, LiveParser, ParseError};

/// Bytes of the ring of a live capture: 10 Gbit/s for 13 ms.
pub const BUFFER_BYTES: u32 = 16 << 20;
/// Smallest and largest snap length, bytes.
pub const SNAP_LENS: std::ops::RangeInclusive<u32> = 16..=262_144;
/// Bytes of blocks that a read returns, and a frame more.
const READ_BYTES: usize = 256 << 10;
/// Longest name of a port, bytes; the rest is cut off.
const NAME_LEN_MAX: usize = 255;

/// Direction of a frame, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the port into the NIC: what its guest sends.
    In,
    /// From the NIC to the port: what its guest receives.
    Out,
}

impl Direction {
    /// Value of `epb_flags` (pcapng, section 4.3.1): inbound or outbound.
    const fn flags(self) -> u32 {
        match self {
            Direction::In => 1,
            Direction::Out => 2,
        }
    }
}

/// Facts about a frame, coded by the lane and explained by the reader.
pub type Note = [u8; 6];

/// A frame, as a lane records it.
#[derive(Clone, Copy, Debug)]
pub struct LiveRecord<'a> {
    /// Time since the epoch.
    pub time_ns: u64,
    /// Name of the port.
    pub port: &'a str,
    /// Direction.
    pub direction: Direction,
    /// Further facts.
    pub note: Note,
    /// Bytes of the frame.
    pub len: u32,
    /// Its first bytes: at least the snap length, or all.
    pub bytes: &'a [u8],
}

/// Bytes before a name and a frame in the ring: length of the name, direction, note.
const PREFIX: usize = 8;

/// A live capture that begins.
#[derive(Debug)]
pub struct LiveCapture;

impl LiveCapture {
    /// Both ends of a capture with this snap length.
    ///
    /// # Errors
    /// The snap length is out of range, or no memory is left.
    pub fn begin(snap_len: u32) -> Result<(LiveInput, LiveOutput), CaptureError> {
        let limits = CaptureLimits { snap_len, buffer_bytes: BUFFER_BYTES, ..Default::default() };
        limits.check("live")?;
        let (producer, consumer, _) = CaptureBuffer::new(limits)?.begin();
        let input = LiveInput { producer, snap_len, missed: 0 };
        // Wireshark takes no other order from a pipe.
        let blocks = Blocks::begin(Endianness::native())
            .map_err(|error| CaptureError::Live(error.into()))?;
        let (interfaces, record, totals) = Default::default();
        Ok((input, LiveOutput { consumer, blocks, snap_len, interfaces, record, totals }))
    }
}

/// End of the lanes.
#[derive(Debug)]
pub struct LiveInput {
    producer: Producer,
    snap_len: u32,
    /// Frames lost since the last record.
    missed: u64,
}

impl LiveInput {
    /// Puts a frame into the ring and shows it to the reader; returns `false` if there is no room:
    /// then it is lost.
    pub fn put(&mut self, record: &LiveRecord<'_>) -> bool {
        let LiveRecord { time_ns, port, direction, note, len, bytes } = *record;
        let name = &port.as_bytes()[..port.len().min(NAME_LEN_MAX)];
        let bytes = &bytes[..bytes.len().min(self.snap_len as usize)];
        let captured = (PREFIX + name.len() + bytes.len()) as u32;
        let Some(room) = self.producer.claim(Record::LEN + captured) else {
            self.lose(1);
            return false;
        };
        let missed = std::mem::take(&mut self.missed);
        let mut prefix = [0; PREFIX];
        prefix[0] = name.len() as u8;
        prefix[1] = direction.flags() as u8;
        prefix[2..].copy_from_slice(&note);
        {
            let mut writer = SliceWriter::new(room);
            writer.write(&Record { time_ns, captured, len, missed }.to_bytes());
            writer.write(&prefix);
            writer.write(name);
            writer.write(bytes);
        }
        self.producer.publish();
        true
    }

    /// Counts frames that were not recorded.
    pub fn lose(&mut self, frames: u64) {
        self.missed += frames;
    }

    /// Bytes of a frame that are recorded, at most.
    pub fn snap_len(&self) -> u32 {
        self.snap_len
    }
}

/// End of the reader.
pub struct LiveOutput {
    consumer: Consumer,
    blocks: Blocks,
    snap_len: u32,
    /// Numbers of interfaces by name.
    interfaces: HashMap<String, u32>,
    record: Vec<u8>,
    /// Totals that were reported last.
    totals: [u64; 2],
}

impl std::fmt::Debug for LiveOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveOutput").field("snap_len", &self.snap_len).finish_non_exhaustive()
    }
}

impl LiveOutput {
    /// Describes the interface of a port before its first frame.
    pub fn describe(&mut self, port: &str) {
        // A block of our own is valid, and memory takes it.
        let _ = self.interface(port);
    }

    /// Blocks of frames recorded so far; empty if there are none. Bounded: the rest is in the next
    /// read. `comments` explains notes.
    pub fn read(&mut self, comments: impl Fn(Note) -> Vec<String>) -> Vec<u8> {
        self.consumer.refresh();
        while self.blocks.bytes().len() < READ_BYTES {
            let mut bytes = std::mem::take(&mut self.record);
            let Some(record) = self.consumer.next(&mut bytes) else {
                self.record = bytes;
                break;
            };
            let before = self.blocks.bytes().len();
            if self.packet(&record, &bytes, &comments).is_err() {
                self.blocks.bytes_mut().truncate(before);
            }
            self.record = bytes;
        }
        std::mem::take(self.blocks.bytes_mut())
    }

    /// Reports totals of frames recorded and lost, if they have changed and an interface is
    /// described; [`read`](Self::read) returns them.
    pub fn report(&mut self, totals: [u64; 2]) {
        if self.blocks.interfaces() > 0 && self.totals != totals {
            let before = self.blocks.bytes().len();
            match self.blocks.totals(now_ns(), totals) {
                Ok(()) => self.totals = totals,
                Err(_) => self.blocks.bytes_mut().truncate(before),
            }
        }
    }

    fn packet(
        &mut self,
        record: &Record,
        bytes: &[u8],
        comments: &impl Fn(Note) -> Vec<String>,
    ) -> Result<(), PcapNgWriteError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(()) };
        let [name_len, flags, note @ ..] = *prefix;
        let (name, data) = rest.split_at(usize::from(name_len).min(rest.len()));
        let interface = self.interface(&String::from_utf8_lossy(name))?;
        self.blocks.packet(&PacketBlock {
            interface,
            time_ns: record.time_ns,
            len: record.len,
            data,
            missed: record.missed,
            flags: flags.into(),
            comments: &comments(note),
        })
    }

    fn interface(&mut self, name: &str) -> Result<u32, PcapNgWriteError> {
        if let Some(known) = self.interfaces.get(name) {
            return Ok(*known);
        }
        let number = self.blocks.interface(name, self.snap_len)?;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }
}

/// Reads a frame of a burst after an edit of its tags, behind the bytes that are in `bytes`
/// already, until there are at least `most` or all; returns the length of the edited frame.
pub fn read_frame(
    burst: &Burst<'_>,
    frame: usize,
    edit: VlanEdit,
    most: u32,
    bytes: &mut Vec<u8>,
) -> u32 {
    let source_len = burst.frames[frame].len;
    let edited = HeaderEdit::new(edit, &burst.headers[frame], source_len);
    continue_frame(burst, frame, &edited, 0, most, bytes);
    edited.len_of(source_len)
}

/// Time since the epoch, for records.
pub fn time_ns() -> u64 {
    now_ns()
}

#[cfg(test)]
mod tests;

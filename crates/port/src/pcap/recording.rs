//! A capture in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use wire::virtio_net::Accepts;

use super::PcapError;
use crate::device::RxBuffer;
use crate::judge::{FRAME_MAX, Rules};

/// Largest file: all of its frames are held in memory.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// How a pcapng file begins.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// What is read of the file at a time, and longest block of it.
const READ_BYTES: usize = 1 << 20;

/// A frame in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) at: u64,
    pub(super) len: u32,
    /// After the first frame; never before the frame in front.
    pub(super) time_ns: u64,
}

/// The frames of a file, in its order.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// One at the least.
    pub(super) frames: Vec<Frame>,
    /// Frames that are left out.
    pub(super) cut: u64,
}

/// A file on its way into memory.
struct Load {
    recording: Recording,
    rx_buffer: RxBuffer,
    end: u64,
    begin: Option<Duration>,
}

impl Load {
    /// Takes a frame of which `original_len` bytes were captured or not; without a time it comes
    /// with the one in front.
    fn take(&mut self, data: &[u8], original_len: u32, time: Option<Duration>) {
        let len = data.len() as u32;
        // What is too long or cut cannot be sent; the memory is as large as the file, so it is room
        // enough for all frames.
        if len != original_len || len > FRAME_MAX || len == 0 {
            self.recording.cut += 1;
            return;
        }
        let before_ns = self.recording.frames.last().map_or(0, |frame| frame.time_ns);
        let time_ns = time.map_or(before_ns, |time| {
            let begin = *self.begin.get_or_insert(time);
            time.saturating_sub(begin).as_nanos().min(u128::from(u64::MAX / 4)) as u64
        });
        self.rx_buffer.room(self.end, len).write_bytes(data);
        let time_ns = time_ns.max(before_ns);
        self.recording.frames.push(Frame { at: self.end, len, time_ns });
        // A frame takes no more than its bytes and its header in the file, which is 16 or longer.
        self.end += u64::from(len).next_multiple_of(16);
    }

    fn pcap(&mut self, file: File) -> Result<(), Problem> {
        let mut reader = PcapReader::with_capacity(file, READ_BYTES)?;
        if reader.header().datalink != DataLink::ETHERNET {
            return Err(Problem::NotEthernet);
        }
        while let Some(packet) = reader.next_packet() {
            let packet = packet?;
            self.take(packet.data(), packet.orig_len(), Some(packet.timestamp()));
        }
        Ok(())
    }

    fn pcapng(&mut self, file: File) -> Result<(), Problem> {
        let mut reader = PcapNgReader::with_capacity(file, READ_BYTES)?;
        while let Some(block) = reader.next_block() {
            match block? {
                (Block::InterfaceDescription(interface), _)
                    if interface.linktype != DataLink::ETHERNET =>
                {
                    return Err(Problem::NotEthernet);
                }
                (Block::EnhancedPacket(packet), _) => {
                    self.take(&packet.data, packet.original_len, Some(packet.timestamp));
                }
                (Block::SimplePacket(packet), _) => {
                    self.take(&packet.data, packet.original_len, None);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is wrong with a file.
enum Problem {
    NotEthernet,
    Format(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Problem {
    fn from(error: E) -> Problem {
        Problem::Format(Box::new(error))
    }
}

/// Reads a file into memory, from which its frames are lent.
pub(super) fn load(path: &Path) -> Result<(Recording, RxBuffer), PcapError> {
    let read = |source| PcapError::Read { path: path.to_owned(), source };
    let content = |what| PcapError::Content { path: path.to_owned(), what };
    // What is no file may wait for ever when it is opened.
    let metadata = std::fs::metadata(path).map_err(read)?;
    if !metadata.is_file() {
        return Err(content("not a regular file; name a capture"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(content("more than 1 GiB; cut it (editcap -c)"));
    }
    let mut file = File::open(path).map_err(read)?;
    let is_pcapng = begins_with(&mut file, SECTION_HEADER).map_err(read)?;
    // A file that grows meanwhile is read as far as it is now.
    let rules = Rules { frame_bytes_max: FRAME_MAX, leaves: Accepts::empty() };
    let bytes = metadata.len().next_multiple_of(4096).max(4096);
    let rx_buffer = RxBuffer::new("pcap", bytes, rules)
        .map_err(|source| PcapError::Memory { path: path.to_owned(), source })?;
    let mut load = Load { recording: Recording::default(), rx_buffer, end: 0, begin: None };
    let loaded = if is_pcapng { load.pcapng(file) } else { load.pcap(file) };
    let Load { recording, rx_buffer, .. } = load;
    match loaded {
        Err(Problem::NotEthernet) => {
            Err(content("not of Ethernet; name a capture of Ethernet frames"))
        }
        Err(Problem::Format(source)) => {
            let frames = recording.frames.len();
            Err(PcapError::Format { path: path.to_owned(), frames, source })
        }
        Ok(()) if recording.frames.is_empty() => {
            Err(content("no whole frame in it; name a capture that has some"))
        }
        Ok(()) => Ok((recording, rx_buffer)),
    }
}

fn begins_with(file: &mut File, bytes: [u8; 4]) -> io::Result<bool> {
    let mut begin = Vec::new();
    file.take(4).read_to_end(&mut begin)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(begin == bytes)
}

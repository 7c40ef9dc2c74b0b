//! Recordings: captures in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::launcher::{self, Answer, Request, ask, check_file};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use wire::virtio_net::OffloadSet;

use super::PcapError;
use crate::kernel::RxBuffer;
use crate::validate::{FRAME_MAX, FrameRules};

/// Largest file, bytes: all of its frames are held in memory.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// First bytes of a pcapng file (section 4.1: type of a section header, the same in both byte
/// orders).
pub(crate) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Bytes read from the file at a time, and longest block.
const READ_BYTES: usize = 1 << 20;

/// A frame in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedFrame {
    pub(super) at: u64,
    pub(super) len: u32,
    /// Time after the first frame; never before the previous frame.
    pub(super) time_ns: u64,
}

/// Frames of a file, in its order.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// At least one.
    pub(super) frames: Vec<RecordedFrame>,
    /// Number of frames left out.
    pub(super) cut: u64,
}

/// Loads a file into memory.
struct Loader {
    recording: Recording,
    rx_buffer: RxBuffer,
    end: u64,
    begin: Option<Duration>,
}

impl Loader {
    /// Takes a frame that had `original_len` bytes on the wire. A frame without a time comes with
    /// the previous one.
    fn take(&mut self, data: &[u8], original_len: u32, time: Option<Duration>) {
        let len = data.len() as u32;
        // Truncated and oversize frames cannot be sent. The memory is as large as the file, so it
        // has room for all frames.
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
        self.recording.frames.push(RecordedFrame { at: self.end, len, time_ns });
        // A frame uses at most its bytes and its header in the file, which is at least 16 bytes.
        self.end += u64::from(len).next_multiple_of(16);
    }

    fn pcap(&mut self, file: File) -> Result<(), LoadError> {
        let mut reader = PcapReader::with_capacity(file, READ_BYTES)?;
        if reader.header().datalink != DataLink::ETHERNET {
            return Err(LoadError::NotEthernet);
        }
        while let Some(packet) = reader.next_packet() {
            let packet = packet?;
            self.take(packet.data(), packet.orig_len(), Some(packet.timestamp()));
        }
        Ok(())
    }

    fn pcapng(&mut self, file: File) -> Result<(), LoadError> {
        let mut reader = PcapNgReader::with_capacity(file, READ_BYTES)?;
        while let Some(block) = reader.next_block() {
            match block? {
                (Block::InterfaceDescription(interface), _)
                    if interface.linktype != DataLink::ETHERNET =>
                {
                    return Err(LoadError::NotEthernet);
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

/// Reason for which a file cannot be loaded.
enum LoadError {
    NotEthernet,
    Format(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for LoadError {
    fn from(error: E) -> LoadError {
        LoadError::Format(Box::new(error))
    }
}

/// Opens a capture for reading.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRecording {
    path: PathBuf,
}

/// First bytes of a capture: pcapng, or pcap with microseconds or nanoseconds in either byte order.
const MAGIC: [[u8; 4]; 5] = [
    [0x0a, 0x0d, 0x0d, 0x0a],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];

impl Request for OpenRecording {
    const NAME: &'static str = "open-recording";
    const DOES: &'static str = "opens for reading a regular file that is a capture";
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_file(&self.path)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let file = host::regular_file::open(&self.path)?.ok_or(Errno::INVAL)?;
        let mut begins = [0; 4];
        if file.read_at(&mut begins, 0).map_err(failed)? < 4 || !MAGIC.contains(&begins) {
            return Err(Errno::INVAL);
        }
        Ok(((), vec![file.into()]))
    }
}

/// Reads a file into memory, from which its frames are lent.
pub(super) fn load(path: &Path) -> Result<(Recording, RxBuffer), PcapError> {
    let read = |source| PcapError::Read { path: path.to_owned(), source };
    let content = |what| PcapError::Content { path: path.to_owned(), what };
    // Opening anything but a regular file may block forever.
    let metadata = std::fs::metadata(path).map_err(read)?;
    if !metadata.is_file() {
        return Err(content("not a regular file; name a capture"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(content("larger than 1 GiB; split it (editcap -c)"));
    }
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && launcher::is_present() => {
            let opened = ask(OpenRecording { path: path.to_owned() }, &[]);
            let opened = opened.and_then(|(_, fds)| fds.into_iter().next().ok_or(Errno::BADMSG));
            File::from(opened.map_err(|errno| read(errno.into()))?)
        }
        opened => opened.map_err(read)?,
    };
    let is_pcapng = begins_with(&mut file, SECTION_HEADER).map_err(read)?;
    // A file that grows meanwhile is read up to its present length.
    let rules = FrameRules { frame_bytes_max: FRAME_MAX, leaves: OffloadSet::empty() };
    let bytes = metadata.len().next_multiple_of(4096).max(4096);
    let rx_buffer = RxBuffer::new("pcap", bytes, rules)
        .map_err(|source| PcapError::Memory { path: path.to_owned(), source })?;
    let mut load = Loader { recording: Recording::default(), rx_buffer, end: 0, begin: None };
    let loaded = if is_pcapng { load.pcapng(file) } else { load.pcap(file) };
    let Loader { recording, rx_buffer, .. } = load;
    match loaded {
        Err(LoadError::NotEthernet) => Err(content("not a capture of Ethernet frames; name one")),
        Err(LoadError::Format(source)) => {
            let frames = recording.frames.len();
            Err(PcapError::Format { path: path.to_owned(), frames, source })
        }
        Ok(()) if recording.frames.is_empty() => {
            Err(content("contains no complete frame; name another capture"))
        }
        Ok(()) => Ok((recording, rx_buffer)),
    }
}

/// Reads the first frames of a file, at most so many.
///
/// # Errors
/// The file cannot be read, is no capture of Ethernet frames, or has no complete frame.
pub fn read_frames(path: &Path, most: usize) -> Result<Vec<Vec<u8>>, PcapError> {
    let (recording, rx_buffer) = load(path)?;
    let frames = recording.frames.iter().take(most).map(|frame| {
        let mut bytes = vec![0; frame.len as usize];
        rx_buffer.room(frame.at, frame.len).read_bytes(&mut bytes);
        bytes
    });
    Ok(frames.collect())
}

fn begins_with(file: &mut File, bytes: [u8; 4]) -> io::Result<bool> {
    let mut begin = Vec::new();
    file.take(4).read_to_end(&mut begin)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(begin == bytes)
}

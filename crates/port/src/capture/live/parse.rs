//! Parser of a live capture's stream, for a client: whole blocks, and the frames in them.

use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::{Block, PcapNgParseError, PcapNgParser};

use super::Direction;

/// Largest block, bytes: the largest frame with its options.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The stream is no pcapng of a live capture.
#[derive(Debug, thiserror::Error)]
#[error("the capture is malformed; use the same version of Shunt as the daemon")]
pub struct ParseError(#[source] Option<Box<dyn std::error::Error + Send + Sync>>);

/// A block of the stream.
#[derive(Debug)]
pub struct LiveBlock {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Frame in it.
    pub frame: Option<LiveFrame>,
    /// Frames that were lost so far, if the block reports them.
    pub lost: Option<u64>,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFrame {
    /// Time since the epoch.
    pub time: Duration,
    /// Name of the port.
    pub port: String,
    /// Direction.
    pub direction: Direction,
    /// Bytes of the frame before it was cut.
    pub len: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Comments.
    pub comments: Vec<String>,
    /// Frames that were lost before it.
    pub missed: u64,
}

/// Parser of a stream that comes in pieces.
#[derive(Debug, Default)]
pub struct LiveParser {
    bytes: Vec<u8>,
    /// Bytes of blocks that were returned.
    taken: usize,
    parser: Option<PcapNgParser>,
}

impl LiveParser {
    /// Adds the next bytes of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole block; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The stream is malformed.
    pub fn next_block(&mut self) -> Result<Option<LiveBlock>, ParseError> {
        let Some(len) = self.block_len()? else { return Ok(None) };
        let bytes = self.bytes[self.taken..self.taken + len].to_vec();
        self.taken += len;
        let failed = |error: PcapNgParseError| ParseError(Some(error.into()));
        let mut block = LiveBlock { bytes: Vec::new(), frame: None, lost: None };
        match &mut self.parser {
            None => self.parser = Some(PcapNgParser::new(&bytes).map_err(failed)?.1),
            Some(parser) => match parser.next_block(&bytes).map_err(failed)?.1 {
                Block::EnhancedPacket(packet) => {
                    let interface = parser.packet_interface(&packet);
                    let options = interface.into_iter().flat_map(|interface| &interface.options);
                    let mut names = options.filter_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    });
                    let mut frame = LiveFrame {
                        time: packet.timestamp,
                        port: names.next().unwrap_or_default(),
                        direction: Direction::In,
                        len: packet.original_len,
                        bytes: packet.data.to_vec(),
                        comments: Vec::new(),
                        missed: 0,
                    };
                    for option in &packet.options {
                        match option {
                            EnhancedPacketOption::Flags(flags) if flags & 3 == 2 => {
                                frame.direction = Direction::Out;
                            }
                            EnhancedPacketOption::DropCount(missed) => frame.missed = *missed,
                            EnhancedPacketOption::Common(CommonOption::Comment(text)) => {
                                frame.comments.push(text.to_string());
                            }
                            _ => {}
                        }
                    }
                    block.frame = Some(frame);
                }
                Block::InterfaceStatistics(totals) => {
                    block.lost = totals.options.iter().find_map(|option| match option {
                        InterfaceStatisticsOption::IsbIfDrop(lost) => Some(*lost),
                        _ => None,
                    });
                }
                _ => {}
            },
        }
        block.bytes = bytes;
        Ok(Some(block))
    }

    /// Length of the next block, if it is complete. A daemon writes in this machine's byte order
    /// or in the other.
    fn block_len(&self) -> Result<Option<usize>, ParseError> {
        let rest = &self.bytes[self.taken..];
        let Some(begin) = rest.first_chunk::<12>() else { return Ok(None) };
        let word = |at: usize| [begin[at], begin[at + 1], begin[at + 2], begin[at + 3]];
        let is_big = match &self.parser {
            Some(parser) => parser.section().endianness.is_big(),
            None => word(8) == [0x1a, 0x2b, 0x3c, 0x4d],
        };
        let len = if is_big { u32::from_be_bytes(word(4)) } else { u32::from_le_bytes(word(4)) };
        let len = len as usize;
        if !(12..=BLOCK_BYTES_MAX).contains(&len) {
            return Err(ParseError(None));
        }
        Ok((rest.len() >= len).then_some(len))
    }
}

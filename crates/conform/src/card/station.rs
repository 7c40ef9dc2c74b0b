//! Stations of a card's NIC: packet sockets on the interfaces of VFs, and on the wire.
//!
//! A marker is a broadcast frame with the number of its round and of its sender. Interfaces and
//! queues keep the order of frames, so a marker that arrived says that the frames before it did, or
//! never will.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use guestmem::io::{self, DatagramReceiver, Piece};
use guestmem::{FramePool, Pages};
use host::packet::{self, HEADER_LEN};
use rustix::io::Errno;
use wire::Mac;
use wire::ethernet::FRAME_LEN_MIN;
use wire::vlan::TAG_OFFSET;

use crate::frame::GROUP;

/// Bytes of a received frame with its header, and frames received at a time.
const ROOM: u32 = 2048;
const ROOMS: u64 = 32;
/// Time limit for room in an interface's queue.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// EtherType for local experiments (IEEE 802), and the text that follows it.
const MARKER: &[u8] = b"\x88\xb5shunt conform";

/// Number of a round of markers, and of a marker's sender.
pub(super) type Marker = (u64, u8);

/// A packet socket and what arrived there.
#[derive(Debug)]
pub(super) struct Station {
    socket: OwnedFd,
    memory: FramePool,
    receiver: DatagramReceiver,
    /// Received frames without markers.
    frames: Vec<Vec<u8>>,
    /// Received markers.
    pub(super) markers: BTreeSet<Marker>,
    /// Markers sent and received, as the card counts them.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Station {
    /// A station that receives all frames of an interface of this namespace.
    pub(super) fn on_wire(interface: &str) -> Result<Station> {
        Station::of(packet::open(None, interface, false)?)
    }

    /// A guest on the interface of its VF, in its namespace, as a member of the suite's group.
    pub(super) fn guest(netns: &str, interface: &str) -> Result<Station> {
        Station::of(packet::open_member(Some(netns), interface, GROUP.0)?)
    }

    fn of(socket: OwnedFd) -> Result<Station> {
        let memory = FramePool::create("conform", ROOMS * u64::from(ROOM), Pages::Ordinary)?;
        Ok(Station {
            socket,
            memory,
            receiver: DatagramReceiver::default(),
            frames: Vec::new(),
            markers: BTreeSet::new(),
            sent: 0,
            received: 0,
        })
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The interface is down, or its queue stays full.
    pub(super) fn send(&self, frame: &[u8]) -> Result<()> {
        let header = [0; HEADER_LEN as usize];
        let patience = Instant::now() + SEND_TIMEOUT;
        loop {
            match io::write(self.socket.as_fd(), &[Piece::bytes(&header), Piece::bytes(frame)]) {
                Err(Errno::AGAIN | Errno::NOBUFS) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                sent => return sent.map(drop).context("cannot send a frame"),
            }
        }
    }

    /// Sends a marker with this source address, once for each of these tags, and untagged.
    pub(super) fn mark(
        &mut self,
        (round, sender): Marker,
        src: Mac,
        tags: &[[u8; 4]],
    ) -> Result<()> {
        let mut marker =
            [&Mac::BROADCAST.0, &src.0, MARKER, &round.to_be_bytes(), &[sender]].concat();
        marker.resize(FRAME_LEN_MIN, 0);
        self.send(&marker)?;
        for tag in tags {
            let mut tagged = marker.clone();
            tagged.splice(TAG_OFFSET..TAG_OFFSET, *tag);
            self.send(&tagged)?;
        }
        self.sent += 1 + tags.len() as u64;
        Ok(())
    }

    /// Receives what has arrived.
    pub(super) fn poll(&mut self) -> Result<()> {
        loop {
            let room = |i: u64| self.memory.slice(i * u64::from(ROOM), ROOM);
            let received =
                match self.receiver.receive(self.socket.as_fd(), (0..ROOMS).filter_map(room)) {
                    // The interface is down.
                    Err(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => return Ok(()),
                    received => received.context("cannot receive frames")?,
                };
            for i in 0..received {
                let mut frame = vec![0; self.receiver.len(i).min(ROOM) as usize];
                if let Some(room) = room(i as u64) {
                    room.read_bytes(&mut frame);
                }
                frame.drain(..frame.len().min(HEADER_LEN as usize));
                let tag = packet::tag_of(self.receiver.control(i));
                if let Some(tag) = tag.filter(|_| frame.len() >= TAG_OFFSET) {
                    frame.splice(TAG_OFFSET..TAG_OFFSET, tag);
                }
                match marker(&frame) {
                    Some(marker) => {
                        self.markers.insert(marker);
                        self.received += 1;
                    }
                    None => self.frames.push(frame),
                }
            }
        }
    }

    /// Frames since the last call.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.frames)
    }
}

/// Round and sender, if the frame is a marker, with a tag or without.
fn marker(frame: &[u8]) -> Option<Marker> {
    let after = |at: usize| frame.get(at..)?.strip_prefix(MARKER);
    let (round, rest) = after(TAG_OFFSET).or_else(|| after(TAG_OFFSET + 4))?.split_first_chunk()?;
    Some((u64::from_be_bytes(*round), *rest.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_told_from_frames() {
        let mut frame = [&[0xff; 6][..], &[2; 6], MARKER, &7_u64.to_be_bytes(), &[3]].concat();
        assert_eq!(marker(&frame), Some((7, 3)));
        frame.splice(12..12, [0x81, 0, 0, 20]);
        assert_eq!(marker(&frame), Some((7, 3)));
        for len in 0..frame.len() {
            assert_eq!(marker(&frame[..len]), None, "cut to {len}");
        }
        let test = crate::frame::TestFrame::new(crate::frame::mac(1), Mac::BROADCAST, 7);
        assert_eq!(marker(&test.bytes), None);
    }
}

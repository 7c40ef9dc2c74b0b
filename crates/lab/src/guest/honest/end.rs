//! One honest guest's adapter and its buffers.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use guestmem::Pages;
use virtq::BURST;
use wire::Mac;
use wire::probe::{Mark, Probe};

use crate::guest::adapter::{Adapter, BUFFER, BUFFERS, HEADER, RING};

/// Frames that a receive ring has buffers for.
pub(in crate::guest) const FRAMES: u16 = RING;

/// Lengths of the frames in turn, without FCS: the least, the most, and around cache lines.
const LENGTHS: [usize; 7] = [60, 1514, 61, 124, 252, 1020, 508];

/// The length of the frame of this number.
pub(in crate::guest) fn frame_len(sequence: u64) -> usize {
    LENGTHS[(sequence % LENGTHS.len() as u64) as usize]
}

/// A frame in a receive buffer.
#[derive(Clone, Copy, Debug)]
pub(in crate::guest) struct Received<'a> {
    /// A copy of its bytes.
    pub(in crate::guest) bytes: &'a [u8],
    buffer: u32,
}

impl Received<'_> {
    pub(in crate::guest) const BYTES_MAX: usize = (BUFFER - HEADER) as usize;
}

/// A guest.
#[derive(Debug)]
pub(in crate::guest) struct End {
    pub(in crate::guest) mac: Mac,
    adapter: Adapter,
    probe: Probe,
    free: Vec<u32>,
}

impl End {
    /// Attaches; frames go from `mac` to `peer`.
    pub(in crate::guest) fn attach(socket: &Path, mac: Mac, peer: Mac) -> Result<End> {
        // Addresses of the range for benchmarks (RFC 2544), and the discard port.
        let probe = Probe {
            dst: peer,
            src: mac,
            dst_ip: Ipv4Addr::new(198, 18, 0, 2),
            src_ip: Ipv4Addr::new(198, 18, 0, 1),
            dst_port: 9,
            src_port: 9,
        };
        let adapter = Adapter::attach(socket, true, Pages::Ordinary)?;
        let mut end = End { mac, adapter, probe, free: (0..BUFFERS).rev().collect() };
        end.publish();
        Ok(end)
    }

    /// Hands everything in the receive ring to `look`, with a copy of its bytes, and posts the
    /// buffers again, but for those that `look` says it has sent on.
    pub(in crate::guest) fn receive(
        &mut self,
        mut look: impl FnMut(&mut End, Received<'_>) -> bool,
    ) {
        let mut frames = [(0, 0); BURST];
        let mut bytes = [0; Received::BYTES_MAX];
        loop {
            let received = self.adapter.reap_receive(&mut frames);
            if received == 0 {
                break;
            }
            for (buffer, len) in frames[..received].iter().copied() {
                let len = len.saturating_sub(HEADER).min(BUFFER - HEADER);
                let bytes = &mut bytes[..len as usize];
                self.adapter.buffer(buffer).skip(HEADER).read_bytes(bytes);
                if !look(self, Received { bytes, buffer }) {
                    self.free.push(buffer);
                }
            }
            self.refill();
        }
    }

    /// Posts receive buffers while there is room, and some are free: others come back from the
    /// transmit ring.
    fn refill(&mut self) {
        while self.adapter.rx.room() > 0 {
            let Some(buffer) = self.free.pop() else { return };
            self.adapter.post_receive(buffer);
        }
    }

    /// Sends the frame of this number; says whether there was room.
    pub(in crate::guest) fn send(&mut self, sequence: u64) -> bool {
        let Some(buffer) = self.free.pop() else { return false };
        let mut bytes = [0; LENGTHS[1]];
        let frame = &mut bytes[..frame_len(sequence)];
        let mark = Mark { sequence, stamp: 0 };
        self.probe.emit(mark, frame).expect("all lengths are those of probes");
        let place = self.adapter.buffer(buffer);
        place.write(0, [0; HEADER as usize]);
        place.skip(HEADER).write_bytes(frame);
        let sent = self.adapter.post_transmit(buffer, HEADER + frame.len() as u32);
        if !sent {
            self.free.push(buffer);
        }
        sent
    }

    /// Sends a received frame back to where it came from, in the same buffer.
    pub(in crate::guest) fn send_back(&mut self, frame: &Received<'_>) -> bool {
        let place = self.adapter.buffer(frame.buffer);
        place.write(0, [0; HEADER as usize]);
        place.write(HEADER, self.probe.dst.0);
        place.write(HEADER + 6, self.mac.0);
        self.adapter.post_transmit(frame.buffer, HEADER + frame.bytes.len() as u32)
    }

    /// Shows what was posted, and takes sent buffers back.
    pub(in crate::guest) fn publish(&mut self) {
        let mut back = [0; BURST];
        loop {
            let sent = self.adapter.reap_transmit(&mut back);
            self.free.extend_from_slice(&back[..sent]);
            if sent < BURST {
                break;
            }
        }
        self.refill();
        self.adapter.publish();
    }
}

//! Adapter of one honest guest, and its buffers.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use guestmem::Pages;
use report::RingKind;
use virtq::BURST;
use wire::Mac;
use wire::probe::{Mark, Probe};

use crate::adapter::{Adapter, BUFFER, BUFFERS, HEADER, RING, RingOptions};

/// Receive buffers per ring.
pub(crate) const FRAMES: u16 = RING;

/// Frame lengths in turn, without FCS: minimum, maximum, and around cache lines.
const LENGTHS: [usize; 7] = [60, 1514, 61, 124, 252, 1020, 508];

/// Length of the frame with this number.
pub(crate) fn frame_len(sequence: u64) -> usize {
    LENGTHS[(sequence % LENGTHS.len() as u64) as usize]
}

/// Probe from one address to another.
fn probe(mac: Mac, peer: Mac) -> Probe {
    // Addresses of the benchmark range (RFC 2544), and the discard port.
    Probe {
        dst: peer,
        src: mac,
        dst_ip: Ipv4Addr::new(198, 18, 0, 2),
        src_ip: Ipv4Addr::new(198, 18, 0, 1),
        dst_port: 9,
        src_port: 9,
    }
}

/// A frame in a receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedFrame<'a> {
    /// Copy of the frame's bytes.
    pub(crate) bytes: &'a [u8],
    buffer: u32,
}

impl ReceivedFrame<'_> {
    pub(crate) const BYTES_MAX: usize = (BUFFER - HEADER) as usize;
}

/// One honest guest.
#[derive(Debug)]
pub(crate) struct ProbeGuest {
    pub(crate) mac: Mac,
    adapter: Adapter,
    probe: Probe,
    free: Vec<u32>,
    /// Buffers posted to the daemon, in order.
    sent: PostOrder,
    posted: PostOrder,
}

/// Posted buffers in the order in which the daemon must return them.
#[derive(Debug, Default)]
struct PostOrder {
    buffers: VecDeque<u32>,
    /// Number of buffers returned out of that order.
    wrong: u64,
}

impl PostOrder {
    fn back(&mut self, buffer: u32) {
        match self.buffers.front() {
            Some(first) if *first == buffer => drop(self.buffers.pop_front()),
            _ => {
                self.wrong += 1;
                self.buffers.retain(|other| *other != buffer);
            }
        }
    }
}

/// Account of posted buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    /// Used entries that repeat another, or name no posted buffer.
    pub(crate) repeated: u64,
    /// Buffers returned before one that was posted earlier.
    pub(crate) out_of_order: u64,
    /// Transmit buffers that were not returned.
    pub(crate) missing: u64,
}

impl ProbeGuest {
    /// Attaches; frames go from `mac` to `peer`.
    pub(crate) fn attach(socket: &Path, mac: Mac, peer: Mac) -> Result<ProbeGuest> {
        let options = RingOptions { event_idx: true, ..RingOptions::of(RingKind::Split) };
        ProbeGuest::attach_with(socket, mac, peer, options)
    }

    /// Attaches with the given ring features.
    pub(crate) fn attach_with(
        socket: &Path,
        mac: Mac,
        peer: Mac,
        options: RingOptions,
    ) -> Result<ProbeGuest> {
        ProbeGuest::attach_as(socket, options, probe(mac, peer))
    }

    fn attach_as(socket: &Path, options: RingOptions, probe: Probe) -> Result<ProbeGuest> {
        let adapter = Adapter::attach_as(socket, options, Pages::Ordinary)?;
        let (sent, posted) = Default::default();
        let free = (0..BUFFERS).rev().collect();
        let mut end = ProbeGuest { mac: probe.src, adapter, probe, free, sent, posted };
        end.publish();
        Ok(end)
    }

    /// Returns `true` if the daemon closed the connection.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.adapter.is_disconnected()
    }

    /// Attaches to the next daemon with the posted buffers; returns `true` on success.
    pub(crate) fn reattach(&mut self, socket: &Path) -> bool {
        self.adapter.reattach(socket).is_ok()
    }

    /// Account of the buffers so far.
    pub(crate) fn accounts(&self) -> Accounts {
        Accounts {
            repeated: self.adapter.rx.strays() + self.adapter.tx.strays(),
            out_of_order: self.sent.wrong + self.posted.wrong,
            missing: self.sent.buffers.len() as u64,
        }
    }

    /// Passes each received frame to `look`, as a copy of its bytes, and posts the buffers again,
    /// except those that `look` has sent on.
    pub(crate) fn receive(
        &mut self,
        mut look: impl FnMut(&mut ProbeGuest, ReceivedFrame<'_>) -> bool,
    ) {
        let mut frames = [(0, 0); BURST];
        let mut bytes = [0; ReceivedFrame::BYTES_MAX];
        loop {
            let received = self.adapter.reap_receive(&mut frames);
            if received == 0 {
                break;
            }
            for (buffer, len) in frames[..received].iter().copied() {
                self.posted.back(buffer);
                let len = len.saturating_sub(HEADER).min(BUFFER - HEADER);
                let bytes = &mut bytes[..len as usize];
                self.adapter.buffer(buffer).skip(HEADER).read_bytes(bytes);
                if !look(self, ReceivedFrame { bytes, buffer }) {
                    self.free.push(buffer);
                }
            }
            self.refill();
        }
    }

    /// Posts free receive buffers while there is room; other buffers return from the transmit ring.
    fn refill(&mut self) {
        while self.adapter.rx.room() > 0 {
            let Some(buffer) = self.free.pop() else { return };
            self.adapter.post_receive(buffer);
            self.posted.buffers.push_back(buffer);
        }
    }

    /// Sends the frame with this number; `false` if the ring is full.
    pub(crate) fn send(&mut self, sequence: u64) -> bool {
        let Some(buffer) = self.free.pop() else { return false };
        let mut bytes = [0; LENGTHS[1]];
        let frame = &mut bytes[..frame_len(sequence)];
        let mark = Mark { sequence, stamp: 0 };
        self.probe.emit(mark, frame).expect("all lengths are those of probes");
        let place = self.adapter.buffer(buffer);
        place.write(0, [0; HEADER as usize]);
        place.skip(HEADER).write_bytes(frame);
        let sent = self.adapter.post_transmit(buffer, HEADER + frame.len() as u32);
        match sent {
            true => self.sent.buffers.push_back(buffer),
            false => self.free.push(buffer),
        }
        sent
    }

    /// Returns a received frame to its sender, in the same buffer.
    pub(crate) fn send_back(&mut self, frame: &ReceivedFrame<'_>) -> bool {
        let place = self.adapter.buffer(frame.buffer);
        place.write(0, [0; HEADER as usize]);
        place.write(HEADER, self.probe.dst.0);
        place.write(HEADER + 6, self.mac.0);
        let sent = self.adapter.post_transmit(frame.buffer, HEADER + frame.bytes.len() as u32);
        self.sent.buffers.extend(sent.then_some(frame.buffer));
        sent
    }

    /// Publishes posted buffers, and takes sent ones back.
    pub(crate) fn publish(&mut self) {
        let mut back = [0; BURST];
        loop {
            let sent = self.adapter.reap_transmit(&mut back);
            back[..sent].iter().for_each(|buffer| self.sent.back(*buffer));
            self.free.extend_from_slice(&back[..sent]);
            if sent < BURST {
                break;
            }
        }
        self.refill();
        self.adapter.publish();
    }
}

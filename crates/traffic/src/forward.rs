//! A VNF that gives every frame a new destination and sends it on, as DPDK's testpmd does in `mac`
//! mode. Frames stay in their buffers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use guestmem::Pages;
use report::RingKind;
use virtq::BURST;
use wire::Mac;

use super::adapter::{Adapter, BUFFERS, HEADER, RingOptions};
use super::generate::frame;

/// One guest's forwarder.
#[derive(Debug)]
pub struct Forwarder {
    pub(super) adapter: Adapter,
    own: Mac,
    next: Mac,
    /// First twelve bytes of every sent frame.
    addresses: [u8; 12],
    free: Vec<u32>,
    /// Frames received.
    pub received: u64,
    /// Frames that the switch has taken.
    pub sent: u64,
    /// Frames dropped because the transmit ring was full.
    pub dropped: u64,
}

impl Forwarder {
    /// Attaches; frames are sent from `own` to `next`.
    pub fn attach(
        socket: &Path,
        addresses: (Mac, Mac),
        pages: Pages,
        ring: RingKind,
    ) -> Result<Forwarder> {
        let adapter = Adapter::attach_as(socket, RingOptions::of(ring), pages)?;
        Ok(Forwarder::on(adapter, addresses))
    }

    /// Forwards on an attached adapter.
    pub fn on(adapter: Adapter, (own, next): (Mac, Mac)) -> Forwarder {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&next.0);
        addresses[6..].copy_from_slice(&own.0);
        let free = (0..BUFFERS).rev().collect();
        let (received, sent, dropped) = (0, 0, 0);
        let mut forwarder =
            Forwarder { adapter, own, next, addresses, free, received, sent, dropped };
        forwarder.refill();
        forwarder.adapter.publish();
        forwarder
    }

    /// Sends new frames.
    ///
    /// # Errors
    /// There are fewer free buffers, or the ring is full.
    pub fn inject(&mut self, frame_bytes: u32, frames: u32) -> Result<()> {
        for number in 0..frames {
            let buffer = self.free.pop().context("no free buffer for a new frame")?;
            let frame = frame(self.own, self.next, frame_bytes, number)?;
            let place = self.adapter.buffer(buffer);
            place.write(0, [0; HEADER as usize]);
            place.skip(HEADER).write_bytes(&frame);
            let is_posted = self.adapter.post_transmit(buffer, HEADER + frame_bytes - 4);
            ensure!(is_posted, "the ring has no room for a new frame");
        }
        self.adapter.publish();
        Ok(())
    }

    /// Receives one burst without forwarding it; returns the number of frames moved.
    pub fn absorb(&mut self) -> u64 {
        let sent = self.take_back();
        let mut frames = [(0, 0); BURST];
        let received = self.adapter.reap_receive(&mut frames);
        self.free.extend(frames[..received].iter().map(|(buffer, _)| *buffer));
        self.received += received as u64;
        self.refill();
        self.adapter.publish();
        (received + sent) as u64
    }

    /// Forwards one burst; returns the number of frames moved.
    pub fn step(&mut self) -> u64 {
        let mut frames = [(0, 0); BURST];
        let received = self.adapter.reap_receive(&mut frames);
        let sent = self.take_back();
        for (buffer, _) in &frames[..received] {
            self.adapter.buffer(*buffer).prefetch_write(HEADER);
        }
        for (buffer, len) in &frames[..received] {
            self.forward(*buffer, *len);
        }
        self.received += received as u64;
        if received > 0 {
            self.refill();
        }
        if received + sent > 0 {
            self.adapter.publish();
        }
        (received + sent) as u64
    }

    /// Frees the buffers of all frames that the switch has taken; returns their number. Were some
    /// left, the ring might lack room: the frames of both ports can meet at one. So it comes after
    /// frames are received: in between the switch may return a burst, and deliver another.
    fn take_back(&mut self) -> usize {
        let mut all = 0;
        loop {
            let mut back = [0; BURST];
            let sent = self.adapter.reap_transmit(&mut back);
            self.free.extend_from_slice(&back[..sent]);
            all += sent;
            if sent < BURST {
                self.sent += all as u64;
                return all;
            }
        }
    }

    fn forward(&mut self, buffer: u32, len: u32) {
        let frame = self.adapter.buffer(buffer);
        frame.write(0, [0; HEADER as usize]);
        frame.write(HEADER, self.addresses);
        if !self.adapter.post_transmit(buffer, len) {
            self.free.push(buffer);
            self.dropped += 1;
        }
    }

    /// Posts free receive buffers while there is room; other buffers return from the transmit ring.
    fn refill(&mut self) {
        while self.adapter.rx.room() > 0 {
            let Some(buffer) = self.free.pop() else { return };
            self.adapter.post_receive(buffer);
        }
    }
}

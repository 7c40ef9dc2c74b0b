//! A VNF: it gives every frame a new destination and sends it on, as DPDK's testpmd does in its
//! `mac` mode. The frame stays in its buffer.

use std::path::Path;

use anyhow::{Context, Result};
use virtq::{BURST, Segment, Used};
use wire::Mac;

use super::adapter::{Adapter, BUFFERS, HEADER, RING};

/// One guest's forwarder.
#[derive(Debug)]
pub struct Forwarder {
    adapter: Adapter,
    /// The first twelve bytes of every frame it sends.
    addresses: [u8; 12],
    free: Vec<u32>,
    /// Which buffer each descriptor holds.
    receiving: Box<[u32]>,
    sending: Box<[u32]>,
    /// Frames received.
    pub received: u64,
    /// Frames that the switch has taken.
    pub sent: u64,
    /// Frames given up because the transmit ring was full.
    pub dropped: u64,
}

impl Forwarder {
    /// Attaches. Frames go out from `own` to `next`.
    pub fn attach(socket: &Path, own: Mac, next: Mac) -> Result<Forwarder> {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&next.0);
        addresses[6..].copy_from_slice(&own.0);
        let places = || vec![0; usize::from(RING)].into_boxed_slice();
        let mut forwarder = Forwarder {
            adapter: Adapter::attach(socket, false)?,
            addresses,
            free: (0..BUFFERS).rev().collect(),
            receiving: places(),
            sending: places(),
            received: 0,
            sent: 0,
            dropped: 0,
        };
        forwarder.refill().context("a new ring has room")?;
        forwarder.adapter.publish();
        Ok(forwarder)
    }

    /// Forwards one burst; says how many frames moved.
    pub fn step(&mut self) -> u64 {
        let mut used = [Used::default(); BURST];
        let sent = self.adapter.tx.reap(&mut used);
        self.free.extend(used[..sent].iter().map(|used| self.sending[usize::from(used.id)]));
        self.sent += sent as u64;

        let received = self.adapter.rx.reap(&mut used);
        for used in &used[..received] {
            let buffer = self.receiving[usize::from(used.id)];
            self.adapter.buffer(buffer).prefetch_write(HEADER);
        }
        for used in &used[..received] {
            self.forward(self.receiving[usize::from(used.id)], used.len);
        }
        self.received += received as u64;
        if received > 0 {
            let _ = self.refill(); // none free: they come back from the transmit ring
        }
        if received + sent > 0 {
            self.adapter.publish();
        }
        (received + sent) as u64
    }

    fn forward(&mut self, buffer: u32, len: u32) {
        let frame = self.adapter.buffer(buffer);
        frame.write(0, [0; HEADER as usize]);
        frame.write(HEADER, self.addresses);
        let addr = self.adapter.address(buffer);
        match self.adapter.tx.post(Segment { addr, len, writable: false }) {
            Some(id) => self.sending[usize::from(id)] = buffer,
            None => {
                self.free.push(buffer);
                self.dropped += 1;
            }
        }
    }

    /// Posts receive buffers while there is room; `None` if it ran out of buffers.
    fn refill(&mut self) -> Option<()> {
        while self.adapter.rx.room() > 0 {
            let buffer = self.free.pop()?;
            let id = self.adapter.post_receive(buffer)?;
            self.receiving[usize::from(id)] = buffer;
        }
        Some(())
    }
}

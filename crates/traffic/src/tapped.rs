//! Guests on the path virtio: like the device model of a VMM without vhost, each reads and writes
//! single frames through a tap that is a port of the host's bridge.
//!
//! They are the counterparts of [`Generator`](super::Generator) and
//! [`Forwarder`](super::Forwarder). A tap reports no completion, so the generator limits the frames
//! that have not come back; lost ones are written off after a silence.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use host::links::Links;
use host::tsc;
use host::tun;
use virtq::BURST;
use wire::Mac;

use super::generate::{GeneratorConfig, IN_FLIGHT, SEQUENCE_AT, frame};
use super::relay::only_queue;
use crate::protocol::TapSpec;

/// Bytes of the virtio-net header before each frame.
const HEADER: usize = tun::HEADER_LEN as usize;
/// Bytes of the longest received frame with its header.
const BUFFER: usize = 2048;
/// Silence after which the frames in flight count as lost.
const SILENCE: Duration = Duration::from_millis(100);

/// A tap that is a port of a bridge.
#[derive(Debug)]
pub(super) struct TapAdapter {
    queue: OwnedFd,
    buffer: Box<[u8; BUFFER]>,
}

impl TapAdapter {
    /// Makes the tap, and joins it to its bridge.
    pub(super) fn attach(place: &TapSpec) -> Result<TapAdapter> {
        // No offload: frames are complete, as those of a polling VNF.
        let queue = only_queue(tun::open(None, &place.name, 1, false)?)?;
        match &place.bridge {
            Some(bridge) => Links::open()?.join(&place.name, bridge)?,
            None => host::interface::Interfaces::of(None)?.set_up(&place.name, true)?,
        }
        Ok(TapAdapter { queue, buffer: Box::new([0; BUFFER]) })
    }

    /// Reads one frame with its header, if there is one.
    fn read(&mut self) -> Option<&mut [u8]> {
        let n = rustix::io::read(&self.queue, &mut self.buffer[..]).ok()?;
        Some(&mut self.buffer[..n])
    }

    fn write(&self, frame: &[u8]) -> bool {
        rustix::io::write(&self.queue, frame).is_ok()
    }
}

/// Sends as fast as frames come back, up to its limit in flight, and receives all frames.
#[derive(Debug)]
pub(super) struct TapGenerator {
    adapter: TapAdapter,
    frames: VecDeque<Vec<u8>>,
    in_flight: u64,
    unseen: u64,
    heard_at: u64,
    silence: u64,
    sequence: u64,
    sending: bool,
    /// Frames that the tap has taken.
    pub(super) sent: u64,
    /// Frames that came back.
    pub(super) received: u64,
}

impl TapGenerator {
    /// Attaches, and prepares a frame for each flow.
    pub(super) fn attach(place: &TapSpec, traffic: &GeneratorConfig<'_>) -> Result<TapGenerator> {
        let GeneratorConfig { flows, frame_bytes, in_flight, .. } = *traffic;
        ensure!(!flows.is_empty(), "a generator needs at least one flow");
        ensure!((1..=IN_FLIGHT).contains(&in_flight), "1 to {IN_FLIGHT} frames can be in flight");
        let one = |(source, destination): &(Mac, Mac)| {
            let frame = frame(*source, *destination, frame_bytes, 0)?;
            Ok([&[0; HEADER][..], &frame].concat())
        };
        Ok(TapGenerator {
            adapter: TapAdapter::attach(place)?,
            frames: flows.iter().map(one).collect::<Result<_>>()?,
            in_flight: in_flight.into(),
            unseen: 0,
            heard_at: tsc::now(),
            silence: tsc::duration_to_cycles(SILENCE),
            sequence: 0,
            sending: true,
            sent: 0,
            received: 0,
        })
    }

    /// Sends and receives at most a burst; returns the number of frames moved.
    pub(super) fn step(&mut self) -> u64 {
        let mut received = 0;
        while received < BURST as u64 && self.adapter.read().is_some() {
            received += 1;
        }
        self.received += received;
        self.unseen = self.unseen.saturating_sub(received);
        let now = tsc::now();
        if received > 0 {
            self.heard_at = now;
        } else if now.wrapping_sub(self.heard_at) > self.silence {
            (self.heard_at, self.unseen) = (now, 0);
        }
        received + if self.sending { self.send() } else { 0 }
    }

    fn send(&mut self) -> u64 {
        let mut sent = 0;
        while sent < BURST as u64 && self.unseen < self.in_flight {
            let Some(mut frame) = self.frames.pop_front() else { break };
            self.sequence += 1;
            let place = HEADER + SEQUENCE_AT as usize;
            frame[place..place + 8].copy_from_slice(&self.sequence.to_be_bytes());
            let taken = self.adapter.write(&frame);
            self.frames.push_back(frame);
            if !taken {
                break;
            }
            sent += 1;
            self.unseen += 1;
        }
        self.sent += sent;
        sent
    }

    /// Stops sending new frames.
    pub(super) fn stop(&mut self) {
        self.sending = false;
    }
}

/// A VNF that gives each frame another destination and sends it on.
#[derive(Debug)]
pub(super) struct TapForwarder {
    adapter: TapAdapter,
    /// First twelve bytes of every sent frame.
    addresses: [u8; 12],
    /// Frames received.
    pub(super) received: u64,
    /// Frames that the tap has taken.
    pub(super) sent: u64,
    /// Frames that the tap rejected.
    pub(super) dropped: u64,
}

impl TapForwarder {
    /// Attaches; frames are sent from `own` to `next`.
    pub(super) fn attach(place: &TapSpec, own: Mac, next: Mac) -> Result<TapForwarder> {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&next.0);
        addresses[6..].copy_from_slice(&own.0);
        let adapter = TapAdapter::attach(place)?;
        Ok(TapForwarder { adapter, addresses, received: 0, sent: 0, dropped: 0 })
    }

    /// Forwards at most one burst; returns the number of frames moved.
    pub(super) fn step(&mut self) -> u64 {
        let mut moved = 0;
        while moved < BURST as u64 {
            let Some(frame) = self.adapter.read() else { break };
            let n = frame.len();
            moved += 1;
            // Frames of others that the bridge floods, and its own, are not forwarded.
            let own = &self.addresses[6..];
            let head = frame.get_mut(HEADER..HEADER + 12).filter(|head| head[..6] == *own);
            let Some(head) = head else { continue };
            head.copy_from_slice(&self.addresses);
            self.received += 1;
            if self.adapter.write(&self.adapter.buffer[..n]) {
                self.sent += 1;
            } else {
                self.dropped += 1;
            }
        }
        moved
    }
}

/// Highest rate of writes to a tap without a reader, Mframes/s: the limit of a generator.
pub(super) fn self_test(name: &str, frame_bytes: u32, rounds: u32) -> Result<f64> {
    let place = TapSpec { name: format!("{name}-t"), bridge: None };
    let adapter = TapAdapter::attach(&place).context("no tap for the self-test")?;
    let nowhere = Mac([0x02, 0x5b, 0xff, 0xff, 0xff, 0xff]);
    let frame = [&[0; HEADER][..], &frame(nowhere, nowhere, frame_bytes, 0)?].concat();
    let begin = tsc::now();
    let frames = (0..rounds * 16).filter(|_| adapter.write(&frame)).count();
    let cycles = tsc::now().wrapping_sub(begin);
    Ok(frames as f64 / (cycles as f64 / tsc::hz()) / 1e6)
}

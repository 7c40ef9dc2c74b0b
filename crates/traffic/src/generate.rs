//! Frame generator, and the sink for returned frames.
//!
//! In a closed loop ([`GeneratorLoad::Closed`]) each returned frame triggers the next one, so the
//! number of frames in flight is constant, and no receiver with a larger ring must drop. Otherwise
//! a buffer is sent again as soon as the switch has taken it.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use guestmem::{GuestMemory, Pages, SharedFile};
use host::tsc;
use report::{GeneratorLoad, RingKind};
use virtq::{BURST, Content, DeviceQueue, DriverQueue, Features, Segment, Start, Used};
use wire::Mac;
use wire::probe::{Mark, Probe};

use super::adapter::{Adapter, HEADER, RING, RingOptions};

/// Default number of frames in flight: half a ring.
pub const IN_FLIGHT: u32 = RING as u32 / 2;

/// Most pieces of a frame: their table fills two buffers.
pub(crate) const PIECES_MAX: u32 = 256;

/// Offset of the sequence number. The UDP checksum is not updated, as no receiver checks it.
pub const SEQUENCE_AT: u32 = 44;

/// Settings of a generator.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorConfig<'a> {
    /// Source and destination of the frames, used in turn.
    pub flows: &'a [(Mac, Mac)],
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Frames in flight, 1 to [`IN_FLIGHT`].
    pub in_flight: u32,
    /// Trigger of the next frame.
    pub load: GeneratorLoad,
    /// Write a new sequence number into each frame and read each received one, as real guests do.
    /// Otherwise buffers are recycled unread, which is the highest rate a guest can offer.
    pub touch: bool,
    /// Pages of the guest's memory.
    pub pages: Pages,
    /// Rings of the adapter.
    pub ring: RingKind,
    /// Pieces of a frame, in an indirect table: 1, for a frame in one piece, to 256.
    pub pieces: u32,
}

/// Sends frames as fast as the ring takes them, and receives all frames.
#[derive(Debug)]
pub struct Generator {
    pub(super) adapter: Adapter,
    sending: bool,
    touch: bool,
    /// Closed loop: buffers that the switch has taken, the oldest first, and the number of frames
    /// to send for returned ones.
    closed: Option<Closed>,
    /// Bytes of a frame with its header.
    len: u32,
    sequence: u64,
    /// Frames that the switch has taken.
    pub sent: u64,
    /// Frames that came back.
    pub received: u64,
}

#[derive(Debug, Default)]
struct Closed {
    taken: VecDeque<u32>,
    owed: u64,
}

impl Generator {
    /// Attaches, and prepares the frames and twice as many receive buffers. The first step sends.
    pub fn attach(socket: &Path, traffic: &GeneratorConfig<'_>) -> Result<Generator> {
        let GeneratorConfig { flows, frame_bytes, in_flight, load, touch, pages, ring, pieces } =
            *traffic;
        let options = RingOptions { indirect: pieces > 1, ..RingOptions::of(ring) };
        let mut adapter = Adapter::attach_as(socket, options, pages)?;
        ensure!(!flows.is_empty(), "a generator needs at least one flow");
        ensure!((1..=IN_FLIGHT).contains(&in_flight), "1 to {IN_FLIGHT} frames can be in flight");
        ensure!((1..=PIECES_MAX).contains(&pieces), "a frame has 1 to {PIECES_MAX} pieces");
        let len = HEADER + frame_bytes.saturating_sub(4);
        for buffer in 0..in_flight {
            let (source, destination) = flows[buffer as usize % flows.len()];
            let frame = frame(source, destination, frame_bytes, buffer)?;
            let place = adapter.buffer(buffer);
            place.write(0, [0; HEADER as usize]);
            place.skip(HEADER).write_bytes(&frame);
            match pieces {
                1 => adapter.post_transmit(buffer, len),
                // The table is behind the frames: the same for all, which all send the first.
                _ => adapter.post_in_pieces(0, len, pieces, IN_FLIGHT),
            };
            for half in [0, in_flight] {
                adapter.post_receive(u32::from(RING) + half + buffer);
            }
        }
        let closed = (load == GeneratorLoad::Closed).then(Closed::default);
        let (sequence, sent, received) = (0, 0, 0);
        Ok(Generator { adapter, sending: true, touch, closed, len, sequence, sent, received })
    }

    /// Attaches, and fills the receive ring with buffers. Sends nothing.
    pub fn attach_sink(socket: &Path, touch: bool, pages: Pages) -> Result<Generator> {
        let mut adapter = Adapter::attach(socket, false, pages)?;
        for buffer in 0..u32::from(RING) {
            adapter.post_receive(buffer);
        }
        adapter.publish();
        let (len, sequence, sent, received) = (0, 0, 0, 0);
        let (sending, closed) = (false, None);
        Ok(Generator { adapter, sending, touch, closed, len, sequence, sent, received })
    }

    /// Sends and receives one burst; returns the number of frames moved.
    pub fn step(&mut self) -> u64 {
        let received = if self.touch { self.look() } else { self.adapter.rx.recycle().into() };
        let sent = match (self.sending, self.touch) {
            (true, _) if self.closed.is_some() => self.answer(received),
            (true, false) => self.adapter.tx.recycle().into(),
            (sending, _) => self.renew(sending),
        };
        self.received += received;
        self.sent += sent;
        self.adapter.publish();
        received + sent
    }

    /// Recycles buffers unchanged: received ones if `hears`, sent ones if `speaks`, which sends
    /// them again. Returns the number of frames moved.
    pub fn recycle(&mut self, hears: bool, speaks: bool) -> u64 {
        let received = if hears { self.adapter.rx.recycle().into() } else { 0 };
        let sent = if speaks { self.adapter.tx.recycle().into() } else { 0 };
        self.received += received;
        self.sent += sent;
        self.adapter.publish();
        received + sent
    }

    /// Takes sent frames back, and if `again`, sends them with new sequence numbers.
    fn renew(&mut self, again: bool) -> u64 {
        let mut back = [0; BURST];
        let n = self.adapter.reap_transmit(&mut back);
        for buffer in back[..n].iter().filter(|_| again) {
            self.sequence += 1;
            let sequence = self.sequence.to_be_bytes();
            self.adapter.buffer(*buffer).write(HEADER + SEQUENCE_AT, sequence);
            self.adapter.post_transmit(*buffer, self.len);
        }
        n as u64
    }

    /// Takes sent frames back, and sends one for each returned frame. Returns the number taken
    /// back.
    fn answer(&mut self, came_back: u64) -> u64 {
        let Some(closed) = &mut self.closed else { return 0 };
        let mut back = [0; BURST];
        let n = self.adapter.reap_transmit(&mut back);
        closed.taken.extend(&back[..n]);
        closed.owed += came_back;
        let next = closed.owed.min(closed.taken.len() as u64);
        closed.owed -= next;
        for buffer in closed.taken.drain(..next as usize) {
            if self.touch {
                self.sequence += 1;
                let sequence = self.sequence.to_be_bytes();
                self.adapter.buffer(buffer).write(HEADER + SEQUENCE_AT, sequence);
            }
            self.adapter.post_transmit(buffer, self.len);
        }
        n as u64
    }

    /// Receives frames, reads their headers, and recycles the buffers.
    fn look(&mut self) -> u64 {
        let mut frames = [(0, 0); BURST];
        let n = self.adapter.reap_receive(&mut frames);
        for (buffer, _) in &frames[..n] {
            std::hint::black_box(self.adapter.buffer(*buffer).skip(HEADER).read_header());
            self.adapter.post_receive(*buffer);
        }
        n as u64
    }

    /// Stops sending new frames.
    pub fn stop(&mut self) {
        self.sending = false;
    }
}

/// A test frame without FCS: IPv4, UDP, sequence number.
pub fn frame(source: Mac, destination: Mac, frame_bytes: u32, sequence: u32) -> Result<Vec<u8>> {
    let mut frame = vec![0; frame_bytes.saturating_sub(4) as usize];
    // Addresses of the benchmark range (RFC 2544), and the discard port.
    let probe = Probe {
        dst: destination,
        src: source,
        dst_ip: Ipv4Addr::new(198, 18, 0, 2),
        src_ip: Ipv4Addr::new(198, 18, 0, 1),
        dst_port: 9,
        src_port: 9,
    };
    let mark = Mark { sequence: sequence.into(), ..Mark::default() };
    probe.emit(mark, &mut frame).with_context(|| format!("frames of {frame_bytes} bytes"))?;
    Ok(frame)
}

/// Highest rate of a generator on this CPU into an instant sink, Mframes/s: times only the
/// generator's own work.
pub fn self_test(frame_bytes: u32, load: GeneratorLoad, rounds: u32) -> Result<f64> {
    let base = 1 << 32;
    let file = SharedFile::create("self-test", 8 << 20, Pages::Ordinary)?;
    let memory: Arc<GuestMemory> = virtq::guest_memory(&file, base)?;
    let mut tx = DriverQueue::new(memory.clone(), base, RING, Features::empty())?;
    let content = Content::Readable { header: HEADER, keep: false };
    let mut sink = DeviceQueue::new(
        memory,
        &tx.addresses(),
        RING,
        Features::empty(),
        content,
        Start::default(),
    )?;
    let segment = |buffer| {
        let addr = base + DriverQueue::bytes(RING) + u64::from(buffer) * 2048;
        Segment { addr, len: HEADER + frame_bytes - 4, writable: false }
    };
    // Buffer held by each descriptor, as in an adapter.
    let mut sending = vec![0; usize::from(RING)];
    for buffer in 0..IN_FLIGHT {
        let id = tx.post(segment(buffer)).context("the ring has room for all")?;
        sending[usize::from(id)] = buffer;
    }
    tx.publish();
    let (mut frames, mut cycles) = (0u64, 0);
    for _ in 0..rounds {
        while sink.stage(BURST) > 0 {
            sink.add_used_all();
        }
        sink.publish();
        let begin = tsc::now();
        match load {
            GeneratorLoad::Overload => frames += u64::from(tx.recycle()),
            GeneratorLoad::Closed => {
                let mut used = [Used::default(); BURST];
                let n = tx.reap(&mut used);
                frames += n as u64;
                for used in &used[..n] {
                    let buffer = sending[usize::from(used.id)];
                    let id = tx.post(segment(buffer)).context("its place is free")?;
                    sending[usize::from(id)] = buffer;
                }
            }
        }
        tx.publish();
        cycles += tsc::now().wrapping_sub(begin);
    }
    Ok(frames as f64 / (cycles as f64 / tsc::hz()) / 1e6)
}

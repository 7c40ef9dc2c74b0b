//! A generator of frames, and the sink for what comes back.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use guestmem::{GuestMemory, Pages, SharedFile};
use host::tsc;
use virtq::{BURST, Content, DeviceQueue, DriverQueue, Features, Segment};
use wire::Mac;
use wire::probe::{Mark, Probe};

use super::adapter::{Adapter, HEADER, RING};

/// Frames it keeps in flight: half a ring.
const IN_FLIGHT: u32 = RING as u32 / 2;

/// Sends the same frames again and again, as fast as the ring takes them.
#[derive(Debug)]
pub struct Generator {
    adapter: Adapter,
    sending: bool,
    /// Frames that the switch has taken.
    pub sent: u64,
    /// Frames that came back.
    pub received: u64,
}

impl Generator {
    /// Attaches, and prepares frames of `frame_bytes` (with FCS) for the `flows` (source,
    /// destination) in turn. Nothing is sent before the first step.
    pub fn attach(socket: &Path, flows: &[(Mac, Mac)], frame_bytes: u32) -> Result<Generator> {
        let mut adapter = Adapter::attach(socket, false)?;
        ensure!(!flows.is_empty(), "a generator needs at least one flow");
        for buffer in 0..IN_FLIGHT {
            let (source, destination) = flows[buffer as usize % flows.len()];
            let frame = frame(source, destination, frame_bytes, buffer)?;
            let place = adapter.buffer(buffer);
            place.write(0, [0; HEADER as usize]);
            place.skip(HEADER).write_bytes(&frame);
            let addr = adapter.address(buffer);
            let len = HEADER + frame.len() as u32;
            adapter.tx.post(Segment { addr, len, writable: false });
        }
        for buffer in 0..u32::from(RING) {
            adapter.post_receive(u32::from(RING) + buffer).context("the ring was empty")?;
        }
        Ok(Generator { adapter, sending: true, sent: 0, received: 0 })
    }

    /// Sends and receives what there is; says how many frames moved.
    pub fn step(&mut self) -> u64 {
        let received = u64::from(self.adapter.rx.recycle());
        self.received += received;
        let sent = if self.sending {
            u64::from(self.adapter.tx.recycle())
        } else {
            // Taken back and not sent again.
            let mut used = [Default::default(); BURST];
            self.adapter.tx.reap(&mut used) as u64
        };
        self.sent += sent;
        self.adapter.publish();
        received + sent
    }

    /// Sends nothing new from now on.
    pub fn stop(&mut self) {
        self.sending = false;
    }
}

/// One test frame without FCS: IPv4, UDP, a sequence number.
fn frame(source: Mac, destination: Mac, frame_bytes: u32, sequence: u32) -> Result<Vec<u8>> {
    let mut frame = vec![0; frame_bytes.saturating_sub(4) as usize];
    // Addresses of the range for benchmarks (RFC 2544), and the discard port.
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

/// How many million frames a second the generator could send on this CPU if its sink took them at
/// once: only the generator's own part is timed.
pub fn self_test(frame_bytes: u32, rounds: u32) -> Result<f64> {
    let base = 1 << 32;
    let file = SharedFile::create("self-test", 8 << 20, Pages::Ordinary)?;
    let memory: Arc<GuestMemory> = virtq::guest_memory(&file, base)?;
    let mut tx = DriverQueue::new(memory.clone(), base, RING, Features::empty())?;
    let content = Content::Readable { header: HEADER };
    let mut sink = DeviceQueue::new(memory, &tx.addresses(), RING, Features::empty(), content)?;
    for buffer in 0..u64::from(IN_FLIGHT) {
        let addr = base + DriverQueue::bytes(RING) + buffer * 2048;
        tx.post(Segment { addr, len: HEADER + frame_bytes - 4, writable: false });
    }
    tx.publish();
    let (mut frames, mut cycles) = (0u64, 0);
    for _ in 0..rounds {
        while sink.stage(BURST) > 0 {
            sink.use_all();
        }
        sink.publish();
        let begin = tsc::now();
        frames += u64::from(tx.recycle());
        tx.publish();
        cycles += tsc::now().wrapping_sub(begin);
    }
    Ok(frames as f64 / (cycles as f64 / tsc::hz()) / 1e6)
}

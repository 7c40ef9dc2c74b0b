//! Silent guests, one of which wakes the daemon from time to time.
//!
//! All adapters post receive buffers, as a guest's driver does, and then no frame moves. The thread
//! sleeps until the parent starts it, so that the parent can measure the idle cost. Then the first
//! adapter sends single frames to the second, each after a silence of random length, and the thread
//! polls until the frame is in the receive ring. It kicks if the ring asks for it. The measured
//! time includes the system call, the lane's wake-up, its poll of all rings, and the copy.
//!
//! After each frame and another silence, the same is measured for a thread on the lane's CPU that
//! only sleeps on an eventfd: the [`floor`] of wake-up time on this machine under its present load.

mod floor;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use guestmem::Pages;
use hdrhistogram::Histogram;
use host::tsc;
use report::statistics::random::Random;
use virtq::BURST;
use wire::Mac;

use super::adapter::{Adapter, HEADER, RING};
use super::generate::frame;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::probe::{ProbeResult, ProbeSpec, WakeTimes};
use floor::Floor;

/// Bytes of the frames, with FCS.
const FRAME: u32 = 64;
/// Longest wait for a frame; a later one is lost.
const LOST: Duration = Duration::from_secs(5);
/// Index of the transmit buffer.
const SEND: u32 = RING as u32;

/// Attaches, stays silent, then measures.
pub fn run(spec: &ProbeSpec) -> Result<()> {
    // Started first: a thread inherits the CPU mask of its parent.
    let floor = Floor::start(spec.lane_cpu)?;
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let attach = |socket: &PathBuf| {
        let mut adapter = Adapter::attach(socket, true, Pages::Ordinary)?;
        for buffer in 0..u32::from(RING) {
            adapter.post_receive(buffer);
        }
        adapter.publish();
        Ok(adapter)
    };
    let mut adapters = spec.sockets.iter().map(attach).collect::<Result<Vec<_>>>()?;
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    let [from, to, ..] = &mut adapters[..] else { bail!("two guests are needed") };
    let result = measure(spec, from, to, &floor)?;
    send_event(&Event::Probed(result))
}

fn measure(
    spec: &ProbeSpec,
    from: &mut Adapter,
    to: &mut Adapter,
    floor: &Floor,
) -> Result<ProbeResult> {
    let mac = |text: &str| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let [source, destination] = [mac(&spec.macs[0])?, mac(&spec.macs[1])?];
    let bytes = frame(source, destination, FRAME, 0)?;
    let place = from.buffer(SEND);
    place.write(0, [0; HEADER as usize]);
    place.skip(HEADER).write_bytes(&bytes);

    let mut random = Random::new(spec.seed);
    let awake = spec.cpu.is_some();
    let mut silence = || {
        let (least, most) = spec.silence_us;
        pause(Duration::from_micros(random.between(least, most)), awake);
    };
    let new = || Histogram::<u64>::new_with_bounds(1, LOST.as_nanos() as u64, 3);
    let (mut wake, mut bare) = (new()?, new()?);
    let ns = |begin, end: u64| tsc::cycles_to_ns(end.wrapping_sub(begin)) as u64;
    let mut kicks = 0;
    // The first frames bring no silence and are not timed: each buffer's page is new to the lane,
    // whose page fault takes longer than its wake-up.
    let untimed = u64::from(RING);
    for number in 0..untimed + spec.frames {
        let is_timed = number >= untimed;
        if is_timed {
            silence();
        }
        let begin = tsc::now();
        from.post_transmit(SEND, HEADER + bytes.len() as u32);
        let is_kicked = from.publish();
        let end = wait_until(awake, || (to.rx.used_len() > 0).then(tsc::now))
            .with_context(|| format!("frame {number} did not arrive"))?;
        to.rx.recycle();
        to.publish();
        let back = || (from.reap_transmit(&mut [0; BURST]) > 0).then_some(());
        wait_until(awake, back).context("a sent frame's buffer did not come back")?;
        if !is_timed {
            continue;
        }
        wake.saturating_record(ns(begin, end));
        kicks += u64::from(is_kicked);

        silence();
        let begin = tsc::now();
        floor.kick();
        let end = wait_until(awake, || floor.woken()).context("a thread did not wake up")?;
        bare.saturating_record(ns(begin, end));
    }
    Ok(ProbeResult {
        samples: wake.len(),
        kicks,
        wake: WakeTimes::of(&wake),
        floor: WakeTimes::of(&bare),
    })
}

/// Waits. With a CPU of its own the guest stays awake, as one that polls does: the result is then
/// the daemon's wake-up time and not this thread's.
fn pause(time: Duration, awake: bool) {
    if !awake {
        return std::thread::sleep(time);
    }
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Polls until `ask` returns a value.
fn wait_until<T>(awake: bool, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        for _ in 0..1000 {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if awake {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now(); // the lane may need this CPU
            }
        }
        if begin.elapsed() > LOST {
            bail!("waited for {LOST:?}");
        }
    }
}

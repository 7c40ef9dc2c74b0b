//! Hostile guest and hostile front-end: violates every rule of virtio and vhost-user at full speed.
//!
//! # Model
//! The process attaches to four VFs. Two *far* VFs have a VLAN of their own, and everything is
//! tried on them. A *courier* on the same VLAN follows the rules and sends valid frames to the far
//! VFs, so that the daemon also reads their receive rings. The *near* VF is on the honest guests'
//! VLAN.
//!
//! A burst is one batch of up to 64 descriptors, most of them mutated ([`bursts`]), made available
//! on one ring. A volley is a burst on every ring of a VF. The process then waits until the daemon
//! has consumed or stopped the transmit rings, and restarts the stopped ones with `GET_VRING_BASE`
//! and a kick, sometimes at another size or address. Now and then the connection itself is mutated
//! instead of a volley ([`control`]).
//!
//! # Promise to the honest guests
//! A NIC does not promise that a receive ring never overflows: a guest on the same VLAN may flood
//! it, and a frame without a buffer is lost. So the near VF sends at most 256 frames and then stops
//! its ring until two turns of the honest guests have ended ([`TurnCounter`]): they have received
//! its frames, and have as many buffers again. Every frame lost after that was lost by the daemon.
//!
//! # Limits
//! The daemon's speed affects the run: a seed repeats the choices, not their timing.

mod bursts;
mod connection;
mod control;
mod edge_values;
mod frames;
mod memory;
mod near;
mod session;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use guestmem::Pages;
use report::statistics::random::Random;
use virtq::BURST;
use wire::Mac;

use super::adapter::{Adapter, HEADER, RING};
use super::turn_counter::TurnCounter;
use crate::generate;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::hostile::{HostileResult, HostileSpec, HostileVf};
use frames::GuestAddresses;
use near::Near;
use session::{PATIENCE, Session};

/// Queue pairs of each far VF.
pub const FAR_PAIRS: u16 = 2;
/// Frames that the courier sends for each volley.
const COURIER_FRAMES: u32 = 64;
/// Interval of progress events.
const PROGRESS: Duration = Duration::from_millis(500);

/// Attaches, waits for the parent, sends all bursts, and reports.
pub fn run(spec: &HostileSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mut hostile = Hostile::new(spec)?;
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    let mut next = Instant::now();
    while hostile.result.bursts < spec.bursts {
        hostile.act()?;
        if Instant::now() >= next {
            send_event(&Event::Progress { bursts: hostile.result.bursts })?;
            next = Instant::now() + PROGRESS;
        }
    }
    let sessions = hostile.far.iter().chain([&hostile.near.session]);
    for session in sessions {
        hostile.result.restarts += session.restarts;
        hostile.result.reconnects += session.connects.saturating_sub(1);
    }
    send_event(&Event::Hostile(hostile.result))
}

struct Hostile {
    far: [Session; 2],
    near: Near,
    courier: Courier,
    random: Random,
    result: HostileResult,
}

impl Hostile {
    fn new(spec: &HostileSpec) -> Result<Hostile> {
        let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
        let honest = spec.honest.iter().map(mac).collect::<Result<Vec<_>>>()?;
        let [first, second] = [mac(&spec.far[0].mac)?, mac(&spec.far[1].mac)?];
        let mut random = Random::new(spec.seed);
        let courier = Courier::attach(&spec.courier, [first, second])?;
        let far = |target: &HostileVf, own, peers: [Mac; 2]| {
            let cast = GuestAddresses { own, peers: peers.to_vec(), honest: honest.clone() };
            Session::new(&target.socket, FAR_PAIRS, memory::SIZE_MAX, cast)
        };
        let mut far = [
            far(&spec.far[0], first, [second, courier.mac])?,
            far(&spec.far[1], second, [first, courier.mac])?,
        ];
        for session in &mut far {
            session.attach(&mut random)?;
        }
        let own = mac(&spec.near.mac)?;
        let cast = GuestAddresses { own, peers: honest.clone(), honest };
        let session = Session::new(&spec.near.socket, 1, near::RING_MAX, cast)?;
        let near = Near::attach(session, TurnCounter::open(&spec.pace)?, &mut random)?;
        Ok(Hostile { far, near, courier, random, result: HostileResult::default() })
    }

    /// One volley, or one mutation of a connection.
    fn act(&mut self) -> Result<()> {
        let Hostile { far, near, courier, random, result } = self;
        match random.below(100) {
            0..8 => near.act(random, result),
            8..11 => {
                let session = &mut far[random.below(2) as usize];
                control::mutate(session, random, result)
            }
            _ => {
                let at = random.below(2) as usize;
                far[at].attach(random)?;
                let sent = far[at].volley(random, result);
                courier.send(at)?;
                let waiting = far[at].wait(&sent, PATIENCE);
                result.unanswered += waiting;
                far[at].start_stopped_rings(random);
                Ok(())
            }
        }
    }
}

/// Guest that follows the rules and sends valid frames to the far VFs.
struct Courier {
    adapter: Adapter,
    mac: Mac,
    /// Length of the posted frames; the first buffers hold them, those for the first VF first.
    frame_len: u32,
}

impl Courier {
    fn attach(target: &HostileVf, to: [Mac; 2]) -> Result<Courier> {
        let mac: Mac = target.mac.parse().with_context(|| format!("address {}", target.mac))?;
        let mut adapter = Adapter::attach(&target.socket, true, Pages::Ordinary)?;
        for (i, to) in to.into_iter().enumerate() {
            for n in 0..COURIER_FRAMES {
                let buffer = adapter.buffer(i as u32 * COURIER_FRAMES + n);
                let frame = generate::frame(mac, to, 256, n)?;
                buffer.write(0, [0; HEADER as usize]);
                buffer.skip(HEADER).write_bytes(&frame);
            }
        }
        for buffer in 0..u32::from(RING) {
            adapter.post_receive(u32::from(RING) + buffer);
        }
        adapter.publish();
        Ok(Courier { adapter, mac, frame_len: 252 })
    }

    /// Sends its frames to one of the VFs, and waits until the daemon has taken them.
    fn send(&mut self, to: usize) -> Result<()> {
        for n in 0..COURIER_FRAMES {
            let buffer = to as u32 * COURIER_FRAMES + n;
            let room = self.adapter.post_transmit(buffer, HEADER + self.frame_len);
            ensure!(room, "the courier's ring is full");
        }
        self.adapter.publish();
        let begin = Instant::now();
        let mut left = COURIER_FRAMES as usize;
        while left > 0 {
            left -= self.adapter.reap_transmit(&mut [0; BURST]);
            self.adapter.rx.recycle(); // the far VFs send to the courier as well
            self.adapter.publish();
            if left > 0 {
                std::thread::yield_now();
                let late = begin.elapsed() > Duration::from_secs(60);
                ensure!(!late, "the daemon no longer takes the courier's frames");
            }
        }
        Ok(())
    }
}

//! Guest with two ports, each of which returns every frame to its sender.
//!
//! # Model
//! A port is a [`Forwarder`] whose next hop is the other port: a frame from port 0 reaches port 1
//! through the switch, gets new addresses and goes back. Frames thus circulate until they are
//! drained. The guest listens on both sockets, and switches connect. It polls without sleeping
//! while frames move. Commands are lines of JSON on standard input; each is answered by
//! [`Reflected`].

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use guestmem::Pages;
use vhost_user::Listener;
use wire::Mac;

use super::adapter::{Adapter, RingOptions};
use crate::forward::Forwarder;
use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::reflect::{Command, ReflectSpec, Reflected};

/// Turns of both ports between two polls for a command.
const TURNS: u32 = 64;
/// Time without a frame after which no more come.
const QUIET: Duration = Duration::from_millis(100);
/// Longest time to drain all frames; the switch may have no CPU for a while.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Attaches both ports and serves commands until standard input ends.
///
/// # Errors
/// A port cannot attach, or standard output is closed.
pub fn run(spec: &ReflectSpec) -> Result<()> {
    host::cpu::pin_this_thread(spec.cpu)?;
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let [a, b] = [mac(&spec.macs[0])?, mac(&spec.macs[1])?];
    let options = RingOptions { mergeable: spec.mergeable, ..RingOptions::of(spec.ring) };
    // Both first: some switches connect only once, in any order.
    let [first, second] = [Listener::bind(&spec.sockets[0])?, Listener::bind(&spec.sockets[1])?];
    let port = |listener: &Listener, addresses| -> Result<Forwarder> {
        Ok(Forwarder::on(Adapter::accept(listener, options, Pages::Collapsed)?, addresses))
    };
    let ports = [port(&first, (a, b))?, port(&second, (b, a))?];
    let (start, is_draining, drained) = (Instant::now(), true, 0);
    let mut guest = Reflector { ports, start, is_draining, in_flight: 0, drained };
    send_event(&Event::Ready)?;
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    guest.serve(&commands)
}

struct Reflector {
    ports: [Forwarder; 2],
    start: Instant,
    is_draining: bool,
    /// Frames that were injected since the last drain.
    in_flight: u64,
    drained: u64,
}

impl Reflector {
    fn serve(&mut self, commands: &Receiver<String>) -> Result<()> {
        loop {
            let moved: u64 = (0..TURNS).map(|_| self.turn()).sum();
            if moved == 0 {
                std::thread::yield_now(); // the switch may need this CPU
            }
            match commands.try_recv() {
                Ok(line) => {
                    let command = serde_json::from_str(&line);
                    self.obey(command.with_context(|| format!("not a command: {line:?}"))?)?;
                    send_event(&Event::Reflected(Reflected {
                        received: self.received(),
                        drained: self.drained,
                        seconds: self.start.elapsed().as_secs_f64(),
                        features: [0, 1].map(|i| self.ports[i].adapter.features),
                    }))?;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    /// One burst of each port; returns the number of frames moved.
    fn turn(&mut self) -> u64 {
        let is_draining = self.is_draining;
        let one = |port: &mut Forwarder| if is_draining { port.absorb() } else { port.step() };
        self.ports.iter_mut().map(one).sum()
    }

    fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.received).sum()
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Count => {}
            Command::Inject { frame_bytes, frames } => {
                self.is_draining = false;
                for port in &mut self.ports {
                    port.inject(frame_bytes, frames)?;
                    self.in_flight += u64::from(frames);
                }
            }
            Command::Drain => {
                self.is_draining = true;
                let (begin, before) = (Instant::now(), self.received());
                let mut moved_at = begin;
                while begin.elapsed() < DRAIN_MAX {
                    match self.turn() {
                        0 => std::thread::yield_now(),
                        _ => moved_at = Instant::now(),
                    }
                    let is_complete = self.received() - before >= self.in_flight;
                    if is_complete && moved_at.elapsed() >= QUIET {
                        break;
                    }
                }
                self.drained = self.received() - before;
                self.in_flight = 0;
            }
        }
        Ok(())
    }
}

//! Thread that hosts a process's guests: each has a turn of one burst.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use guestmem::Pages;
use host::tsc;
use wire::Mac;

use report::GeneratorLoad;

use super::paced::Paced;
use super::tapped::{self, TapForwarder, TapGenerator};
use crate::forward::Forwarder;
use crate::generate::{Generator, GeneratorConfig, self_test};
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::{
    AdapterBackend, Event, GuestCounts, GuestResult, GuestSpec, HostedGuest, Role,
};

/// Rounds of the generator's self-test.
const SELF_TEST_ROUNDS: u32 = 2000;
/// Turns of all guests between two readings of the clock.
const TURNS: u32 = 64;
/// Longest time that frames may move after the generators stopped.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Runs a specification; the module's documentation lists its events.
pub(crate) fn run(spec: &GuestSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let generator_limit_mpps = limit(spec)?;
    let guests = spec.guests.iter().map(|guest| Hosted::attach(guest, spec));
    let mut host = Host { guests: guests.collect::<Result<_>>()?, ..Host::default() };
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    host.run_for(Duration::from_secs_f64(spec.warmup_s), None);
    for guest in &mut host.guests {
        if let Hosted::Paced(paced) = guest {
            paced.begin();
        }
    }
    send_event(&Event::Begin)?;
    let before = host.clone_counts();
    let cycles = host.run_for(Duration::from_secs_f64(spec.seconds), None);
    let after = host.clone_counts();
    send_event(&Event::End)?;
    for guest in &mut host.guests {
        guest.stop();
    }
    host.run_for(DRAIN_MAX, Some(Duration::from_secs_f64(spec.quiet_s)));
    let last = host.clone_counts();
    let total = |what: fn(&GuestCounts) -> u64| {
        last.guests.iter().filter(|guest| guest.generator).map(what).sum::<u64>()
    };
    let share = |after: u64, before: u64| (after - before) as f64 / cycles as f64;
    let guests = after.guests.iter().zip(&before.guests).map(|(after, before)| GuestCounts {
        generator: after.generator,
        received: after.received - before.received,
        sent: after.sent - before.sent,
        dropped: after.dropped - before.dropped,
    });
    send_event(&Event::Result(GuestResult {
        seconds: cycles as f64 / tsc::hz(),
        large_pages: host.guests.iter().all(Hosted::has_large_pages),
        guests: guests.collect(),
        generator_share: share(after.generator_cycles, before.generator_cycles),
        forwarder_share: share(after.forwarder_cycles, before.forwarder_cycles),
        generator_limit_mpps,
        generated: total(|guest| guest.sent),
        returned: total(|guest| guest.received),
        paced: host.guests.iter().find_map(|guest| match guest {
            Hosted::Paced(paced) => Some(paced.result()),
            _ => None,
        }),
    }))
}

/// Highest offered rate of a generator, by the kind of its adapter.
fn limit(spec: &GuestSpec) -> Result<f64> {
    let taps = spec.guests.iter().find_map(|guest| match &guest.place {
        AdapterBackend::Tap(tap) => Some(&tap.name),
        AdapterBackend::Socket(_) => None,
    });
    match taps {
        Some(name) => tapped::self_test(name, spec.frame_bytes, SELF_TEST_ROUNDS),
        None => {
            let load = spec.guests.iter().find_map(|guest| match guest.role {
                Role::Generate { load, .. } => Some(load),
                Role::Pace { .. } | Role::Sink | Role::Forward { .. } => None,
            });
            self_test(spec.frame_bytes, load.unwrap_or_default(), SELF_TEST_ROUNDS)
        }
    }
}

#[derive(Debug)]
enum Hosted {
    Generator(Generator),
    Sink(Generator),
    Forwarder(Forwarder),
    TapGenerator(TapGenerator),
    TapForwarder(TapForwarder),
    Paced(Box<Paced>),
}

fn mac(text: &str) -> Result<Mac> {
    text.parse().with_context(|| format!("address {text}"))
}

fn macs(flows: &[(String, String)]) -> Result<Vec<(Mac, Mac)>> {
    flows.iter().map(|(from, to)| Ok((mac(from)?, mac(to)?))).collect()
}

impl Hosted {
    fn attach(guest: &HostedGuest, spec: &GuestSpec) -> Result<Hosted> {
        let pages = if spec.huge_pages { Pages::Huge2M } else { Pages::Collapsed };
        let (frame_bytes, ring) = (spec.frame_bytes, spec.ring);
        let config = |flows, in_flight, load, touch| GeneratorConfig {
            flows,
            frame_bytes,
            in_flight,
            load,
            touch,
            pages,
            ring,
            pieces: 1,
        };
        Ok(match (&guest.role, &guest.place) {
            (Role::Generate { flows, in_flight, load, touch }, place) => {
                let flows = &macs(flows)?[..];
                let (in_flight, load, touch) = (*in_flight, *load, *touch);
                let traffic = config(flows, in_flight, load, touch);
                match place {
                    AdapterBackend::Socket(socket) => {
                        Hosted::Generator(Generator::attach(socket, &traffic)?)
                    }
                    AdapterBackend::Tap(tap) => {
                        Hosted::TapGenerator(TapGenerator::attach(tap, &traffic)?)
                    }
                }
            }
            (Role::Pace { flows, in_flight, load_fps, burst }, AdapterBackend::Socket(socket)) => {
                let flows = &macs(flows)?[..];
                let (in_flight, load, touch) = (*in_flight, GeneratorLoad::default(), true);
                let traffic = config(flows, in_flight, load, touch);
                Hosted::Paced(Box::new(Paced::attach(
                    socket,
                    &traffic,
                    *load_fps,
                    *burst,
                    spec.guests.len() as u32,
                )?))
            }
            (Role::Pace { .. }, AdapterBackend::Tap(_)) => {
                bail!("no constant rate over a tap as yet")
            }
            (Role::Sink, AdapterBackend::Socket(socket)) => {
                Hosted::Sink(Generator::attach_sink(socket, false, pages)?)
            }
            (Role::Sink, AdapterBackend::Tap(_)) => bail!("no experiment has a sink at a tap"),
            (Role::Forward { own, next }, AdapterBackend::Socket(socket)) => {
                Hosted::Forwarder(Forwarder::attach(socket, (mac(own)?, mac(next)?), pages, ring)?)
            }
            (Role::Forward { own, next }, AdapterBackend::Tap(tap)) => {
                Hosted::TapForwarder(TapForwarder::attach(tap, mac(own)?, mac(next)?)?)
            }
        })
    }

    fn has_large_pages(&self) -> bool {
        match self {
            Hosted::Generator(generator) | Hosted::Sink(generator) => {
                generator.adapter.file().has_large_pages()
            }
            Hosted::Forwarder(forwarder) => forwarder.adapter.file().has_large_pages(),
            Hosted::Paced(paced) => paced.adapter.file().has_large_pages(),
            // A tap shares no memory.
            Hosted::TapGenerator(_) | Hosted::TapForwarder(_) => true,
        }
    }

    fn stop(&mut self) {
        match self {
            Hosted::Generator(generator) => generator.stop(),
            Hosted::TapGenerator(generator) => generator.stop(),
            Hosted::Paced(paced) => paced.stop(),
            Hosted::Sink(_) | Hosted::Forwarder(_) | Hosted::TapForwarder(_) => {}
        }
    }

    fn counted(&self) -> GuestCounts {
        match self {
            Hosted::Generator(Generator { sent, received, .. })
            | Hosted::TapGenerator(TapGenerator { sent, received, .. }) => {
                GuestCounts { generator: true, sent: *sent, received: *received, dropped: 0 }
            }
            Hosted::Paced(paced) => {
                let (sent, received) = (paced.sent, paced.received());
                GuestCounts { generator: true, sent, received, dropped: 0 }
            }
            Hosted::Sink(Generator { received, .. }) => {
                GuestCounts { received: *received, ..GuestCounts::default() }
            }
            Hosted::Forwarder(Forwarder { sent, received, dropped, .. })
            | Hosted::TapForwarder(TapForwarder { sent, received, dropped, .. }) => GuestCounts {
                generator: false,
                sent: *sent,
                received: *received,
                dropped: *dropped,
            },
        }
    }
}

#[derive(Debug, Default)]
struct Host {
    guests: Vec<Hosted>,
    generator_cycles: u64,
    forwarder_cycles: u64,
}

#[derive(Debug)]
struct Counts {
    guests: Vec<GuestCounts>,
    generator_cycles: u64,
    forwarder_cycles: u64,
}

impl Host {
    fn clone_counts(&self) -> Counts {
        Counts {
            guests: self.guests.iter().map(Hosted::counted).collect(),
            generator_cycles: self.generator_cycles,
            forwarder_cycles: self.forwarder_cycles,
        }
    }

    /// Runs the guests for `time`, or until no frame moved for `quiet`; returns the cycles.
    fn run_for(&mut self, time: Duration, quiet: Option<Duration>) -> u64 {
        let limit = tsc::duration_to_cycles(time);
        let quiet = quiet.map(tsc::duration_to_cycles);
        let start = tsc::now();
        let mut moved_at = start;
        loop {
            let mut moved = 0;
            for _ in 0..TURNS {
                moved += self.turn();
            }
            let now = tsc::now();
            if moved > 0 {
                moved_at = now;
            } else {
                std::thread::yield_now(); // the switch may need this CPU
            }
            let still = quiet.is_some_and(|quiet| now.wrapping_sub(moved_at) >= quiet);
            if still || now.wrapping_sub(start) >= limit {
                return now.wrapping_sub(start);
            }
        }
    }

    /// One burst of each guest; returns the number of frames moved.
    fn turn(&mut self) -> u64 {
        let mut all = 0;
        let mut begin = tsc::now();
        for guest in &mut self.guests {
            let (moved, cycles) = match guest {
                Hosted::Generator(generator) => (generator.step(), &mut self.generator_cycles),
                Hosted::Sink(sink) => (sink.step(), &mut self.forwarder_cycles),
                Hosted::Forwarder(forwarder) => (forwarder.step(), &mut self.forwarder_cycles),
                Hosted::TapGenerator(generator) => (generator.step(), &mut self.generator_cycles),
                Hosted::TapForwarder(forwarder) => (forwarder.step(), &mut self.forwarder_cycles),
                Hosted::Paced(paced) => (paced.step(), &mut self.generator_cycles),
            };
            let end = tsc::now();
            if moved > 0 {
                *cycles += end.wrapping_sub(begin);
            }
            begin = end;
            all += moved;
        }
        all
    }
}

//! Forwarding experiment of nfv-2017: VNFs that give frames a new destination and send them on.
//!
//! North/south: a generator at the uplink sends to every guest in turn, and each sends back.
//! East/west: the generator's frames enter the first guest, go from guest to guest, and leave the
//! last one for the uplink. Rates are summed over the guests' transmit sides.
//!
//! Paths: `vf`, a NIC's VFs; `vhost`, a switch's adapters, both over vhost-user; `virtio`, a bridge
//! of the kernel whose ports are taps, which guests read and write frame by frame.

mod point;
mod running_switch;
mod sweep;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use host::CpuTime;
use report::results::gbps;
use report::statistics::bands;
use report::{self, Bottleneck, Cpu, PathKind, Pattern, Pinned, Point};
use traffic::{GuestCounts, GuestSpec, HostedGuest, IN_FLIGHT, QUIET_S, Role};

pub(super) use self::point::OUTSIDE;
pub use self::point::{PointSpec, SwitchProgram};
use self::running_switch::RunningSwitch;
pub use self::sweep::slots;

use super::sample::{self, Measured};
use crate::bench::{GuestProcess, Placement, interrupt, mac_text, plan};
use crate::measure::distance;
use crate::measure::other_processes::OtherProcesses;

/// Seconds before a measurement, unless it consists of many short ones.
pub const WARMUP_S: f64 = 0.3;
/// Busy share from which a switch or guest is at its limit; for a generator, share of its highest
/// rate.
pub(super) const SATURATED: f64 = 0.9;
/// Share of frames lost at one place that identifies the bottleneck.
const LOSS: f64 = 0.01;

/// CPUs of a point.
pub(super) fn place(spec: &PointSpec, cpus: &[usize]) -> Placement {
    let mut placement = plan(cpus, spec.vms);
    if spec.path == PathKind::Virtio && placement.generator.is_none() {
        // The bridge works in the context of the sender: the switch's CPU is free for the
        // generator.
        placement.generator = placement.switch;
    }
    placement
}

/// Measures a point at a constant distance of the CPUs; `program` is the shunt binary, `cpus` the
/// allowed CPUs.
pub fn run(program: &Path, spec: &PointSpec, cpus: &[usize]) -> Result<Point> {
    let placement = place(spec, cpus);
    let measure = || until_frames_pass(|| measure(SwitchProgram::shunt(program), spec, &placement));
    let both = placement.switch.zip(placement.guests[0].0);
    let (point, round_trip_cycles) = distance::steadily_if(both, measure)?;
    let point = Point { round_trip_cycles, ..point };
    point.check().context("the measurement is inconsistent")?;
    Ok(point)
}

/// Measures a point once, at any distance of the CPUs: one slot of a comparison.
///
/// # Errors
/// Those of [`run`].
pub fn slot(switch: SwitchProgram<'_>, spec: &PointSpec, cpus: &[usize]) -> Result<Point> {
    let placement = place(spec, cpus);
    let both = placement.switch.zip(placement.guests[0].0);
    let round_trip = || both.map(|(a, b)| distance::round_trip_cycles(a, b)).transpose();
    let before = round_trip()?;
    let point = measure(switch, spec, &placement)?;
    let round_trip_cycles =
        before.zip(round_trip()?).map(|(before, after)| bands::around(before, after));
    let point = Point { round_trip_cycles, ..point };
    point.check().context("the measurement is inconsistent")?;
    Ok(point)
}

/// One measurement, at any distance of the CPUs.
fn measure(switch: SwitchProgram<'_>, spec: &PointSpec, placement: &Placement) -> Result<Point> {
    let load = spec.load;
    let others = OtherProcesses::on(host::cpu::allowed());
    let measured = trial(switch, spec, placement, |flows, in_flight| Role::Generate {
        flows,
        in_flight,
        load,
        touch: false,
    })?;
    let others_share = others.shares().map(|shares| shares.most());
    Ok(Point { others_share, ..conclude(spec, placement, &measured)? })
}

/// One trial with the generator that `role` makes from flows and a number of frames in flight.
pub(super) fn trial(
    switch: SwitchProgram<'_>,
    spec: &PointSpec,
    placement: &Placement,
    role: impl Fn(Vec<(String, String)>, u32) -> Role,
) -> Result<Measured> {
    let mut running = RunningSwitch::start(switch, spec, placement)?;
    let specs = processes(&running, spec, placement, role);
    let started = specs.iter().map(|spec| GuestProcess::start(switch.program(), spec));
    let mut guests = started.collect::<Result<Vec<_>>>()?;
    sample::measure_on(running.counting(), &mut guests)
}

/// Specifications of each process: the generator first, alone or with the first guests.
fn processes(
    running: &RunningSwitch,
    spec: &PointSpec,
    placement: &Placement,
    role: impl Fn(Vec<(String, String)>, u32) -> Role,
) -> Vec<GuestSpec> {
    let entries: Vec<usize> = match spec.pattern {
        Pattern::NorthSouth => (0..spec.vms).collect(),
        Pattern::EastWest => vec![0],
    };
    let flows = entries.iter().map(|vf| (OUTSIDE.to_string(), mac_text(*vf, 0).to_string()));
    // The queue of a tap is shorter than a ring.
    let in_flight = if spec.path == PathKind::Virtio { IN_FLIGHT / 2 } else { IN_FLIGHT };
    let generator = HostedGuest { place: running.uplink(), role: role(flows.collect(), in_flight) };
    let forwarder = |vf: usize| {
        let last = spec.pattern == Pattern::NorthSouth || vf + 1 == spec.vms;
        let next = if last { OUTSIDE } else { mac_text(vf + 1, 0) };
        let role = Role::Forward { own: mac_text(vf, 0).to_string(), next: next.to_string() };
        HostedGuest { place: running.guest(vf), role }
    };
    let process = |cpu, guests| GuestSpec {
        cpu,
        warmup_s: spec.warmup_s,
        seconds: spec.seconds,
        quiet_s: QUIET_S,
        frame_bytes: spec.frame_bytes,
        huge_pages: false,
        ring: spec.ring,
        guests,
    };
    let mut specs = Vec::new();
    let mut waiting = vec![generator];
    if placement.generator.is_some() {
        specs.push(process(placement.generator, std::mem::take(&mut waiting)));
    }
    let mut vf = 0;
    for (cpu, hosted) in &placement.guests {
        waiting.extend((vf..vf + hosted).map(forwarder));
        vf += hosted;
        specs.push(process(*cpu, std::mem::take(&mut waiting)));
    }
    specs
}

/// Other processes had the CPUs for the whole measured time: worth another try.
#[derive(Debug, thiserror::Error)]
#[error("no frame passed: is this machine overloaded?")]
pub(super) struct NoFrame;

/// Tries of a measurement in which no frame passes.
const TRIES: usize = 5;

/// Measures, repeatedly while no frame passes.
pub(super) fn until_frames_pass<T>(mut measure: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        interrupt::check()?;
        match measure() {
            Err(error) if error.is::<NoFrame>() => {}
            found => return found,
        }
    }
    interrupt::check()?;
    measure()
}

fn conclude(spec: &PointSpec, placement: &Placement, measured: &Measured) -> Result<Point> {
    let mut forwarders = Vec::new();
    let mut generator = None;
    for result in &measured.results {
        for guest in &result.guests {
            let rate = |frames: u64| frames as f64 / result.seconds / 1e6;
            if guest.generator {
                generator = Some((result, *guest));
            } else {
                let number = forwarders.len() as u32;
                let (rx_mpps, tx_mpps) = (rate(guest.received), rate(guest.sent));
                forwarders.push(report::GuestRates { guest: number, rx_mpps, tx_mpps });
            }
        }
    }
    let (result, outside): (_, GuestCounts) =
        generator.context("no process reported the generator")?;
    let rate = |frames: u64| frames as f64 / result.seconds / 1e6;
    let ours = spec.path != PathKind::Virtio;
    let mpps = forwarders.iter().map(|guest| guest.tx_mpps).sum();
    let rx_mpps = forwarders.iter().map(|guest| guest.rx_mpps).sum();
    ensure!(outside.sent > 0 && mpps > 0.0 && rx_mpps > 0.0, NoFrame);
    Ok(Point {
        pattern: spec.pattern,
        path: spec.path,
        vms: spec.vms as u32,
        frame_bytes: spec.frame_bytes,
        seconds: result.seconds,
        load: spec.load,
        ring: spec.ring,
        mpps,
        gbps: gbps(mpps, spec.frame_bytes),
        rx_mpps,
        returned_mpps: rate(outside.received),
        offered_mpps: rate(outside.sent),
        lost_frames: result.generated.saturating_sub(result.returned),
        switch_cycles_per_frame: measured.switch.cycles_per_frame(),
        generator_limit_mpps: result.generator_limit_mpps,
        bottleneck: match spec.path {
            PathKind::Virtio => kernels_bottleneck(measured, rate(outside.sent)),
            _ => bottleneck(measured, rate(outside.sent), result.generator_limit_mpps),
        },
        cpu: cpu(measured),
        guests: forwarders,
        drops: measured.drops.clone(),
        pinned: Pinned {
            switch: placement.switch.into_iter().filter(|_| ours).collect(),
            guests: placement.guests.iter().filter_map(|(cpu, _)| *cpu).collect(),
            generator: placement.generator.or(placement.guests[0].0).into_iter().collect(),
        },
        burst_mean: measured.switch.burst_mean(),
        round_trip_cycles: None,
        others_share: None,
        stages: measured.switch.stages(),
    })
}

/// Bottleneck of the rate. Frames lost for lack of a guest's buffer point to the guest, and frames
/// that the generator did not receive to the generator; otherwise it is the process without idle
/// time.
fn bottleneck(measured: &Measured, offered_mpps: f64, limit_mpps: f64) -> Bottleneck {
    let lost = |at_uplink: bool| {
        let here = measured.drops.iter().filter(|(place, _)| {
            place.ends_with("rx_no_buffer") && place.contains("/uplink ") == at_uplink
        });
        here.map(|(_, count)| *count).sum::<u64>() as f64 / measured.switch.frames.max(1) as f64
    };
    let sum = |share: fn(&traffic::GuestResult) -> f64| {
        measured.results.iter().map(share).fold(0.0, f64::max)
    };
    let generator = sum(|result| result.generator_share);
    let forwarders = sum(|result| result.forwarder_share);
    let switch = measured.switch.busy_share();
    let full = measured.switch.burst_mean().is_some_and(|mean| mean >= 32.0);
    if lost(false) > LOSS {
        Bottleneck::Guest
    } else if lost(true) > LOSS || is_near(offered_mpps, limit_mpps) {
        Bottleneck::Generator
    } else if (switch > SATURATED && full) || switch > generator.max(forwarders) {
        Bottleneck::Switch
    } else if forwarders >= generator {
        Bottleneck::Guest
    } else {
        Bottleneck::Generator
    }
}

/// Rates within [`SATURATED`] of each other, so that the generator's self-test limits the point. A
/// rate far above the self-test's means that the test lacked CPU time and is invalid.
fn is_near(offered_mpps: f64, limit_mpps: f64) -> bool {
    (SATURATED..=1.0 / SATURATED).contains(&(offered_mpps / limit_mpps))
}

/// Bottleneck with the kernel as switch, in the context of the sender: its time is the kernel time
/// of the processes.
fn kernels_bottleneck(measured: &Measured, offered_mpps: f64) -> Bottleneck {
    let limits = measured.results.iter().map(|result| result.generator_limit_mpps);
    if is_near(offered_mpps, limits.fold(f64::INFINITY, f64::min)) {
        return Bottleneck::Generator;
    }
    let sum = |time: fn(&CpuTime) -> f64| measured.guests_cpu.iter().map(time).sum::<f64>();
    if sum(|time| time.system_s) > sum(|time| time.user_s) {
        Bottleneck::Switch
    } else {
        Bottleneck::Guest
    }
}

/// CPU by layer. The time of a process that hosts generator and guests is split by their work.
fn cpu(measured: &Measured) -> Cpu {
    let seconds = measured.results[0].seconds;
    let mut cpu = Cpu {
        switch_busy_share: measured.switch.busy_share(),
        switch_user_cores: measured.switch_cpu.user_s / seconds,
        switch_system_cores: measured.switch_cpu.system_s / seconds,
        ..Cpu::default()
    };
    for (result, time) in measured.results.iter().zip(&measured.guests_cpu) {
        let work = (result.generator_share + result.forwarder_share).max(f64::EPSILON);
        let generator = result.generator_share / work;
        cpu.generator_share = cpu.generator_share.max(result.generator_share);
        cpu.generator_user_cores += time.user_s / seconds * generator;
        cpu.generator_system_cores += time.system_s / seconds * generator;
        cpu.guests_user_cores += time.user_s / seconds * (1.0 - generator);
        cpu.guests_system_cores += time.system_s / seconds * (1.0 - generator);
    }
    cpu
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_measurement_without_a_frame_is_repeated() {
        for (empty, tries, told) in [(2, 3, "broken"), (99, TRIES, "no frame passed")] {
            let mut tried = 0;
            let error = until_frames_pass::<()>(|| {
                tried += 1;
                ensure!(tried > empty, NoFrame);
                bail!("broken")
            });
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
            assert_eq!(tried, tries);
        }
    }
}

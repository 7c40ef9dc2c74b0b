//! Receive-only traffic to guests with and without VMQ, as in vmdq-2009.
//!
//! A generator at the uplink sends to the guests in turn, which receive and send nothing. Their
//! adapters are on the path vmq, where the NIC puts frames into their memory past the switch, or on
//! the path synthetic, where each frame goes through the switch. Both are measured in turn; a round
//! in which the CPUs' distance changed is repeated. The generator offers overload, as no frame
//! returns to throttle it: cycles are those of delivered frames, beside the share of lost ones.

use anyhow::{Context, Result};
use model::state::PathInForce;
use report::experiment::ReceiveSweep;
use report::receive::ReceivePath;
use report::results::gbps;
use report::{GeneratorLoad, Receive, RingKind};
use traffic::{AdapterBackend, GuestSpec, HostedGuest, IN_FLIGHT, QUIET_S, Role};

use super::forwarding::{NoFrame, OUTSIDE, SATURATED};
use super::sample::{self, spread};
use super::step::{Machine, Step, StepResult, Steps};
use crate::bench::{
    AdapterPlan, BenchAttachment, GuestProcess, SwitchedBench, SwitchedPlan, interrupt, mac_text,
    plan,
};
use crate::measure::distance;

impl Steps for ReceiveSweep {
    fn steps(&self, _experiment: &str) -> Vec<Step> {
        let step = |(guests, frame_bytes): (usize, u32)| {
            let sweep = self.clone();
            let title = format!("receive, {guests} guests, {frame_bytes} B");
            Step::new(title, move |machine| {
                Ok(StepResult::Receive(receive(&sweep, machine, guests, frame_bytes)?))
            })
        };
        let frames = |guests: &usize| {
            let guests = *guests;
            self.frame_bytes.iter().map(move |bytes| (guests, *bytes))
        };
        self.guests.iter().flat_map(frames).map(step).collect()
    }
}

/// Measures a frame size on both paths, round by round.
fn receive(
    sweep: &ReceiveSweep,
    machine: &Machine<'_>,
    guests: usize,
    frame_bytes: u32,
) -> Result<Receive> {
    let placement = plan(machine.cpus, 1);
    let mut seen = Vec::with_capacity(sweep.rounds);
    for round in 0..sweep.rounds {
        let both = || {
            let one = |path| {
                interrupt::check()?;
                measure(sweep, machine, (guests, frame_bytes), path)
            };
            // The order alternates, in case it matters.
            if round % 2 == 0 {
                let vmq = one(PathInForce::Vmq)?;
                return Ok((vmq, one(PathInForce::Synthetic)?));
            }
            let synthetic = one(PathInForce::Synthetic)?;
            Ok((one(PathInForce::Vmq)?, synthetic))
        };
        seen.push(distance::steadily_if(placement.switch.zip(placement.guests[0].0), both)?.0);
    }
    let pinned = placement.switch.into_iter().chain(placement.guests[0].0).collect();
    let published = sweep.published;
    let receive = Receive { guests, published, pinned, ..conclude(frame_bytes, &seen) };
    receive.check().context("the measurement is inconsistent")?;
    Ok(receive)
}

fn measure(
    sweep: &ReceiveSweep,
    machine: &Machine<'_>,
    (guests, frame_bytes): (usize, u32),
    path: PathInForce,
) -> Result<ReceiveRun> {
    let placement = plan(machine.cpus, 1);
    let adapter = |i| AdapterPlan { attached: BenchAttachment::Socket, mac: mac_text(i, 0), path };
    let adapters = (0..guests).map(adapter).collect();
    let plan =
        SwitchedPlan { cpu: placement.switch, uplink: Some(BenchAttachment::Socket), adapters };
    let mut bench = SwitchedBench::start(machine.program, &plan)?;
    let flows = (0..guests).map(|i| (OUTSIDE.to_string(), mac_text(i, 0).to_string())).collect();
    let role =
        Role::Generate { flows, in_flight: IN_FLIGHT, load: GeneratorLoad::Overload, touch: false };
    let generator =
        HostedGuest { place: AdapterBackend::Socket(bench.bench.uplink_socket()), role };
    let sinks = (0..guests)
        .map(|i| HostedGuest { place: AdapterBackend::Socket(bench.socket(i)), role: Role::Sink });
    let spec = GuestSpec {
        cpu: placement.guests[0].0,
        warmup_s: sweep.warmup_s,
        seconds: sweep.seconds,
        quiet_s: QUIET_S,
        frame_bytes,
        huge_pages: false,
        ring: RingKind::Split,
        guests: std::iter::once(generator).chain(sinks).collect(),
    };
    let mut guests = [GuestProcess::start(bench.bench.program(), &spec)?];
    let measured = sample::measure(&mut bench.bench, &mut guests)?;
    let result = &measured.results[0];
    let (generator, sinks) = result.guests.split_first().context("there is a generator")?;
    let received: u64 = sinks.iter().map(|sink| sink.received).sum();
    let rate = |frames: u64| frames as f64 / result.seconds / 1e6;
    Ok(ReceiveRun {
        mpps: rate(received),
        cycles: measured.switch.cycles_per_frame().ok_or(NoFrame)?,
        // Some frames sent before the measurement arrive in it.
        lost_share: generator.sent.saturating_sub(received) as f64 / generator.sent.max(1) as f64,
        offered_mpps: rate(generator.sent),
        limit_mpps: result.generator_limit_mpps,
    })
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct ReceiveRun {
    mpps: f64,
    cycles: f64,
    lost_share: f64,
    offered_mpps: f64,
    limit_mpps: f64,
}

fn conclude(frame_bytes: u32, seen: &[(ReceiveRun, ReceiveRun)]) -> Receive {
    let over = |what: fn(&(ReceiveRun, ReceiveRun)) -> f64| spread(seen.iter().map(what));
    let side = |of: fn(&(ReceiveRun, ReceiveRun)) -> ReceiveRun| {
        let spread_of = |what: fn(ReceiveRun) -> f64| spread(seen.iter().map(|s| what(of(s))));
        let mpps = spread_of(|seen| seen.mpps);
        ReceivePath {
            mpps,
            gbps: mpps.map(|mpps| gbps(mpps, frame_bytes)),
            switch_cycles_per_frame: spread_of(|seen| seen.cycles),
            lost_share: spread_of(|seen| seen.lost_share)[1],
        }
    };
    let all = || seen.iter().flat_map(|(vmq, synthetic)| [vmq, synthetic]);
    let generator_limit_mpps = all().map(|seen| seen.limit_mpps).fold(f64::INFINITY, f64::min);
    Receive {
        frame_bytes,
        vmq: side(|(vmq, _)| *vmq),
        synthetic: side(|(_, synthetic)| *synthetic),
        cycles_ratio: over(|(vmq, synthetic)| synthetic.cycles / vmq.cycles),
        throughput_ratio: over(|(vmq, synthetic)| vmq.mpps / synthetic.mpps),
        generator_limit_mpps,
        generator_bound: all().any(|seen| seen.offered_mpps > SATURATED * generator_limit_mpps),
        rounds: seen.len(),
        guests: 0,
        published: None,
        pinned: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let seen = |mpps, cycles| ReceiveRun {
            mpps,
            cycles,
            lost_share: 0.0,
            offered_mpps: mpps,
            limit_mpps: 100.0,
        };
        // The machine was twice as slow in the second round, for both.
        let rounds = [(seen(20.0, 50.0), seen(10.0, 100.0)), (seen(10.0, 100.0), seen(5.0, 200.0))];
        let point = conclude(1518, &rounds);
        assert_eq!((point.cycles_ratio, point.throughput_ratio), ([2.0; 3], [2.0; 3]));
        assert_eq!(point.vmq.mpps, [10.0, 15.0, 20.0]);
        assert!(!point.generator_bound);
        let point = conclude(64, &[(seen(95.0, 50.0), seen(10.0, 100.0))]);
        assert!(point.generator_bound);
    }
}

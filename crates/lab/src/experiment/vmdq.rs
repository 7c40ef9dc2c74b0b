//! vmdq-2009's experiment: receive-only traffic to four guests, with VMQ and without.
//!
//! A generator at the uplink sends to four guests in turn, which take in what comes and send
//! nothing. Their adapters are on the path vmq, where the NIC puts frames in their memory past the
//! switch, or on the path synthetic, where each frame goes through the switch. Both are measured in
//! turn; a round in whose course the two CPUs were moved apart or together is measured again.

use std::path::Path;

use anyhow::{Context, Result};
use control::state::PathInForce;
use serde::Serialize;
use wire::Mac;

use super::sample::{self, spread};
use crate::bench::{
    AdapterPlan, Attached, GuestProcess, SwitchedBench, SwitchedPlan, mac_text, plan,
};
use crate::guest::{Guest, GuestSpec, IN_FLIGHT, Place, Role};
use crate::measure::distance;
use crate::report::model::gbps;

use crate::report::{Load, RingKind};

/// Guests, as in the paper.
const GUESTS: usize = 4;
/// Frame sizes with FCS; the paper's IP packets have 1500 bytes.
const FRAMES: [u32; 2] = [64, 1518];
/// The generator's address, beyond the uplink.
const OUTSIDE: Mac = Mac([0x02, 0x5b, 0xff, 0xff, 0, 1]);
const WARMUP_S: f64 = 0.2;
const SECONDS: f64 = 0.5;
/// A generator that sent more than this part of what it can was the limit.
const SATURATED: f64 = 0.9;
/// Where the paper's results are.
const PUBLISHED: &str = include_str!("../../../../published/headlines.csv");

/// What is to be said of the ratio, whatever it is.
const NOTES: [&str; 2] = [
    "the paper's host copies each frame once more without VMQ, from the switch's memory to the \
     guest's; here the path synthetic copies each frame once, as the path vmq does",
    "so what VMQ saves here is the switch's work for a frame: learning, VLAN and rules",
];

/// What `shunt lab vmdq --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Vmdq {
    /// One for each frame size.
    pub points: Vec<VmdqPoint>,
    /// The paper's throughput.
    pub paper: Paper,
    /// Why the ratio is not the paper's.
    pub notes: Vec<&'static str>,
    /// Guests.
    pub guests: usize,
    /// CPUs that were pinned: switch, guests and generator.
    pub pinned: Vec<usize>,
}

/// One frame size. Triples are least, median and most of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VmdqPoint {
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// On the path vmq.
    pub vmq: Side,
    /// On the path synthetic.
    pub synthetic: Side,
    /// The lane's cycles a frame on the path synthetic over those on the path vmq, round by round.
    pub cycles_ratio: [f64; 3],
    /// Frames that arrived on the path vmq over those on the path synthetic, round by round.
    pub throughput_ratio: [f64; 3],
    /// Millions of frames a second that the generator could send to an instant sink.
    pub generator_limit_mpps: f64,
    /// Whether the generator was the limit: then only the cycles count.
    pub generator_bound: bool,
    /// Rounds.
    pub rounds: usize,
}

/// One path.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Millions of frames a second that guests received.
    pub mpps: [f64; 3],
    /// The same in Gbit/s, without FCS.
    pub gbps: [f64; 3],
    /// Busy cycles of the lane a frame.
    pub switch_cycles_per_frame: [f64; 3],
    /// Part of the frames sent that no guest received, in the median round.
    pub lost_share: f64,
}

/// vmdq-2009, receive-only TCP to four guests over 10 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paper {
    /// Gbit/s without VMDq.
    pub without_gbps: f64,
    /// And with it.
    pub with_gbps: f64,
    /// The second over the first.
    pub ratio: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mpps: f64,
    cycles: f64,
    lost_share: f64,
    offered_mpps: f64,
    limit_mpps: f64,
}

/// Measures both paths with each frame size, `rounds` times in turn.
pub fn run(
    program: &Path,
    cpus: &[usize],
    rounds: usize,
    mut done: impl FnMut(usize, usize),
) -> Result<Vmdq> {
    let placement = plan(cpus, 1);
    let mut points = Vec::new();
    for (i, frame_bytes) in FRAMES.into_iter().enumerate() {
        let mut seen = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let both = || {
                let one = |path| measure(program, cpus, frame_bytes, path);
                // Who is first changes, in case it matters.
                if round % 2 == 0 {
                    let vmq = one(PathInForce::Vmq)?;
                    return Ok((vmq, one(PathInForce::Synthetic)?));
                }
                let synthetic = one(PathInForce::Synthetic)?;
                Ok((one(PathInForce::Vmq)?, synthetic))
            };
            seen.push(distance::steadily_if(placement.switch.zip(placement.guests[0].0), both)?.0);
            done(i * rounds + round + 1, FRAMES.len() * rounds);
        }
        points.push(conclude(frame_bytes, &seen));
    }
    Ok(Vmdq {
        points,
        paper: paper()?,
        notes: NOTES.to_vec(),
        guests: GUESTS,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

fn measure(program: &Path, cpus: &[usize], frame_bytes: u32, path: PathInForce) -> Result<Seen> {
    let placement = plan(cpus, 1);
    let adapter =
        |i| AdapterPlan { attached: Attached::Socket, mac: mac_text(i, 0), vlan: None, path };
    let adapters = (0..GUESTS).map(adapter).collect();
    let plan = SwitchedPlan {
        cpu: placement.switch,
        uplink: Some(Attached::Socket),
        adapters,
        acl: Vec::new(),
    };
    let mut bench = SwitchedBench::start(program, &plan)?;
    let flows = (0..GUESTS).map(|i| (OUTSIDE.to_string(), mac_text(i, 0).to_string())).collect();
    let role = Role::Generate { flows, in_flight: IN_FLIGHT, load: Load::Overload, touch: false };
    let generator = Guest { place: Place::Socket(bench.bench.uplink_socket()), role };
    let sinks =
        (0..GUESTS).map(|i| Guest { place: Place::Socket(bench.socket(i)), role: Role::Sink });
    let spec = GuestSpec {
        cpu: placement.guests[0].0,
        warmup_s: WARMUP_S,
        seconds: SECONDS,
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
    Ok(Seen {
        mpps: rate(received),
        cycles: measured.switch.cycles_per_frame().context("no frame passed")?,
        lost_share: 1.0 - received as f64 / generator.sent.max(1) as f64,
        offered_mpps: rate(generator.sent),
        limit_mpps: result.generator_limit_mpps,
    })
}

fn conclude(frame_bytes: u32, seen: &[(Seen, Seen)]) -> VmdqPoint {
    let over = |what: fn(&(Seen, Seen)) -> f64| spread(seen.iter().map(what).collect());
    let side = |of: fn(&(Seen, Seen)) -> Seen| {
        let spread_of = |what: fn(Seen) -> f64| spread(seen.iter().map(|s| what(of(s))).collect());
        let mpps = spread_of(|seen| seen.mpps);
        Side {
            mpps,
            gbps: mpps.map(|mpps| gbps(mpps, frame_bytes)),
            switch_cycles_per_frame: spread_of(|seen| seen.cycles),
            lost_share: spread_of(|seen| seen.lost_share)[1],
        }
    };
    let all = || seen.iter().flat_map(|(vmq, synthetic)| [vmq, synthetic]);
    let generator_limit_mpps = all().map(|seen| seen.limit_mpps).fold(f64::INFINITY, f64::min);
    VmdqPoint {
        frame_bytes,
        vmq: side(|(vmq, _)| *vmq),
        synthetic: side(|(_, synthetic)| *synthetic),
        cycles_ratio: over(|(vmq, synthetic)| synthetic.cycles / vmq.cycles),
        throughput_ratio: over(|(vmq, synthetic)| vmq.mpps / synthetic.mpps),
        generator_limit_mpps,
        generator_bound: all().any(|seen| seen.offered_mpps > SATURATED * generator_limit_mpps),
        rounds: seen.len(),
    }
}

/// What the paper has published.
fn paper() -> Result<Paper> {
    let gbps = |condition: &str| {
        let begins = "vmdq-2009,receive-only TCP to 4 VMs over 10 GbE,";
        let value = PUBLISHED.lines().find_map(|line| {
            line.strip_prefix(begins)?.strip_prefix(condition)?.strip_prefix(",throughput,")
        });
        let value = value.and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
        value.with_context(|| format!("published/headlines.csv has no {condition}"))
    };
    let (without_gbps, with_gbps) = (gbps("without VMDq")?, gbps("with VMDq/VMQ")?);
    Ok(Paper { without_gbps, with_gbps, ratio: with_gbps / without_gbps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ratio_is_what_it_published() {
        let paper = paper().unwrap();
        assert_eq!((paper.without_gbps, paper.with_gbps), (5.4, 9.3));
        assert!((paper.ratio - 1.72).abs() < 0.005);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let seen = |mpps, cycles| Seen {
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
        assert_eq!(point.vmq.mpps, [10.0, 20.0, 20.0]);
        assert!(!point.generator_bound);
        let point = conclude(64, &[(seen(95.0, 50.0), seen(10.0, 100.0))]);
        assert!(point.generator_bound);
    }
}

//! What the switch costs a frame, beside the bare loop and beside the path vf.
//!
//! Two guests that give their buffers back at once send 64 B frames to each other. Measured in turn
//! are: the bare loop (see [`super::overhead`]); a NIC without a switch; a NIC with a switch whose
//! adapters are on the path vf, which must not be slower for it; the switch without anything; and
//! the switch with a VLAN and 100 rules at each port, against all of which a frame is held and none
//! decides.
//! A round in whose course the two CPUs were moved apart or together is measured again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use control::state::PathInForce;
use guestmem::Pages;
use serde::Serialize;
use serde_json::{Value, json};

use super::sample::{self, spread};
use super::scale::{self, Load};
use crate::bench::{
    AdapterPlan, Attached, GuestProcess, SwitchedBench, SwitchedPlan, mac_text, plan,
};
use crate::guest::{Guest, GuestSpec, IN_FLIGHT, Place, QUIET_S, Role};
use crate::measure::bare::{self, Pinning};
use crate::measure::distance;

use crate::report::{self, RingKind};

/// Bytes of a frame, with FCS.
const FRAME: u32 = 64;
/// Rules of each port.
const RULES: u32 = 100;
/// The VLAN.
const VLAN: u16 = 7;
const WARMUP_S: f64 = 0.2;
const SECONDS: f64 = 0.4;
/// The switch may cost so many times what the bare loop does.
const RATIO_MAX: f64 = 2.2;

/// What `shunt lab switching --json` prints. Triples are least, median and most of the rounds;
/// cycles are busy time-stamp cycles a frame.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Switching {
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Rules of each port.
    pub rules: u32,
    /// The VLAN.
    pub vlan: u16,
    /// Cycles of the bare loop.
    pub bare_cycles: [f64; 3],
    /// Cycles of the lane on the path vf, of a NIC without a switch.
    pub vf_cycles: [f64; 3],
    /// The same of a NIC with the switch.
    pub vf_beside_switch_cycles: [f64; 3],
    /// Cycles of the lane on the path synthetic, without rules and VLAN.
    pub plain_switch_cycles: [f64; 3],
    /// The same with both.
    pub switch_cycles: [f64; 3],
    /// `switch_cycles` over `bare_cycles`, round by round.
    pub ratio: [f64; 3],
    /// What the median of that may be at most.
    pub ratio_max: f64,
    /// `vf_beside_switch_cycles` over `vf_cycles`, round by round.
    pub vf_ratio: [f64; 3],
    /// Millions of frames a second through the switch, with rules and VLAN.
    pub switch_mpps: [f64; 3],
    /// Millions of frames a second that one generator could send to an instant sink.
    pub generator_limit_mpps: f64,
    /// Rounds.
    pub rounds: usize,
    /// CPU of the switch.
    pub switch_cpu: usize,
    /// CPU of the guests.
    pub guests_cpu: usize,
}

/// The cycles of one round, and more of its last measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    bare: f64,
    vf: f64,
    vf_beside_switch: f64,
    plain_switch: f64,
    switch: f64,
    mpps: f64,
    limit_mpps: f64,
}

/// Measures `rounds` times.
pub fn run(
    program: &Path,
    cpus: &[usize],
    rounds: usize,
    mut done: impl FnMut(usize, usize),
) -> Result<Switching> {
    let placement = plan(cpus, 1);
    let switch = placement.switch.context("this comparison needs two CPUs")?;
    let guests = placement.guests[0].0.context("this comparison needs two CPUs")?;
    let pinning = Pinning { switch, guests };
    let mut seen = Vec::with_capacity(rounds);
    for number in 1..=rounds {
        let (round, _) = distance::steadily((switch, guests), || round(program, cpus, pinning))?;
        seen.push(round);
        done(number, rounds);
    }
    Ok(conclude(&seen, pinning))
}

fn round(program: &Path, cpus: &[usize], pinning: Pinning) -> Result<Round> {
    let (warmup, time) = (Duration::from_secs_f64(WARMUP_S), Duration::from_secs_f64(SECONDS));
    let bare = bare::run(FRAME, warmup, time, Pages::Gathered, pinning)?.cycles_per_frame;
    let load = Load {
        vfs: 2,
        macs: 2,
        frame_bytes: FRAME,
        in_flight: IN_FLIGHT,
        touch: false,
        huge_pages: false,
        ring: RingKind::Split,
        seconds: SECONDS,
    };
    let vf = scale::point(program, cpus, load)?.switch_cycles_per_frame;
    let (vf_beside_switch, _, _) = switched(program, pinning, PathInForce::Vf, false)?;
    let (plain_switch, _, _) = switched(program, pinning, PathInForce::Synthetic, false)?;
    let (switch, mpps, limit_mpps) = switched(program, pinning, PathInForce::Synthetic, true)?;
    Ok(Round { bare, vf, vf_beside_switch, plain_switch, switch, mpps, limit_mpps })
}

/// Cycles a frame, Mpps and the generator's limit of two guests on a NIC with a switch.
fn switched(
    program: &Path,
    pinning: Pinning,
    path: PathInForce,
    ruled: bool,
) -> Result<(f64, f64, f64)> {
    // On the path vf there are neither: an adapter with rules is kept in the switch.
    let vlan = ruled.then_some(VLAN);
    let adapter = |i| AdapterPlan { attached: Attached::Socket, mac: mac_text(i, 0), vlan, path };
    let acl = if ruled { rules() } else { Vec::new() };
    let adapters = (0..2).map(adapter).collect();
    let plan = SwitchedPlan { cpu: Some(pinning.switch), uplink: None, adapters, acl };
    let mut bench = SwitchedBench::start(program, &plan)?;
    let guest = |i: usize| {
        let flows = vec![(mac_text(i, 0).to_string(), mac_text(i ^ 1, 0).to_string())];
        let role = Role::Generate {
            flows,
            in_flight: IN_FLIGHT,
            load: report::Load::Overload,
            touch: false,
        };
        Guest { place: Place::Socket(bench.socket(i)), role }
    };
    let spec = GuestSpec {
        cpu: Some(pinning.guests),
        warmup_s: WARMUP_S,
        seconds: SECONDS,
        quiet_s: QUIET_S,
        frame_bytes: FRAME,
        huge_pages: false,
        ring: RingKind::Split,
        guests: vec![guest(0), guest(1)],
    };
    let mut guests = [GuestProcess::start(bench.bench.program(), &spec)?];
    let measured = sample::measure(&mut bench.bench, &mut guests)?;
    let result = &measured.results[0];
    let cycles = measured.switch.cycles_per_frame().context("no frame passed")?;
    let mpps = measured.switch.frames as f64 / result.seconds / 1e6;
    Ok((cycles, mpps, result.generator_limit_mpps))
}

/// Rules of which none meets a frame of the generators, on all layers.
pub(super) fn rules() -> Vec<Value> {
    let rule = |i: u32| {
        let mut rule = match i % 4 {
            0 => json!({ "to_ip": format!("203.0.113.{i}/32"), "protocol": 17 }),
            1 => json!({ "protocol": 6, "to_port": (1000 + i).to_string() }),
            2 => json!({ "from_mac": format!("02:5b:ee:00:00:{i:02x}") }),
            _ => json!({ "from_ip": format!("10.{i}.0.0/16") }),
        };
        rule["action"] = json!("deny");
        rule
    };
    (0..RULES).map(rule).collect()
}

fn conclude(seen: &[Round], pinning: Pinning) -> Switching {
    let over = |what: fn(&Round) -> f64| spread(seen.iter().map(what));
    Switching {
        frame_bytes: FRAME,
        rules: RULES,
        vlan: VLAN,
        bare_cycles: over(|round| round.bare),
        vf_cycles: over(|round| round.vf),
        vf_beside_switch_cycles: over(|round| round.vf_beside_switch),
        plain_switch_cycles: over(|round| round.plain_switch),
        switch_cycles: over(|round| round.switch),
        ratio: over(|round| round.switch / round.bare),
        ratio_max: RATIO_MAX,
        vf_ratio: over(|round| round.vf_beside_switch / round.vf),
        switch_mpps: over(|round| round.mpps),
        generator_limit_mpps: over(|round| round.limit_mpps)[0],
        rounds: seen.len(),
        switch_cpu: pinning.switch,
        guests_cpu: pinning.guests,
    }
}

#[cfg(test)]
mod tests {
    use control::state::AclRule;

    use super::*;

    #[test]
    fn a_frame_is_held_against_a_hundred_rules_on_its_way() {
        let rules: Vec<AclRule> =
            rules().into_iter().map(|rule| serde_json::from_value(rule).unwrap()).collect();
        assert_eq!(rules.len(), 100);
        let layers: [fn(&AclRule) -> bool; 4] = [
            |rule| rule.to_ip.is_some(),
            |rule| rule.to_port.is_some(),
            |rule| rule.from_mac.is_some(),
            |rule| rule.from_ip.is_some(),
        ];
        for layer in layers {
            assert!(rules.iter().filter(|rule| layer(rule)).count() >= 24);
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let round = |factor: f64| Round {
            bare: 30.0 * factor,
            vf: 40.0 * factor,
            vf_beside_switch: 40.0 * factor,
            plain_switch: 45.0 * factor,
            switch: 60.0 * factor,
            mpps: 30.0 / factor,
            limit_mpps: 900.0,
        };
        let rounds = [round(1.0), round(3.0), round(2.0)];
        let told = conclude(&rounds, Pinning { switch: 0, guests: 1 });
        assert_eq!((told.ratio, told.vf_ratio), ([2.0; 3], [1.0; 3]));
        assert_eq!(told.bare_cycles, [30.0, 60.0, 90.0]);
        assert_eq!((told.rounds, told.generator_limit_mpps), (3, 900.0));
    }
}

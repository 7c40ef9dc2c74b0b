//! Result of a size: by band, each switch beside the first.

use report::Stages;
use report::statistics::bands::{self, Band, Grouped, PairedSlots};
use report::statistics::permutation;
use report::statistics::quantile::median;
use report::statistics::random::Random;
use serde::Serialize;

use super::slot::{DISTURBED, Drain, PAIRS_MIN, Slot};
use super::switch::SwitchType;

/// Level of the interval of a ratio: 99 %.
const ALPHA: f64 = 0.01;

/// Result of one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeResult {
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Every band, nearest first.
    pub bands: Vec<BandResult>,
    /// Pairs in no band, by switch.
    pub left_out: Vec<LeftOut>,
}

/// One band of distances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BandResult {
    /// Limits of the band.
    pub band: String,
    /// Each switch, in the order of the settings.
    pub sides: Vec<SideResult>,
}

/// One switch in one band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideResult {
    /// The switch.
    pub switch: SwitchType,
    /// Pairs with the first switch; for the first, its own slots.
    pub pairs: usize,
    /// Figures; `None` with fewer than [`PAIRS_MIN`] pairs.
    pub figures: Option<Figures>,
}

/// Medians over the pairs of a band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Busy cycles for each delivered frame.
    pub cycles_per_frame: f64,
    /// Part of them spent in the kernel on the guest's CPU; 0 with vhost-user ports.
    pub kernel_cycles_per_frame: f64,
    /// Mframes/s delivered.
    pub mpps: f64,
    /// Busy share of the polling thread, or kernel share of the guest's CPU.
    pub busy_share: f64,
    /// Cycles of the switch over those of the first; `None` for the first.
    pub ratio: Option<Ratio>,
    /// Cycles for each delivered frame by stage; Shunt only.
    pub stages: Option<Stages>,
}

/// A ratio of cycles per frame with its interval of 99 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Estimate.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Pairs of a switch in no band, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The switch.
    pub switch: SwitchType,
    /// The CPUs moved during a slot or between both.
    pub moved: usize,
    /// Other processes took more than [`DISTURBED`] of a CPU.
    pub disturbed: usize,
    /// One of both switches lost frames in this round.
    pub lost: usize,
}

/// Two slots of the same pass.
#[derive(Clone, Copy)]
struct Paired<'a> {
    first: &'a Slot,
    other: &'a Slot,
}

/// Summarises the slots of one size.
pub(super) fn of_size(
    frame_bytes: u32,
    switches: &[SwitchType],
    slots: &[Slot],
    drains: &[Drain],
) -> SizeResult {
    let slots: Vec<&Slot> = slots.iter().filter(|slot| slot.frame_bytes == frame_bytes).collect();
    let lost = |slot: &Slot| {
        let of = |drain: &&Drain| {
            (drain.switch, drain.round, drain.frame_bytes)
                == (slot.switch, slot.round, slot.frame_bytes)
        };
        // A round that did not reach its drain proves nothing.
        drains.iter().find(of).is_none_or(|drain| drain.frames != drain.expected)
    };
    let mut bands = Band::ALL.map(|band| BandResult { band: band.to_string(), sides: Vec::new() });
    let mut left_out = Vec::new();
    for switch in switches {
        let mut out = LeftOut { switch: *switch, moved: 0, disturbed: 0, lost: 0 };
        let mut pairs: Vec<Paired<'_>> = Vec::new();
        for other in slots.iter().filter(|slot| slot.switch == *switch) {
            let same = |slot: &&&Slot| {
                (slot.switch, slot.round, slot.pass) == (switches[0], other.round, other.pass)
            };
            let Some(first) = slots.iter().find(same) else { continue };
            if lost(first) || lost(other) {
                out.lost += 1;
            } else if first.disturbance.max(other.disturbance) > DISTURBED {
                out.disturbed += 1;
            } else {
                pairs.push(Paired { first, other });
            }
        }
        let grouped: Vec<PairedSlots> = pairs.iter().map(paired_slots).collect();
        let grouped = Grouped::new(&grouped, PAIRS_MIN);
        out.moved = grouped.moved + grouped.unknown;
        left_out.push(out);
        for (result, group) in bands.iter_mut().zip(&grouped.bands) {
            let within = |pair: &&Paired<'_>| {
                let both = paired_slots(pair);
                let [one, other] = [both.a, both.b].map(|slot| slot.round_trip_cycles);
                Band::of_both(one, other) == Some(group.band)
            };
            let others: Vec<&Slot> = pairs.iter().filter(within).map(|pair| pair.other).collect();
            let is_first = *switch == switches[0];
            let figures = group.is_sufficient().then(|| figures(&others, &group.pairs, is_first));
            result.sides.push(SideResult {
                switch: *switch,
                pairs: group.pairs.len(),
                figures: figures.flatten(),
            });
        }
    }
    SizeResult { frame_bytes, bands: bands.into(), left_out }
}

/// A pair for grouping: the distance of a slot is the mean before and after it, unless the CPUs
/// moved in between.
fn paired_slots(pair: &Paired<'_>) -> PairedSlots {
    let slot = |slot: &Slot| {
        let [before, after] = slot.distances;
        let round_trip_cycles = bands::around(before, after);
        bands::SlotSample { cycles_per_frame: slot.cycles_per_frame, round_trip_cycles }
    };
    PairedSlots { a: slot(pair.first), b: slot(pair.other) }
}

fn figures(
    slots: &[&Slot],
    pairs: &[report::statistics::CyclePair],
    is_first: bool,
) -> Option<Figures> {
    let of = |figure: fn(&Slot) -> f64| {
        median(&slots.iter().map(|slot| figure(slot)).collect::<Vec<f64>>())
    };
    let mut random = Random::new(1);
    let ratio = match is_first {
        true => None,
        false => permutation::compare(pairs, ALPHA, || random.bits()).ok(),
    };
    Some(Figures {
        cycles_per_frame: of(|slot| slot.cycles_per_frame)?,
        kernel_cycles_per_frame: of(|slot| slot.kernel_cycles_per_frame)?,
        mpps: of(|slot| slot.mpps)?,
        busy_share: of(|slot| slot.busy_share)?,
        ratio: ratio.map(|compared| {
            let permutation::RatioEstimate { ratio, low, high } = compared.estimate;
            Ratio { ratio, low, high }
        }),
        stages: stages(slots),
    })
}

/// The median of each stage, and the number of all sampled bursts.
fn stages(slots: &[&Slot]) -> Option<Stages> {
    let all: Vec<Stages> = slots.iter().filter_map(|slot| slot.stages).collect();
    let mut medians = [0.0; Stages::PARTS.len()];
    for (part, value) in medians.iter_mut().enumerate() {
        *value = median(&all.iter().map(|stages| stages.cycles()[part]).collect::<Vec<f64>>())?;
    }
    Some(Stages::from_cycles(medians, all.iter().map(|stages| stages.sampled_bursts).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: SwitchType = SwitchType::ALL[0];
    const SHUNT: SwitchType = SwitchType::ALL[1];
    const SWITCHES: [SwitchType; 2] = [SHUNT, BARE];

    fn slot(switch: SwitchType, pass: usize, distances: [f64; 2]) -> Slot {
        let is_shunt = switch == SHUNT;
        let cycles_per_frame = if is_shunt { 40.0 } else { 20.0 + pass as f64 / 100.0 };
        Slot {
            switch,
            round: 0,
            pass,
            frame_bytes: 64,
            distances,
            cycles_per_frame,
            kernel_cycles_per_frame: 0.0,
            mpps: 10.0,
            busy_share: 0.5,
            disturbance: 0.0,
            stages: is_shunt
                .then(|| Stages::from_cycles([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, pass as f64], 10)),
        }
    }

    fn drains() -> Vec<Drain> {
        let drain = |switch| Drain { switch, round: 0, frame_bytes: 64, frames: 64, expected: 64 };
        SWITCHES.map(drain).into()
    }

    fn passes(passes: usize, distance: f64) -> Vec<Slot> {
        let both = |pass| SWITCHES.map(|switch| slot(switch, pass, [distance, distance + 1.0]));
        (0..passes).flat_map(both).collect()
    }

    #[test]
    fn a_band_with_enough_pairs_has_figures_and_a_ratio() {
        let result = of_size(64, &SWITCHES, &passes(8, 100.0), &drains());
        let [near, ..] = &result.bands[..] else { panic!("{result:?}") };
        assert_eq!(near.band, "under 120 cycles");
        let first = near.sides[0].figures.unwrap();
        assert_eq!((first.cycles_per_frame, first.ratio), (40.0, None));
        let medians = Stages::from_cycles([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 3.5], 80);
        assert_eq!(first.stages, Some(medians));
        assert_eq!(near.sides[1].figures.unwrap().stages, None, "the bare loop has no stages");
        let ratio = near.sides[1].figures.unwrap().ratio.unwrap();
        assert!((0.5..0.51).contains(&ratio.ratio), "{ratio:?}");
        assert!(ratio.low <= ratio.ratio && ratio.ratio <= ratio.high, "{ratio:?}");
        let counts = result.bands.iter().map(|band| band.sides[1].pairs);
        assert_eq!(counts.collect::<Vec<_>>(), [8, 0, 0, 0]);
    }

    #[test]
    fn seven_pairs_are_too_few() {
        let result = of_size(64, &SWITCHES, &passes(7, 700.0), &drains());
        let far = &result.bands[3].sides[1];
        assert_eq!((far.pairs, far.figures), (7, None));
    }

    #[test]
    fn pairs_that_do_not_count_are_told_by_reason() {
        let mut slots = passes(4, 100.0);
        slots[0].disturbance = 0.11;
        slots[3].distances = [100.0, 400.0];
        slots[4].distances = [130.0, 130.0];
        let result = of_size(64, &SWITCHES, &slots, &drains());
        let out = result.left_out[1];
        assert_eq!((out.moved, out.disturbed, out.lost), (2, 1, 0));
        assert_eq!(result.bands[0].sides[1].pairs, 1);
        let mut lossy = drains();
        lossy[1].frames -= 1;
        let result = of_size(64, &SWITCHES, &passes(4, 100.0), &lossy);
        assert_eq!((result.left_out[0].lost, result.left_out[1].lost), (0, 4));
        assert_eq!(of_size(64, &SWITCHES, &passes(4, 100.0), &[]).left_out[0].lost, 4);
    }
}

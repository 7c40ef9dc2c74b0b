//! Properties of any machine, and conclusions of the paper.

use proptest::prelude::*;

use super::*;
use crate::fit::Parameter;
use crate::validate::testbed;

const SIZES: [u32; 6] = [64, 128, 256, 512, 1024, 1518];
const PATHS: [PlannedPath; 3] = PlannedPath::ALL;

fn scenario(pattern: Pattern, path: PlannedPath, bytes: u32, guests: u32) -> Scenario {
    Scenario { pattern, path, frames: FrameMix::of(bytes).unwrap(), guests, cores_each: 1.0 }
}

fn rate(machine: &Machine, pattern: Pattern, path: PlannedPath, bytes: u32, guests: u32) -> f64 {
    predict(machine, &scenario(pattern, path, bytes, guests)).unwrap().rate.0
}

#[test]
fn to_the_wire_by_functions_and_between_guests_by_the_switch() {
    let machine = testbed().unwrap();
    for bytes in SIZES {
        for guests in 1..=8 {
            let [vf, synthetic, kernel] =
                PATHS.map(|path| rate(&machine, Pattern::NorthSouth, path, bytes, guests));
            assert!(
                vf > synthetic && synthetic > kernel,
                "{bytes} B, {guests}: {vf} {synthetic} {kernel}"
            );
        }
        let [vf, synthetic, _] =
            PATHS.map(|path| rate(&machine, Pattern::EastWest, path, bytes, 8));
        assert!(synthetic > 1.9 * vf, "{bytes} B: {synthetic} {vf}");
    }
}

#[test]
fn a_function_crosses_pcie_twice_a_hop_and_the_switch_never() {
    let machine = testbed().unwrap();
    let crossing = |pattern, path| {
        let said = predict(&machine, &scenario(pattern, path, 1518, 6)).unwrap();
        (said.pcie_up.0, said.pcie_down.0)
    };
    assert_eq!(crossing(Pattern::EastWest, PlannedPath::Synthetic), (0.0, 0.0));
    let (up, down) = crossing(Pattern::EastWest, PlannedPath::Vf);
    assert!(up > 1514.0 && down > 1514.0, "{up} {down}");
    assert_eq!((up, down), crossing(Pattern::NorthSouth, PlannedPath::Vf));
}

#[test]
fn what_cannot_be_is_said() {
    let machine = testbed().unwrap();
    let said = |pattern, path, guests| {
        predict(&machine, &scenario(pattern, path, 64, guests)).unwrap_err().to_string()
    };
    assert!(
        said(Pattern::EastWest, PlannedPath::Vf, 1)
            .contains("--guests: 1 is out of range; write a number, 2")
    );
    assert!(said(Pattern::NorthSouth, PlannedPath::Synthetic, 0).starts_with("--guests: 0 is"));
    assert!(said(Pattern::NorthSouth, PlannedPath::Vf, 65).contains("has 64 VFs"));
}

#[test]
fn queues_have_no_end_where_a_limit_is_reached() {
    let machine = testbed().unwrap();
    for pattern in [Pattern::NorthSouth, Pattern::EastWest] {
        for path in PATHS {
            let said = predict(&machine, &scenario(pattern, path, 256, 4)).unwrap();
            let at = |share: f64| Latency::at(&said.stations, said.rate * share);
            let (idle, half, near) = (at(0.0), at(0.5), at(0.95));
            assert_eq!(idle.queued.0, 0.0, "{pattern} {path}");
            assert!(half.queued < near.queued && near.queued.0.is_finite(), "{pattern} {path}");
            // M/D/1 at the bottleneck: 499.5 service times.
            let full = at(0.999).queued * said.rate.0;
            assert!(full.0 > 499.0, "{pattern} {path}: {full:?}");
            assert_eq!(idle.unloaded, near.unloaded);
            assert!(idle.unloaded.0 > 0.0);
        }
    }
}

/// Machines with figures near the paper's.
fn machines() -> impl Strategy<Value = Machine> {
    let figures = proptest::collection::vec(0.3..3.0_f64, Parameter::CARD.len());
    (figures, 1..=5_u8, 0..=4_u32, 1.0..32.0_f64, 1.0..32.0_f64, 1.0..5.0_f64).prop_map(
        |(figures, generation, lanes, switch_cores, guest_cores, ghz)| {
            let mut machine = testbed().unwrap();
            for (parameter, times) in Parameter::CARD.iter().zip(figures) {
                let value = parameter.figures(&mut machine)[0].value;
                parameter.set(&mut machine, value * times);
            }
            machine.nic.link_share.value = machine.nic.link_share.value.min(1.0);
            machine.nic.link.generation = generation;
            machine.nic.link.lanes = 1 << lanes;
            machine.host.switch_cores.value = switch_cores;
            machine.host.guest_cores.value = guest_cores;
            machine.host.ghz.value = ghz;
            machine
        },
    )
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let patterns = prop_oneof![Just(Pattern::NorthSouth), Just(Pattern::EastWest)];
    let paths = proptest::sample::select(&PATHS[..]);
    let frames =
        prop_oneof![(64..=9018_u32).prop_map(|size| size.to_string()), Just("imix".into())];
    (patterns, paths, frames, 2..=64_u32, 0.5..4.0_f64).prop_map(
        |(pattern, path, frames, guests, cores_each)| {
            let frames = frames.parse().unwrap();
            Scenario { pattern, path, frames, guests, cores_each }
        },
    )
}

proptest! {
    #[test]
    fn more_of_anything_never_lowers_a_prediction(
        machine in machines(),
        scenario in scenarios(),
        more in 1.0..4.0_f64,
    ) {
        let before = predict(&machine, &scenario).unwrap();
        let betters: [fn(&mut Machine, f64); 8] = [
            |machine, _| machine.nic.link.lanes = (machine.nic.link.lanes * 2).min(16),
            |machine, _| machine.nic.link.generation = (machine.nic.link.generation + 1).min(5),
            |machine, more| machine.host.switch_cores.value *= more,
            |machine, more| machine.host.guest_cores.value *= more,
            |machine, more| machine.host.ghz.value *= more,
            |machine, more| machine.host.memory_gbps.value *= more,
            |machine, more| machine.nic.wire.line_gbps.value *= more,
            |machine, more| machine.nic.wire.mpps.value *= more,
        ];
        for (which, better) in betters.iter().enumerate() {
            let mut machine = machine.clone();
            better(&mut machine, more);
            let after = predict(&machine, &scenario).unwrap();
            prop_assert!(after.rate.0 >= before.rate.0 * (1.0 - 1e-12), "{which}: {before:?} {after:?}");
        }
    }

    #[test]
    fn the_rate_is_the_lowest_of_its_limits(machine in machines(), scenario in scenarios()) {
        let said = predict(&machine, &scenario).unwrap();
        prop_assert!(said.rate.0.is_finite() && said.rate.0 > 0.0);
        prop_assert_eq!(said.terms[0].limit, said.binding);
        prop_assert!(said.terms.windows(2).all(|pair| pair[0].rate <= pair[1].rate));
        let cores = machine.host.switch_cores.value;
        prop_assert!(said.switch_cores <= cores * (1.0 + 1e-9), "{} of {cores}", said.switch_cores);
    }
}

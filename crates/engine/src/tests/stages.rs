//! Stages of bursts, as a lane counts them.

use super::kit::*;
use crate::{SAMPLED_ONE_IN, Stage};

#[test]
fn a_lane_samples_one_burst_in_64_on_its_way_through_all_stages() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut from, mut to] = bench.guests([bridge::PortId::vf(0), bridge::PortId::vf(1)]);
    for number in 0..10 * SAMPLED_ONE_IN {
        from.send(&frame(mac(1), mac(0), number, 60 + number as usize % 900));
        to.wait_for(1);
        from.settle();
    }
    until("all bursts to be counted", || bench.lanes("frames") == u64::from(10 * SAMPLED_ONE_IN));
    let bursts = bench.lanes("bursts");
    let (sampled, interrupted) =
        (bench.lanes("sampled_bursts"), bench.lanes("sampled_interrupted"));
    assert_eq!(sampled + interrupted, bursts / u64::from(SAMPLED_ONE_IN));
    assert_eq!(bench.lanes("sampled_frames"), sampled, "a frame a burst");
    if sampled == 0 {
        return; // a machine that interrupts each burst
    }
    let cycles = |stage: Stage| bench.lanes(&stage.counter());
    for stage in [Stage::Poll, Stage::Descriptors, Stage::Classify, Stage::Copy, Stage::Publish] {
        assert!(cycles(stage) > 0, "no cycles of {}", stage.as_str());
    }
    let stages: u64 = Stage::ALL.into_iter().map(cycles).sum();
    let (readings, busy) = (bench.lanes("sampling_cycles"), bench.lanes("busy_cycles"));
    assert!(readings > 0 && stages + readings <= busy, "{stages} + {readings} of {busy}");
}

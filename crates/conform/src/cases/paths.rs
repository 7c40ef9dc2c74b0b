//! Path changes of adapters, and migration of guests.

use anyhow::{Result, ensure};
use model::state::PathInForce;
use serde_json::json;

use super::bridging::{C, broadcast_reaches, three_paths};
use crate::Test;
use crate::context::{A, B, TestContext, W};
use crate::frame::TestFrame;
use crate::subject::{AdapterLocation, Capability, ManagerRequest, NicSetup, WIRE};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "nobody-loses-a-vf-without-cause",
        thread: "LIS/lis-next#556",
        promise: "Unrelated or empty changes leave an adapter on its VF.",
        needs: &[Capability::Switch],
        test: Some(no_cause),
    },
    Test {
        name: "path-flapping-is-bounded",
        thread: "MicrosoftDocs/azure-docs#100444",
        promise: "An adapter that follows its traffic changes its path at most a fixed number of times an hour.",
        needs: &[Capability::FollowTraffic],
        test: None,
    },
    Test {
        name: "no-frame-lost-on-a-path-change",
        thread: "MicrosoftDocs/azure-docs#90280",
        promise: "During a path change no frame is lost, duplicated or reordered, in either direction.",
        needs: &[Capability::Switch, Capability::Queues],
        test: Some(path_changes),
    },
    Test {
        name: "first-frame-of-a-flow-arrives",
        thread: "aregm/nff-go#688",
        promise: "The first frame to an adapter on a new path arrives, before the adapter has sent one.",
        needs: &[Capability::Switch, Capability::Queues],
        test: Some(first_frame),
    },
    Test {
        name: "broadcasts-arrive-once-on-each-path",
        thread: "MicrosoftDocs/azure-docs#106457, #50056",
        promise: "Broadcasts such as ARP reach an adapter exactly once, on any path.",
        needs: &[Capability::Switch, Capability::Queues],
        test: Some(broadcasts),
    },
    Test {
        name: "vf-back-after-migration",
        thread: "kubevirt/kubevirt#17222, PR#4741, PR#6581",
        promise: "A migrated guest gets a VF if one is free; otherwise the reason is reported.",
        needs: &[Capability::Migration],
        test: None,
    },
    Test {
        name: "vf-state-migrates",
        thread: "strongtz/i915-sriov-dkms#405",
        promise: "A VF's state migrates with its guest, or the migration is rejected before it starts.",
        needs: &[Capability::Migration],
        test: None,
    },
];

/// The three paths, as a patch and as reported.
const PATHS: [(&str, PathInForce); 3] =
    [("synthetic", PathInForce::Synthetic), ("vmq", PathInForce::Vmq), ("vf", PathInForce::Vf)];

fn no_cause(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::with_switch(2))?;
    t.guest_on("a", AdapterLocation::Switch, A, json!({"iov_weight": 50}))?;
    t.guest_on("b", AdapterLocation::Switch, B, json!({"iov_weight": 50}))?;
    let (vf_a, vf_b) = (t.adapter("a")?.vf, t.adapter("b")?.vf);
    let (token_a, token_b) = (t.token(0)?, t.token(1)?);
    for round in 0..10 {
        t.must(&ManagerRequest::Reapply)?;
        t.set_adapter("b", json!({"max_tx_mbps": 1000 + round}))?;
        // Equal weight to the guests with VFs, and a name that sorts before theirs.
        t.guest_on("0", AdapterLocation::Switch, C, json!({"iov_weight": 50}))?;
        t.is_on("a", PathInForce::Vf)?;
        t.is_on("b", PathInForce::Vf)?;
        t.remove("0")?;
    }
    let vfs = (t.adapter("a")?.vf, t.adapter("b")?.vf);
    ensure!(vfs == (vf_a, vf_b), "the VFs changed from {vf_a:?} and {vf_b:?} to {vfs:?}");
    let tokens = (t.token(0)?, t.token(1)?);
    ensure!(tokens == (token_a, token_b), "a VF had another owner in the meantime");
    t.talk(("a", A), ("b", B))?;
    Ok("30 changes moved no adapter".to_owned())
}

fn path_changes(t: &mut TestContext<'_>) -> Result<String> {
    three_paths(t)?;
    let mut count = 0;
    for _ in 0..8 {
        for (path, in_force) in PATHS {
            let mut sent = Vec::new();
            for half in 0..2 {
                for (from, src, dst) in [("b", B, A), ("c", C, A), ("a", A, B)] {
                    let frames: Vec<TestFrame> = (0..10).map(|_| t.frame(src, dst)).collect();
                    let bytes: Vec<Vec<u8>> = frames.iter().map(|one| one.bytes.clone()).collect();
                    t.subject.send(from, &bytes)?;
                    sent.push((from, frames));
                }
                if half == 0 {
                    t.set_adapter("a", json!({"path": path}))?;
                }
            }
            t.is_on("a", in_force)?;
            check_flows(t, &sent)?;
            count += 1;
        }
    }
    Ok(format!("{count} path changes, with 60 frames during each"))
}

/// Checks that every flow arrived complete, without duplicates and in order.
fn check_flows(t: &mut TestContext<'_>, sent: &[(&str, Vec<TestFrame>)]) -> Result<()> {
    let arrived = t.arrived()?;
    for (from, to, source) in [("b", "a", B), ("c", "a", C), ("a", "b", A)] {
        let flow = sent.iter().filter(|(sender, _)| *sender == from);
        let meant: Vec<u64> =
            flow.flat_map(|(_, frames)| frames.iter().map(TestFrame::sequence)).collect();
        let came = arrived.get(to).into_iter().flatten();
        let of_flow = came.filter(|frame| frame.bytes.get(6..12) == Some(&source.0));
        let came: Vec<u64> = of_flow.map(TestFrame::sequence).collect();
        ensure!(came == meant, "of frames {meant:?} from {from}, {to} received {came:?}");
    }
    let all: usize = arrived.values().map(Vec::len).sum();
    let meant: usize = sent.iter().map(|(_, frames)| frames.len()).sum();
    ensure!(all == meant, "{meant} frames were sent, but {all} arrived in total");
    Ok(())
}

fn first_frame(t: &mut TestContext<'_>) -> Result<String> {
    three_paths(t)?;
    for (path, in_force) in PATHS {
        t.set_adapter("a", json!({"path": path}))?;
        t.is_on("a", in_force)?;
        // The migrated guest has not sent since.
        t.reaches(("b", B), ("a", A))?;
        t.reaches(("c", C), ("a", A))?;
        t.reaches((WIRE, W), ("a", A))?;
    }
    Ok("from the switch, a VMQ adapter and the wire, on each path".to_owned())
}

fn broadcasts(t: &mut TestContext<'_>) -> Result<String> {
    three_paths(t)?;
    for (path, in_force) in PATHS {
        t.set_adapter("a", json!({"path": path}))?;
        t.is_on("a", in_force)?;
        broadcast_reaches(t, ("a", A), &["b", "c", WIRE])?;
        broadcast_reaches(t, ("b", B), &["a", "c", WIRE])?;
        broadcast_reaches(t, ("c", C), &["a", "b", WIRE])?;
        broadcast_reaches(t, (WIRE, W), &["a", "b", "c"])?;
    }
    Ok("4 senders on each of 3 paths: every station received each broadcast once".to_owned())
}

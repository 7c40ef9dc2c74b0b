//! Migrations between two daemons with fake QEMUs: order of steps, and rollback.

pub(crate) mod fake_pair;
mod fake_qemu;
mod guest_vfs;
mod lossy_proxy;
mod obstacles;
mod pairs;
mod recovery;

use std::time::Duration;

use api::Client;
use api::testing::Site;
use model::testing::document;
use serde_json::{Value, json};

use super::{
    MigrateError, MigrationOutcome, MigrationReport, MigrationSpec, RecoveryReport, RecoverySpec,
    abort, finish, plan, run,
};
use fake_qemu::{FakeQemu, Fault};
use lossy_proxy::{Dropped, lossy_proxy};

/// Two daemons, the second with only a NIC and a switch, and two QEMUs.
struct Lab {
    here: Site,
    there: Site,
    source: FakeQemu,
    target: FakeQemu,
}

fn set_connected(site: &Site, name: &str, connected: bool) {
    let mut paper = site.plane.0.lock().unwrap();
    let adapters = paper.actual.adapters.iter_mut();
    adapters.filter(|one| one.name == name).for_each(|one| one.connected = connected);
}

impl Lab {
    fn new(fault: Option<Fault>) -> Lab {
        let (here, there) = (Site::new(), Site::new());
        here.apply(document());
        let mut empty = document();
        empty["adapter"] = json!([]);
        empty["switch"][0]["port"] = json!([]);
        there.apply(empty);
        set_connected(&here, "web", true);
        let (from, to) = (here.plane.clone(), there.plane.clone());
        let of = |plane: &api::testing::Shared, connected: bool| {
            let mut paper = plane.0.lock().unwrap();
            let adapters = paper.actual.adapters.iter_mut();
            adapters.filter(|one| one.name == "web").for_each(|one| one.connected = connected);
        };
        // Rings run at the guest's location.
        let moved = move |at_source: bool, at_target: bool| {
            of(&from, at_source);
            of(&to, at_target);
        };
        let (source, target) = fake_qemu::pair(fault, moved);
        Lab { here, there, source, target }
    }

    fn spec(&self) -> MigrationSpec {
        let client = |site: &Site| Client::new(&site.socket());
        MigrationSpec {
            vm: "web-vm".into(),
            source: client(&self.here),
            target: client(&self.there),
            source_qmp: self.source.path.clone(),
            target_qmp: self.target.path.clone(),
            uri: "unix:/run/migration".into(),
            adapters: Vec::new(),
            sockets: [("web".to_owned(), "/run/there/web.sock".to_owned())].into(),
            target_primaries: Default::default(),
            primary_timeout: Duration::from_millis(300),
            switch: None,
            nic: None,
            bandwidth: Some(1_000_000),
            downtime_ms: Some(50),
            timeout: Duration::from_millis(400),
            start: None,
            start_timeout: Duration::from_millis(300),
            verify_timeout: Duration::from_millis(300),
            keep_source: false,
            guest_agent: None,
            target_guest_agent: None,
            interrupted: Default::default(),
        }
    }

    fn run(&self) -> MigrationReport {
        run(&self.spec(), &mut |_| ()).unwrap()
    }

    /// Checks that nothing was undone after a migration with unknown result.
    fn is_left_as_it_is(&self, report: &MigrationReport, says: &str) {
        let undone = &report.steps.last().unwrap().text;
        let next = format!("`shunt migrate {} --finish`", report.id);
        assert!(undone.contains(says) && undone.contains(&next), "{undone}");
        for qemu in [&self.source, &self.target] {
            assert!(
                !["cont", "stop", "quit", "migrate_cancel"].iter().any(|one| qemu.was_told(one))
            );
        }
        let phase = |site: &Site| site.get("/v1/adapters/web/move")["phase"].clone();
        assert_eq!((phase(&self.here), phase(&self.there)), (json!("left"), json!("arrived")));
    }

    /// Desired states of both daemons.
    fn states(&self) -> [Value; 2] {
        [self.here.get("/v1/state"), self.there.get("/v1/state")]
    }

    fn keep(&self, frames: &[&[u8]]) {
        let frames = frames.iter().map(|frame| frame.to_vec()).collect();
        self.here.plane.0.lock().unwrap().kept.insert("web".into(), frames);
    }
}

const FRAME: &[u8] = &[7; 60];

#[test]
fn a_guest_moves_with_its_adapter_and_what_waited_for_it() {
    let lab = Lab::new(None);
    lab.keep(&[FRAME, &[8; 100]]);
    let report = lab.run();
    assert_eq!((report.outcome, &report.error), (MigrationOutcome::Moved, &None), "{report:#?}");
    let steps: Vec<&str> = report.steps.iter().map(|done| done.step.as_str()).collect();
    let all = ["inspect", "prepare", "connect", "leave", "switch", "migrate", "verify", "finish"];
    assert_eq!(steps, all);
    assert_eq!((report.downtime_ms, report.carried), (Some(12), 2));
    assert_eq!(lab.there.plane.0.lock().unwrap().kept["web"], [FRAME.to_vec(), vec![8; 100]]);
    assert_eq!(lab.there.plane.0.lock().unwrap().announced, ["web"]);
    // Only this guest's adapter has moved, and it is an ordinary one.
    let names = |site: &Site| -> Vec<String> {
        let all = site.get("/v1/adapters");
        all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!((names(&lab.here), names(&lab.there)), (vec!["db".into()], vec!["web".to_owned()]));
    let adapter = lab.there.get("/v1/adapters/web");
    assert_eq!(adapter["attachment"]["socket"], "/run/there/web.sock");
    assert_eq!((adapter.get("move"), &adapter["iov_weight"]), (None, &json!(50)));
    assert!(lab.source.was_told("quit"));
    let told = lab.source.arguments("migrate-set-parameters");
    assert_eq!(told, json!({"max-bandwidth": 1_000_000, "downtime-limit": 50}));
    assert_eq!(lab.target.arguments("migrate-incoming"), json!({"uri": "unix:/run/migration"}));
}

#[test]
fn a_move_that_is_interrupted_is_undone() {
    let lab = Lab::new(Some(Fault::NeverEnds));
    let before = lab.states();
    let spec = MigrationSpec { timeout: Duration::from_secs(60), ..lab.spec() };
    let flag = spec.interrupted.clone();
    let mut on_step = |done: &super::StepReport| {
        // After this step QEMU copies without end.
        flag.store(done.step == "leave", std::sync::atomic::Ordering::Relaxed);
    };
    let report = run(&spec, &mut on_step).unwrap();
    assert_eq!(report.outcome, MigrationOutcome::RolledBack, "{report:#?}");
    assert_eq!(report.error.as_deref(), Some("interrupted"));
    assert_eq!((lab.states(), lab.source.status()), (before, "running".into()));
}

/// The target has the addresses before QEMU continues, and the source has handed them over.
#[test]
fn addresses_move_while_the_guest_stands_still() {
    let lab = Lab::new(None);
    let seen = lab.source.watch("migrate-continue", {
        let sockets = [lab.here.socket(), lab.there.socket()];
        move || {
            let phase = |socket: &std::path::PathBuf| {
                let path = "/v1/adapters/web/move";
                let reply = Client::new(socket).send(api::Method::GET, path, None, None);
                reply.unwrap().body["phase"].as_str().unwrap().to_owned()
            };
            sockets.iter().map(phase).collect::<Vec<_>>().join(" ")
        }
    });
    assert_eq!(lab.run().outcome, MigrationOutcome::Moved);
    assert_eq!(seen.lock().unwrap().as_deref(), Some("left arrived"));
}

#[test]
fn a_plan_says_what_there_would_be_and_changes_nothing() {
    let lab = Lab::new(None);
    let before = lab.states();
    let made = plan(&lab.spec()).unwrap();
    assert_eq!(made.adapters.len(), 1);
    assert!(made.obstacles.is_empty());
    let text = made.to_string();
    assert!(text.contains("adapter web 02:00:00:00:01:01: vf -> vf"), "{text}");
    assert_eq!(lab.states(), before);
    lab.there.does("PATCH", "/v1/nics/nic0", json!({"num_vfs": 0}));
    let text = plan(&lab.spec()).unwrap().to_string();
    assert!(text.contains("vf -> vmq (VfDisabled: "), "{text}");
}

#[test]
fn whatever_fails_before_the_guest_is_there_is_undone() {
    for (fault, says) in [
        (Fault::NoTarget, "has not answered for"),
        (Fault::NoIncoming, "QEMU refuses migrate-incoming"),
        (Fault::Refuses, "QEMU refuses migrate: "),
        (Fault::FailsEarly, "is failed: the other end is gone"),
        (Fault::NeverEnds, "is still active"),
        (Fault::Chatty, "is still active"),
        (Fault::FailsLate, "is failed: the other end is gone"),
    ] {
        let lab = Lab::new(Some(fault));
        lab.keep(&[FRAME]);
        let before = lab.states();
        let report = lab.run();
        assert_eq!(report.outcome, MigrationOutcome::RolledBack, "{fault:?}: {report:#?}");
        let error = report.error.as_deref().unwrap();
        assert!(error.contains(says), "{fault:?}: {error}");
        let undone = report.steps.last().unwrap();
        assert_eq!(
            (&*undone.step, &*undone.text),
            ("undo", "the guest continues at the source"),
            "{fault:?}"
        );
        assert_eq!(lab.states(), before, "{fault:?}");
        assert_eq!(lab.source.status(), "running", "{fault:?}");
        let kept = lab.here.plane.0.lock().unwrap().kept.clone();
        assert_eq!(kept["web"], [FRAME.to_vec()], "{fault:?}: it comes back");
        let announced = lab.here.plane.0.lock().unwrap().announced.clone();
        let switched = fault == Fault::FailsLate;
        assert_eq!(
            lab.target.was_told("quit"),
            switched,
            "{fault:?}: the target's half ends for sure"
        );
        assert_eq!(announced, if switched { vec!["web"] } else { vec![] }, "{fault:?}");
    }
}

/// Frames and writes since then are unknown at the source.
#[test]
fn a_guest_that_has_run_at_the_target_does_not_come_back() {
    let lab = Lab::new(Some(Fault::Silent));
    let report = lab.run();
    assert_eq!(report.outcome, MigrationOutcome::Unclear, "{report:#?}");
    assert!(report.error.as_ref().unwrap().contains("the rings of web do not run"));
    lab.is_left_as_it_is(&report, "the guest has run at the target");
}

/// A silent QEMU has not necessarily exited.
#[test]
fn what_is_not_certain_is_not_undone() {
    for (fault, error, says) in [
        (Fault::Stuck, "is still device", "QEMU's migration is device, and the guest may be"),
        (Fault::SourceMute, "was not answered within", "the source's QEMU does not answer (query-"),
    ] {
        let lab = Lab::new(Some(fault));
        let report = lab.run();
        assert_eq!(report.outcome, MigrationOutcome::Unclear, "{report:#?}");
        assert!(report.error.as_ref().unwrap().contains(error), "{report:#?}");
        lab.is_left_as_it_is(&report, says);
    }
}

/// Running rings prove a running guest, even if QEMU is silent.
#[test]
fn a_target_that_says_nothing_of_a_guest_that_runs_is_no_trouble() {
    let lab = Lab::new(Some(Fault::TargetMute));
    let spec = MigrationSpec { verify_timeout: Duration::from_secs(60), ..lab.spec() };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!((report.outcome, &report.error), (MigrationOutcome::Moved, &None), "{report:#?}");
}

#[test]
fn what_was_set_for_the_move_is_set_back() {
    let lab = Lab::new(Some(Fault::FailsEarly));
    assert_eq!(lab.run().outcome, MigrationOutcome::RolledBack);
    let of = |command: &str| (lab.source.arguments(command), lab.source.last_arguments(command));
    let all = |states| json!({"capabilities": fake_qemu::capabilities(states)});
    let changed = of("migrate-set-capabilities");
    assert_eq!(changed, (all([true, true, true]), all([true, false, false])));
    let limits = |bandwidth: u64, downtime: u64| json!({"max-bandwidth": bandwidth, "downtime-limit": downtime});
    let changed = of("migrate-set-parameters");
    assert_eq!(changed, (limits(1_000_000, 50), limits(134_217_728, 300)));
}

/// More frames wait than fit into one request; whatever is lost on the way, the guest gets each
/// frame once and in order.
#[test]
fn an_answer_that_is_lost_loses_and_doubles_no_frame() {
    let waiting: Vec<Vec<u8>> =
        (0..5000_u32).map(|number| [&number.to_be_bytes()[..], &[0; 56]].concat()).collect();
    let came = vec![vec![9; 60]]; // to the target, after the switch
    for (at_source, step, nth, lost) in [
        (true, "hand-over", 1, Dropped::Request),
        (true, "hand-over", 1, Dropped::Answer),
        (false, "frames", 1, Dropped::Answer),
        (false, "frames", 2, Dropped::Request),
        (false, "frames", 2, Dropped::Answer),
        (false, "take-over", 1, Dropped::Answer),
    ] {
        let lab = Lab::new(None);
        let before = lab.states();
        lab.here.plane.0.lock().unwrap().kept.insert("web".into(), waiting.clone());
        lab.there.plane.0.lock().unwrap().kept.insert("web".into(), came.clone());
        let socket = if at_source { lab.here.socket() } else { lab.there.socket() };
        let client = Client::new(&lossy_proxy(&socket, step, nth, lost));
        let spec = lab.spec();
        let spec = match at_source {
            true => MigrationSpec { source: client, ..spec },
            false => MigrationSpec { target: client, ..spec },
        };
        let report = run(&spec, &mut |_| ()).unwrap();
        assert_eq!(
            report.outcome,
            MigrationOutcome::RolledBack,
            "{step} {nth} {lost:?}: {report:#?}"
        );
        let kept = lab.here.plane.0.lock().unwrap().kept["web"].clone();
        assert!(
            kept == [&waiting[..], &came[..]].concat(),
            "{step} {nth} {lost:?}: {}",
            kept.len()
        );
        assert_eq!(lab.states(), before);
    }
}

/// Both daemons report the total since the migration began, each time.
#[test]
fn lost_frames_are_counted_once() {
    let lab = Lab::new(None);
    lab.here.plane.0.lock().unwrap().lost.insert("web".into(), 3);
    lab.there.plane.0.lock().unwrap().lost.insert("web".into(), 2);
    assert_eq!(lab.run().lost, 5);
}

/// The start command outlives `shunt migrate`, but is terminated if the guest does not move.
#[test]
fn a_start_command_has_a_group_of_its_own() {
    let lab = Lab::new(Some(Fault::NoTarget));
    let file = lab.source.path.with_file_name("group");
    let qemu_status = format!(
        "cut -d' ' -f5 /proc/self/stat > {0}.new; mv {0}.new {0}; exec sleep 1000",
        file.display()
    );
    let spec = MigrationSpec { start: Some(qemu_status), ..lab.spec() };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!(report.outcome, MigrationOutcome::RolledBack);
    let group: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert_ne!(group, rustix::process::getpgrp().as_raw_nonzero().get());
    let group = rustix::process::Pid::from_raw(group).unwrap();
    assert!(rustix::process::test_kill_process_group(group).is_err(), "it is still there");
}

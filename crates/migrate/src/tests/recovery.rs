//! Migrations that `shunt migrate` did not end.

use serde_json::json;

use super::fake_qemu::Fault;
use super::{
    Client, FRAME, Lab, MigrateError, MigrationOutcome, RecoveryReport, RecoverySpec, abort, finish,
};

impl Lab {
    fn ending(&self, name: &str) -> RecoverySpec {
        RecoverySpec {
            name: name.to_owned(),
            source: Client::new(&self.here.socket()),
            target: Client::new(&self.there.socket()),
            source_qmp: self.source.path.clone(),
            target_qmp: None,
            go_back: false,
            guest_agent: None,
            keep_source: false,
        }
    }

    fn abort(&self, name: &str) -> Result<RecoveryReport, MigrateError> {
        abort(&self.ending(name), &mut |_| ())
    }

    fn finish(&self, name: &str) -> Result<RecoveryReport, MigrateError> {
        finish(&self.ending(name), &mut |_| ())
    }

    /// Id of a migration with unknown result.
    fn unclear(&self) -> String {
        let report = self.run();
        assert_eq!(report.outcome, MigrationOutcome::Unclear, "{report:#?}");
        report.id
    }

    fn adapters(&self) -> [usize; 2] {
        [&self.here, &self.there].map(|site| site.get("/v1/adapters").as_array().unwrap().len())
    }
}

/// `shunt migrate` is killed between the switch and `migrate-continue`, for which QEMU waits
/// without a timeout.
#[test]
fn a_guest_that_waits_in_the_switch_runs_again_after_an_abort() {
    for by_id in [true, false] {
        let lab = Lab::new(Some(Fault::CutAtSwitch));
        lab.keep(&[FRAME]);
        let before = lab.states();
        let id = lab.unclear();
        assert_eq!(lab.source.status(), "finish-migrate");
        let refused = lab.finish(&id).unwrap_err();
        assert!(refused.to_string().contains("the guest is at the source"), "{refused}");
        let ended = lab.abort(if by_id { &id } else { "web-vm" }).unwrap();
        assert_eq!((ended.error, ended.id), (None, Some(id)));
        let text = &ended.steps[0].text;
        assert_eq!(text, "the guest is running at the source; taken back: web");
        assert_eq!((lab.states(), lab.source.status()), (before, "running".into()));
        assert_eq!(lab.here.plane.0.lock().unwrap().kept["web"], [FRAME.to_vec()]);
        // The next migration must not wait for `migrate-continue`.
        let pause = json!({"capability": "pause-before-switchover", "state": false});
        let told = lab.source.last_arguments("migrate-set-capabilities");
        assert_eq!(told["capabilities"], json!([pause]));
        // A repeated abort is harmless.
        assert_eq!(lab.abort("web-vm").unwrap().error, None);
    }
}

/// The daemons have given the migration up by then, and only QEMU knows of it.
#[test]
fn a_guest_that_only_its_qemu_knows_to_be_moving_runs_again() {
    let lab = Lab::new(Some(Fault::CutAtSwitch));
    let id = lab.unclear();
    for site in [&lab.there, &lab.here] {
        site.does("POST", "/v1/adapters/web/move", json!({"id": id, "step": "abort"}));
    }
    assert!(lab.finish("web-vm").unwrap_err().to_string().contains("nothing to finish"));
    let ended = lab.abort(&id).unwrap();
    assert_eq!((ended.id, ended.error), (None, None));
    assert_eq!(lab.source.status(), "running");
}

#[test]
fn a_guest_that_is_on_its_standby_is_told_of() {
    let lab = Lab::new(Some(Fault::CutAtSwitch));
    lab.here.does("PATCH", "/v1/adapters/web", json!({"path": "synthetic"}));
    lab.source.set_pair("02:00:00:00:01:01", None);
    let id = lab.unclear();
    let text = lab.abort(&id).unwrap().steps[0].text.clone();
    assert!(text.ends_with("; web is on its standby: shunt vm attach web"), "{text}");
}

#[test]
fn a_guest_that_is_at_the_target_is_left_there_and_the_rest_finished() {
    let lab = Lab::new(Some(Fault::Silent));
    lab.keep(&[FRAME]);
    let id = lab.unclear();
    let states = lab.states();
    for name in [&*id, "web-vm"] {
        let refused = lab.abort(name).unwrap_err().to_string();
        let told = "--abort: is not safe: the migration is completed at the source's QEMU";
        assert!(refused.starts_with(told), "{refused}");
    }
    assert_eq!((lab.states(), lab.source.status()), (states, "postmigrate".into()));
    let ended = lab.finish("web-vm").unwrap();
    // The frame was transferred before, and is still counted.
    assert_eq!((ended.error, ended.id, ended.carried), (None, Some(id), 1));
    assert_eq!(lab.there.plane.0.lock().unwrap().kept["web"], [FRAME.to_vec()]);
    assert_eq!(lab.adapters(), [1, 1]);
    assert_eq!(lab.there.get("/v1/adapters/web").get("move"), None);
    assert!(lab.source.was_told("quit") && !lab.target.was_told("quit"));
    // A repeated finish finds nothing.
    assert!(lab.finish("web-vm").unwrap_err().to_string().contains("nothing to finish"));
}

/// If the source's QEMU has exited, the rings show if the guest is at the target.
#[test]
fn without_the_sources_qemu_rings_say_where_the_guest_is() {
    let lab = Lab::new(Some(Fault::Silent));
    let id = lab.unclear();
    super::super::qemu::end(&lab.source.path).unwrap();
    let refused = lab.finish(&id).unwrap_err().to_string();
    assert!(refused.contains("the rings of web do not run at the target either"), "{refused}");
    assert_eq!(lab.adapters(), [2, 1]);
    super::set_connected(&lab.there, "web", true);
    assert_eq!(lab.finish(&id).unwrap().error, None);
    assert_eq!(lab.adapters(), [1, 1]);
}

#[test]
fn a_guest_that_is_given_up_at_the_target_is_ended_there_first() {
    let lab = Lab::new(Some(Fault::Silent));
    let before = lab.states();
    let id = lab.unclear();
    let back = |target_qmp| RecoverySpec { go_back: true, target_qmp, ..lab.ending(&id) };
    let refused = abort(&back(None), &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("--to-qmp: is missing: --go-back ends"), "{refused}");
    let ended = abort(&back(Some(lab.target.path.clone())), &mut |_| ()).unwrap();
    assert_eq!(ended.error, None);
    assert!(lab.target.was_told("quit"));
    assert_eq!((lab.states(), lab.source.status()), (before, "running".into()));

    // A silent QEMU may have the guest.
    let lab = Lab::new(Some(Fault::SilentAndMute));
    let id = lab.unclear();
    let states = lab.states();
    let target_qmp = Some(lab.target.path.clone());
    let ending = RecoverySpec { go_back: true, target_qmp, ..lab.ending(&id) };
    let refused = abort(&ending, &mut |_| ()).unwrap_err().to_string();
    assert!(refused.contains("was not answered within"), "{refused}");
    assert_eq!((lab.states(), lab.source.status()), (states, "postmigrate".into()));
}

/// QEMU has one client: a running `shunt migrate` locks others out.
#[test]
fn a_running_migration_is_not_disturbed() {
    let lab = Lab::new(None);
    let states = lab.states();
    let mover = std::os::unix::net::UnixStream::connect(&lab.source.path).unwrap();
    let refused = lab.abort("web-vm").unwrap_err().to_string();
    assert!(refused.contains("if `shunt migrate` is still running"), "{refused}");
    drop(mover);
    assert_eq!(lab.states(), states);
    // Naming another guest's QEMU must not cancel that guest's migration.
    let refused = lab.abort("db-vm").unwrap_err().to_string();
    assert!(refused.contains("is the socket of guest web-vm, not of db-vm"), "{refused}");
    assert!(lab.source.only_queries());
}

#[test]
fn a_move_is_known_by_its_guests_name() {
    for (id, vm, expected) in [
        ("m-web-12-1795310798539", "web", true),
        ("m-web-2-12-1795310798539", "web-2", true),
        ("m-web-2-12-1795310798539", "web", false),
        ("m-web-12-1795310798539", "web-12", false),
        ("m-web--1-2", "web", false),
        ("web-12-1795310798539", "web", false),
        ("m-web", "web", false),
    ] {
        assert_eq!(super::super::id::is_of(id, vm), expected, "{id} {vm}");
    }
    let made = super::super::id::unique("a guest's name, with much in it");
    assert!(super::super::id::is_of(&made, "a guest's name, with much in it"), "{made}");
}

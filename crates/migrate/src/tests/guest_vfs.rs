//! VFs enabled by the guest, and its agent.

use super::fake_qemu::{AgentRequest, Fault};
use super::{Lab, MigrateError, MigrationOutcome, MigrationSpec, plan, run};

#[test]
fn a_guests_agent_takes_its_vfs_away_and_gives_them_back_at_the_target() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (agent, asked) = lab.source.agent(0);
    let (target_agent, asked_there) = lab.target.agent(0);
    let spec = MigrationSpec { guest_agent: Some(agent), ..lab.spec() };
    let made = plan(&spec).unwrap();
    assert!(made.to_string().contains("VFs 01:00.1 are disabled"), "{made}");
    assert_eq!(*asked.lock().unwrap(), [], "a plan changes nothing");

    let spec = MigrationSpec { target_guest_agent: Some(target_agent), ..spec };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!((report.outcome, &report.error), (MigrationOutcome::Moved, &None), "{report:#?}");
    assert_eq!(report.steps[1].step, "functions");
    assert_eq!(*asked.lock().unwrap(), [AgentRequest::Disable]);
    assert_eq!(*asked_there.lock().unwrap(), [AgentRequest::Restore]);
}

#[test]
fn a_guest_that_does_not_move_has_its_vfs_again() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (agent, asked) = lab.source.agent(0);
    // No QEMU waits at the target.
    let spec = MigrationSpec {
        guest_agent: Some(agent),
        target_qmp: "/nobody/is/here".into(),
        ..lab.spec()
    };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!(report.outcome, MigrationOutcome::RolledBack);
    assert_eq!(report.steps.last().unwrap().text, "the guest continues at the source");
    assert_eq!(*asked.lock().unwrap(), [AgentRequest::Disable, AgentRequest::Restore]);

    // A guest that cannot disable them is not migrated, and keeps its VFs.
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (before, (agent, asked)) = (lab.states(), lab.source.agent(1));
    let spec = MigrationSpec { guest_agent: Some(agent), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("the guest could not disable its VFs (status 1)"), "{refused}");
    assert_eq!(*asked.lock().unwrap(), [AgentRequest::Disable, AgentRequest::Restore]);
    assert!(lab.source.only_queries());
    assert_eq!(lab.states(), before);
}

#[test]
fn an_agent_that_is_not_there_is_told_before_anything_is_touched() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let spec = MigrationSpec { guest_agent: Some("/no/agent".into()), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err();
    assert!(matches!(refused, MigrateError::Refused(_)));
    assert!(
        refused
            .to_string()
            .starts_with("--guest-agent: \"/no/agent\" does not work: no guest agent"),
        "{refused}"
    );
    // QEMU's socket exists without an agent in the guest.
    let silent = lab.source.path.with_file_name("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let spec = MigrationSpec { guest_agent: Some(silent), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("does not answer; check that it runs"), "{refused}");
    assert!(lab.source.only_queries());
    // Without VFs the agent is not asked.
    let lab = Lab::new(None);
    let spec = MigrationSpec { guest_agent: Some("/no/agent".into()), ..lab.spec() };
    assert_eq!(run(&spec, &mut |_| ()).unwrap().outcome, MigrationOutcome::Moved);
}

/// Runs the guest's scripts in a local shell.
#[test]
fn numbers_are_noted_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let devices = dir.path().join("devices");
    let noted = dir.path().join("noted");
    let file = |device: &str| devices.join(device).join("sriov_numvfs");
    for (device, number) in [("0000:01:00.0", "7"), ("0000:02:00.0", "0")] {
        std::fs::create_dir_all(devices.join(device)).unwrap();
        std::fs::write(file(device), format!("{number}\n")).unwrap();
    }
    let run = |script: &str| {
        let script = script
            .replace("/sys/bus/pci/devices", devices.to_str().unwrap())
            .replace("/run/shunt-numvfs", noted.to_str().unwrap());
        let status = std::process::Command::new("/bin/sh").args(["-c", &script]).status();
        assert!(status.unwrap().success(), "{script}");
    };
    let numbers = || {
        ["0000:01:00.0", "0000:02:00.0"]
            .map(|device| std::fs::read_to_string(file(device)).unwrap().trim().to_owned())
    };
    run(super::super::guest_vfs::RESTORE_SCRIPT); // nothing was noted
    run(super::super::guest_vfs::DISABLE_SCRIPT);
    assert_eq!(numbers(), ["0", "0"]);
    run(super::super::guest_vfs::DISABLE_SCRIPT); // by a second migration
    run(super::super::guest_vfs::RESTORE_SCRIPT);
    assert_eq!(numbers(), ["7", "0"]);
    assert!(!noted.exists());
}

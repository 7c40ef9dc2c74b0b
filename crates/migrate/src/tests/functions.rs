//! VFs of a guest's own, and its agent.

use super::qemu::{Asked, Fault};
use super::{Lab, Outcome, Spec, plan, run};

#[test]
fn a_guests_agent_takes_its_vfs_away_and_gives_them_back_at_the_target() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (agent, asked) = lab.source.agent(0);
    let (target_agent, asked_there) = lab.target.agent(0);
    let spec = Spec { guest_agent: Some(agent), ..lab.spec() };
    let made = plan(&spec).unwrap();
    assert!(made.to_string().contains("VFs 01:00.1 are taken away"), "{made}");
    assert_eq!(*asked.lock().unwrap(), [], "a plan changes nothing");

    let spec = Spec { target_guest_agent: Some(target_agent), ..spec };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!((report.outcome, &report.error), (Outcome::Moved, &None), "{report:#?}");
    assert_eq!(report.steps[1].step, "functions");
    assert_eq!(*asked.lock().unwrap(), [Asked::Take]);
    assert_eq!(*asked_there.lock().unwrap(), [Asked::Give]);
}

#[test]
fn a_guest_that_does_not_move_has_its_vfs_again() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (agent, asked) = lab.source.agent(0);
    // Nobody waits at the target.
    let spec =
        Spec { guest_agent: Some(agent), target_qmp: "/nobody/is/here".into(), ..lab.spec() };
    let report = run(&spec, &mut |_| ()).unwrap();
    assert_eq!(report.outcome, Outcome::RolledBack);
    assert_eq!(report.steps.last().unwrap().text, "the guest runs on at the source");
    assert_eq!(*asked.lock().unwrap(), [Asked::Take, Asked::Give]);

    // A guest that cannot take them away is not moved, and has what it had.
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let (before, (agent, asked)) = (lab.states(), lab.source.agent(1));
    let spec = Spec { guest_agent: Some(agent), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("the guest could not take its VFs away (status 1)"), "{refused}");
    assert_eq!(*asked.lock().unwrap(), [Asked::Take, Asked::Give]);
    assert!(lab.source.only_queries());
    assert_eq!(lab.states(), before);
}

#[test]
fn an_agent_that_is_not_there_is_told_before_anything_is_touched() {
    let lab = Lab::new(Some(Fault::VfsEnabled));
    let spec = Spec { guest_agent: Some("/no/agent".into()), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err();
    assert!(refused.is_mistake);
    assert!(refused.to_string().starts_with("nobody listens at /no/agent"), "{refused}");
    // QEMU's socket is there without an agent in the guest.
    let silent = lab.source.path.with_file_name("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let spec = Spec { guest_agent: Some(silent), ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("does not answer; see that it runs"), "{refused}");
    assert!(lab.source.only_queries());
    // Nobody is asked where there is nothing to take away.
    let lab = Lab::new(None);
    let spec = Spec { guest_agent: Some("/no/agent".into()), ..lab.spec() };
    assert_eq!(run(&spec, &mut |_| ()).unwrap().outcome, Outcome::Moved);
}

/// The scripts do in a shell what they are to do in the guest.
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
    run(super::super::functions::GIVE); // nothing was noted
    run(super::super::functions::TAKE);
    assert_eq!(numbers(), ["0", "0"]);
    run(super::super::functions::TAKE); // by a second mover
    run(super::super::functions::GIVE);
    assert_eq!(numbers(), ["7", "0"]);
    assert!(!noted.exists());
}

//! `shunt nic list`, `shunt nic show` and `shunt doctor` on this machine and on reports of others,
//! without root and without a daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sriov/tests/machines");

fn shunt(line: &str, machine: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(line.split(' ')).args(["--from", &format!("{MACHINES}/{machine}.json")]);
    command.stdin(Stdio::null()).output().expect("shunt was built for this test")
}

/// Standard output of a command that succeeds and reports nothing else.
fn says(line: &str, machine: &str) -> String {
    let output = shunt(line, machine);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{line} of {machine}: {told}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(line: &str, machine: &str) -> Value {
    serde_json::from_str(&says(&format!("{line} --json"), machine)).expect("JSON")
}

/// State of a check.
fn state(machine: &str, name: &str) -> String {
    let answer = json("doctor", machine);
    let checks = answer["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name).expect("the check");
    check["state"].as_str().expect("a state").to_owned()
}

#[test]
fn nics_of_a_report_are_listed_in_80_columns() {
    for (machine, verdict) in [
        ("igb", "yes (NoIoMmuSupport)"),
        ("igb-iommu", "yes"),
        ("derived-missing-acs", "yes (MissingAcs)"),
        ("derived-no-vf-bar-space", "NoVfBarSpace"),
        ("derived-no-driver", "MissingPfDriver"),
        ("derived-no-bus-numbers", "NoBusResources"),
    ] {
        let text = says("nic list", machine);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = text.lines().find(|line| line.contains("0000:01:00.0")).expect("the PF");
        assert!(row.ends_with(verdict), "{machine}: {row}");
    }
}

#[test]
fn a_nic_is_shown_by_interface_and_by_address() {
    let named = says("nic show eth0", "igb");
    for name in ["0000:01:00.0", "01:00.0"] {
        assert_eq!(says(&format!("nic show {name}"), "igb"), named, "{name}");
    }
    for word in ["NoIoMmuSupport", "remedy", "-device intel-iommu", "2 of 7"] {
        assert!(named.contains(word), "no {word} in: {named}");
    }
    let told = json("nic show eth0", "igb");
    assert_eq!(told["pci"]["total_vfs"], 7);
    assert_eq!(told["facts"]["sriov"]["vfs"].as_array().map(Vec::len), Some(2));
    let output = shunt("nic show eht0", "igb");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("did you mean eth0?"), "{told}");
}

#[test]
fn entries_that_no_daemon_manages_say_so() {
    let list = json("nic list", "igb");
    let pf = list.as_array().expect("a list").iter().find(|nic| nic["pci_driver"] == "igb");
    let pf = pf.expect("the PF");
    let of = ["name", "kind", "managed", "num_vfs", "total_vfs", "pci_address", "pci_support"];
    let want = serde_json::json!(["eth0", "pci", false, 2, 7, "0000:01:00.0", "Supported"]);
    assert_eq!(Value::from(of.map(|name| pf[name].clone()).to_vec()), want);
}

#[test]
fn the_doctor_finds_what_a_machine_lacks() {
    for (machine, check, want) in [
        ("igb", "iommu", "missing"),
        ("igb", "acs", "ok"),
        ("igb", "sriov-nic", "ok"),
        ("igb-iommu", "iommu", "ok"),
        ("igb-iommu", "acs", "ok"),
        ("derived-missing-acs", "acs", "missing"),
        ("derived-no-vf-bar-space", "vf-registers", "missing"),
        ("derived-no-bus-numbers", "vf-registers", "missing"),
        ("derived-no-driver", "sriov-nic", "missing"),
        ("derived-not-root", "acs", "unknown"),
    ] {
        assert_eq!(state(machine, check), want, "{check} of {machine}");
    }
    let text = says("doctor", "igb");
    let (tables, lacks) = text.split_once("\niommu: missing\n").expect("the lack of an IOMMU");
    assert!(lacks.contains("  costs   VFs of PCI NICs in VMs"), "{lacks}");
    let first = tables.split("\n\n").next().expect("the table");
    assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
}

#[test]
fn a_report_of_this_machine_is_anonymous_and_can_be_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("report.json");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.arg("doctor").args(words).stdin(Stdio::null()).output().expect("it was built")
    };
    let path = file.to_str().expect("UTF-8");
    let output = run(&["--report", path]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&file).expect("the report");
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let mac = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        let mac = mac.trim();
        assert!(mac.is_empty() || !text.contains(mac), "{mac} is in the report");
    }
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["findings", "machine", "pci", "report", "version"]
            .map(String::from)
            .iter()
            .collect::<Vec<_>>()
    );
    let answer = run(&["--json", "--from", path]);
    let answer: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(answer["checks"], report["findings"], "the facts lead to the same findings");
    assert_eq!(run(&["--report", "-"]).status.code(), Some(0));
    for (words, code, told) in [
        (&["--from", "/nonexistent"][..], 2, "cannot be read"),
        (&["--from", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 2, "is no report"),
        (&["--report", "/nonexistent/x"], 1, "cannot write /nonexistent/x"),
        (&["--report", "-", "--conform", "/nonexistent"], 2, "cannot be read"),
        (&["--report", "-", "--conform", path], 2, "has no results of the suite"),
    ] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(told), "{words:?}: {said}");
    }
}

#[test]
fn a_report_has_what_a_card_enforces_and_its_driver_refuses() {
    let conform = json("doctor", "igb-conform")["conform"].take();
    assert_eq!(conform["nic"], "card 0000:01:00.0");
    let tests = conform["tests"].as_array().expect("tests");
    let details: Vec<&str> = tests.iter().filter_map(|test| test["detail"].as_str()).collect();
    let page = include_str!("../../../docs/errors-sriov.md");
    for (setting, name, errno) in [
        ("min_tx_mbps", "EINVAL", 22),
        ("vlan", "EPROTONOSUPPORT", 93),
        ("link_state", "EOPNOTSUPP", 95),
    ] {
        let answer = format!("(os error {errno})");
        let refused = |detail: &&str| {
            detail.contains(&format!("refuses {setting} = ")) && detail.contains(&answer)
        };
        assert!(details.iter().any(refused), "{setting}: {details:#?}");
        let mut rows = page.lines().filter(|row| row.starts_with(&format!("| {setting} |")));
        let row = rows.find(|row| row.contains(&format!("| {name} |")));
        assert!(row.is_some_and(|row| row.contains("igb")), "{setting}: {name} on the page");
    }
    let text = says("doctor", "igb-conform");
    let (_, results) = text.split_once("\nconformance of card 0000:01:00.0\n").expect("the suite");
    assert!(results.contains("accepted, not enforced"), "{results}");
    assert!(results.ends_with(" n/a\n"), "{results}");
}

#[test]
fn without_a_daemon_the_pci_nics_are_listed_with_a_note() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our own directory");
    // A user without daemons, who must reach the program.
    let program = dir.path().join("shunt");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_shunt")).arg(&program).status();
    assert!(copied.expect("cp is there").success());
    let mut command = Command::new(&program);
    command.args(["nic", "list"]).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", dir.path()).env_remove("SHUNT_RUN_DIR");
    if rustix::process::geteuid().is_root() {
        command.uid(65_533).gid(65_533);
    }
    let output = command.output().expect("it was copied");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("no daemon runs"), "{told}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.starts_with("NIC ") || text == "none\n", "{text}");
}

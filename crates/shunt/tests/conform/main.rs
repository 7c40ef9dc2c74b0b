//! Conformance suite on the soft NIC: no test fails there, and each fails on the matching fault.

mod broken;
mod running;
#[path = "../terminal/mod.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use broken::{Broken, Fault};
use conform::soft::SoftNic;
use conform::{Interrupt, TestResult};
use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn shunt(args: &[&str]) -> Output {
    let command = &mut Command::new(SHUNT);
    let output = command.arg("conform").args(args).stdin(Stdio::null()).output();
    output.expect("shunt was built for this test")
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Tests that do not apply to the soft NIC.
const NOT_APPLICABLE: [&str; 5] = [
    "iommu-group-changes-do-not-matter",
    "link-state-auto-follows-the-uplink",
    "path-flapping-is-bounded",
    "vf-back-after-migration",
    "vf-state-migrates",
];

#[test]
fn the_soft_nic_has_none_of_the_troubles() {
    let output = shunt(&["--json"]);
    let report = json(&output);
    let tests = report["tests"].as_array().expect("tests");
    let failed: Vec<_> = tests.iter().filter(|test| test["result"] == "fail").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(output.status.code(), Some(0));
    let none: BTreeSet<_> = tests
        .iter()
        .filter(|test| test["result"] == "n/a")
        .map(|test| test["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(none, BTreeSet::from(NOT_APPLICABLE));
    let count = conform::tests().count();
    assert_eq!(tests.len(), count);
    for test in tests {
        let fields = ["name", "thread", "detail"];
        assert!(
            fields.iter().all(|field| !test[field].as_str().unwrap_or("").is_empty()),
            "{test}"
        );
    }
}

#[test]
fn words_choose_tests_and_each_is_a_line_of_the_table() {
    let output = shunt(&["vlan-gone", "iommu-group"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("vlan-gone-after-release") && text.contains("pass"), "{text}");
    assert!(text.ends_with("1 pass, 0 fail, 1 n/a\n"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
    let output = shunt(&["moonbeams"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("moonbeams") && said.contains("--list"), "{said}");
}

#[test]
fn the_list_has_every_test_and_runs_none() {
    let output = shunt(&["--list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let listed = json(&output).as_array().expect("a list").clone();
    assert_eq!(listed.len(), conform::tests().count());
    assert!(listed.iter().all(|test| test["promise"].is_string() && test["result"].is_null()));
    let text = String::from_utf8(shunt(&["--list"]).stdout).expect("text");
    assert_eq!(text.lines().count(), 1 + conform::tests().count(), "{text}");
    for (test, row) in conform::tests().zip(text.lines().skip(1)) {
        assert!(row.starts_with(test.name) && row.ends_with(test.promise), "{row}");
        assert!(row.contains(&format!(" {} ", test.thread)), "{row}");
    }
    terminal::fits(&["conform", "--list"].map(str::to_owned));
}

/// Faults, and the tests that must fail.
const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::IgnoresOwner, &["late-release-spares-new-owner", "late-release-after-restart"]),
    (
        Fault::SwallowsRefusals,
        &[
            "no-two-vfs-with-one-mac",
            "min-above-max-refused",
            "unsupported-options-refused",
            "out-of-range-refused",
        ],
    ),
    (
        Fault::KeepsAdapters,
        &["no-vf-leaks", "mac-unique-after-restart", "vf-returned-after-its-user-died"],
    ),
    (
        Fault::KeepsSettings,
        &["defaults-after-release", "old-mac-gone-after-release", "unclean-teardown-resets-the-vf"],
    ),
    (Fault::KeepsVlan, &["vlan-gone-after-release"]),
    (Fault::LosesPosted, &["guests-return-after-the-manager"]),
    (
        Fault::DeafAfterRestart,
        &["guests-return-before-the-manager", "no-false-shortage-after-restart"],
    ),
    (Fault::ForgetsVfs, &["all-vfs-or-a-reason"]),
    (Fault::Renumbers, &["capacity-right-after-restart", "vf-numbers-last"]),
    (Fault::StalePort, &["no-stale-ports-after-restart"]),
    (Fault::GoesThroughZero, &["num-vfs-changes-through-zero"]),
    (Fault::Deaf, &["total-vfs-needs-no-reboot", "link-state-enable-enforced"]),
    (Fault::Detaches, &["settings-need-no-restart"]),
    (Fault::SwapsRates, &["max-tx-rate-enforced"]),
    (Fault::ClearsOtherRate, &["min-tx-rate-alone-keeps-max", "max-tx-rate-alone-keeps-min"]),
    (Fault::ClearsTrunk, &["vlan-zero-keeps-the-trunk"]),
    (
        Fault::StripsTags,
        &["access-vlan-per-vf", "trunk-per-vf", "vlan-qos-enforced", "vlan-proto-enforced"],
    ),
    (Fault::TakesAnyWord, &["wrong-spoof-check-word-refused"]),
    (Fault::IgnoresSpoofCheck, &["mac-spoof-check-enforced"]),
    (
        Fault::NeverChecks,
        &["mac-spoof-check-enforced", "old-mac-gone-after-release", "further-macs-need-no-trust"],
    ),
    (Fault::IgnoresPromiscuous, &["promiscuous-needs-trust"]),
    (Fault::CountsNothing, &["vlan-spoof-check-enforced", "counters-while-a-guest-has-the-vf"]),
    (Fault::DropsMulticast, &["all-multicast-not-ignored"]),
    (Fault::IgnoresMacs, &["further-macs-need-no-trust"]),
    (Fault::LinkAlwaysUp, &["link-state-disable-enforced"]),
    (
        Fault::KeepsApart,
        &[
            "vf-and-switch-port-on-one-pf-talk",
            "vfs-of-two-kinds-of-guests-talk",
            "switch-clients-reach-vf-peers",
        ],
    ),
    (
        Fault::DropsUnknown,
        &[
            "bridge-behind-the-pf-is-reached",
            "added-macs-behind-pf-are-reached",
            "promiscuous-vf-hears-unknown-macs",
        ],
    ),
    (Fault::Renames, &["vfs-are-named-after-their-nic"]),
    (Fault::NeedsPf, &["pf-need-not-be-up-first"]),
    (Fault::OneMac, &["no-two-guests-read-one-mac", "mac-is-there-before-up"]),
    (Fault::GivesNoReasons, &["properties-on-every-adapter"]),
    (Fault::UsesDevice, &["no-hardware-needed"]),
    (Fault::Reshuffles, &["nobody-loses-a-vf-without-cause"]),
    (Fault::LosesFirst, &["no-frame-lost-on-a-path-change", "first-frame-of-a-flow-arrives"]),
    (Fault::Doubles, &["broadcasts-arrive-once-on-each-path"]),
    (Fault::StaysInSwitchdev, &["switchdev-back-to-legacy"]),
    (Fault::RepresentsNothing, &["switchdev-with-vfs-present"]),
    (Fault::RenamesRepresentors, &["representor-names-last"]),
];

#[test]
fn every_test_notices_what_it_is_there_for() {
    let mut unnoticed = Vec::new();
    for &(fault, names) in FAULTS {
        let nic = SoftNic::new(Path::new(SHUNT), Interrupt::default());
        let mut subject = Broken::new(nic, fault);
        let report = conform::run(&mut subject, |test| names.contains(&test.name), |_| {});
        assert_eq!(report.tests.len(), names.len(), "{fault:?}: a name of {names:?} is no test");
        for test in &report.tests {
            let line = format!("{fault:?}: {}: {}", test.name, test.detail);
            println!("{line}"); // shown on failure, and by --nocapture
            if test.result != TestResult::Fail {
                unnoticed.push(line);
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn a_card_need_not_enforce_what_it_reports_but_must_deliver_frames() {
    for (fault, name, result) in [
        (Fault::NeverChecks, "mac-spoof-check-enforced", TestResult::NotEnforced),
        (Fault::StripsTags, "vlan-qos-enforced", TestResult::NotEnforced),
        (Fault::SwapsRates, "max-tx-rate-enforced", TestResult::NotEnforced),
        (Fault::Deaf, "vlan-qos-enforced", TestResult::Fail),
    ] {
        let mut subject = Broken::new(SoftNic::new(Path::new(SHUNT), Interrupt::default()), fault);
        subject.is_card = true;
        let report = conform::run(&mut subject, |test| test.name == name, |_| {});
        assert_eq!(report.tests[0].result, result, "{fault:?}: {:?}", report.tests[0]);
        let is_told = report.tests[0].detail.ends_with("is reported in force");
        assert_eq!(is_told, result == TestResult::NotEnforced, "{:?}", report.tests[0]);
    }
}

#[test]
fn no_test_is_without_a_fault_that_it_must_notice() {
    let noticed: BTreeSet<&str> = FAULTS.iter().flat_map(|(_, names)| *names).copied().collect();
    let without: Vec<&str> = conform::tests()
        .map(|test| test.name)
        .filter(|name| !noticed.contains(name) && !NOT_APPLICABLE.contains(name))
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

//! Reports of machines (`shunt doctor --report`), replayed: each has an expected list and an
//! expected description of its NICs. `INSTA_UPDATE=always` writes the expectations of a new one.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sriov::discovery::{Listing, details};
use sriov::facts::{Facts, anonymised};

/// Reports, by name.
fn machines() -> Vec<(String, Facts)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let entries = fs::read_dir(directory).expect("the reports");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "json"));
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().and_then(|it| it.to_str()).expect("UTF-8").to_owned();
        let text = fs::read_to_string(&path).expect("a file");
        let mut report: Value = serde_json::from_str(&text).expect("a report");
        let facts = serde_json::from_value(report["pci"].take()).expect("facts");
        (name, facts)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn each_machine_is_listed_and_described_as_expected() {
    let machines = machines();
    assert!(machines.len() >= 8, "reports are missing");
    for (name, facts) in machines {
        let mut text = String::new();
        for (nic, row) in facts.nics.iter().zip(Listing::all(&facts)) {
            text += &format!("{:#}\n", serde_json::to_value(row).expect("JSON"));
            for (heading, value) in details(&facts.platform, nic) {
                text += &format!("{heading}: {value}\n");
            }
        }
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(name, text);
        });
    }
}

#[test]
fn no_report_has_a_whole_mac_address() {
    for (name, facts) in machines() {
        assert_eq!(anonymised(&facts).expect("JSON"), facts, "{name}");
    }
}

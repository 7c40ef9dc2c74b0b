//! File copies in every form of the report.

use std::collections::BTreeSet;

use super::super::results::Results;
use super::super::samples::{copies, results};
use super::super::{TextFormat, copy_table, csv, html, json};
use super::{check_html, parse_csv};

#[test]
fn file_copies_are_in_every_form_of_the_report() {
    let run = Results { points: Vec::new(), copies: copies(), ..results(Vec::new()) };
    let text = json::results(&run).unwrap();
    assert_eq!(json::read(&text).unwrap(), run);
    let none = json::results(&results(Vec::new())).unwrap();
    assert!(!none.contains("copies"), "results without copies are as they were");
    let page = html::page(&run);
    check_html(&page).unwrap();
    for words in ["id=\"copies-64\"", "3 points", "4 together", "<td>0.40</td>", "<td>900</td>"] {
        assert!(page.contains(words), "{words}");
    }
    for words in ["no large difference", "1e3..1e4", "<dt>File copies</dt>", "switch CPU 0"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("Nothing was measured") && !page.contains("The generator: what"));
    let rows = parse_csv(&csv::copies(&run.copies));
    assert_eq!(rows.len(), 4 + 1 + 1 + 1);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let column = |name: &str| rows[0].iter().position(|known| known == name).unwrap();
    assert_eq!(rows[3][column("guest.path")], "synthetic");
    assert_eq!(rows[1][column("guest.checksum")], rows[1][column("checksum")]);
    let cycles = run.copies[2].host.lane_cycles_per_kib;
    for (name, value) in ["_least", "", "_most"].into_iter().zip(cycles) {
        let name = format!("host.lane_cycles_per_kib{name}");
        assert_eq!(rows[6][column(&name)], value.to_string());
    }
}

#[test]
fn copies_of_two_sizes_are_told_apart() {
    let large =
        copies().into_iter().map(|copy| super::super::results::FileCopy { file_mib: 512, ..copy });
    let run =
        Results { copies: copies().into_iter().chain(large).collect(), ..results(Vec::new()) };
    let page = html::page(&run);
    check_html(&page).unwrap();
    for words in ["Copies of 64 MiB", "Copies of 512 MiB", "A file of 512 MiB. Guests"] {
        assert!(page.contains(words), "{words}");
    }
    let text = copy_table::all(&run.copies, TextFormat::LINES);
    assert!(text.contains("64 MiB, the guests") && text.contains("512 MiB, the guests"), "{text}");
    assert_eq!(text.matches("guests: number of simultaneous copies").count(), 1, "one legend");
}

/// Every spread of a file copy in JSON has its CSV columns.
#[test]
fn csv_has_every_field_of_a_file_copy() {
    let value = serde_json::to_value(&copies()[1]).unwrap();
    let mut names = BTreeSet::new();
    let mut add = |prefix: &str, fields: &serde_json::Value| {
        for (name, value) in fields.as_object().unwrap() {
            match value {
                serde_json::Value::Array(values) if values.first().is_some_and(|v| v.is_f64()) => {
                    names.extend(["_least", "", "_most"].map(|end| format!("{prefix}{name}{end}")));
                }
                serde_json::Value::Object(_) => {}
                serde_json::Value::Array(_) if name == "guests" && prefix.is_empty() => {}
                _ => drop(names.insert(format!("{prefix}{name}"))),
            }
        }
    };
    add("", &value);
    add("host.", &value["host"]);
    add("pinned.", &value["pinned"]);
    add("guest.", &value["guests"][0]);
    let header = parse_csv(&csv::copies(&[])).remove(0);
    assert_eq!(header.into_iter().collect::<BTreeSet<_>>(), names);
}

#[test]
fn tables_of_file_copies_fit_a_terminal() {
    let text = copy_table::all(&copies(), TextFormat::LINES);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // The setup appears once for its guests, and once for the shared layers.
    assert_eq!(text.matches("4 together").count(), 2, "{text}");
    assert!(text.contains("0.36-0.44"), "{text}");
    assert!(text.contains("810-990") && text.contains("80%"), "{text}");
    assert!(text.contains("1 on synthetic") && text.contains("0.40+0.60"), "{text}");
    assert_eq!(copy_table::all(&[], TextFormat::LINES), "");
}

#[test]
fn a_file_copy_with_a_number_that_cannot_be_is_not_written() {
    let mut bad = copies();
    bad[0].guests[3].gbps[2] = f64::INFINITY;
    let run = Results { points: Vec::new(), copies: bad, ..results(Vec::new()) };
    let error = json::results(&run).unwrap_err().to_string();
    assert!(error.contains("guest.gbps_most") && error.contains("4 together"), "{error}");
}

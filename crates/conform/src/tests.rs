//! Catalogue: unique names, threads, and an entry in the documentation for each test.

use std::collections::BTreeSet;

use super::*;

const DOCUMENT: &str = include_str!("../../../docs/conformance.md");

#[test]
fn names_are_words_with_hyphens_and_occur_once() {
    let mut seen = BTreeSet::new();
    for test in tests() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(test.name.chars().all(plain), "{}", test.name);
        assert!(seen.insert(test.name), "{} occurs twice", test.name);
        assert!(test.promise.ends_with('.'), "{}: {}", test.name, test.promise);
    }
    assert!(seen.len() >= 40, "only {} tests", seen.len());
}

#[test]
fn threads_name_a_repository() {
    for test in tests() {
        let (house, rest) = test.thread.split_once('/').expect("owner/name");
        assert!(!house.is_empty() && rest.contains(['#', '(']), "{}: {}", test.name, test.thread);
    }
}

#[test]
fn the_documentation_lists_every_test_and_no_others() {
    let rows: BTreeSet<String> = tests()
        .map(|test| format!("| `{}` | {} | {} |", test.name, test.thread, test.promise))
        .collect();
    let document: BTreeSet<String> =
        DOCUMENT.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let missing: Vec<_> = rows.difference(&document).collect();
    let foreign: Vec<_> = document.difference(&rows).collect();
    assert!(missing.is_empty(), "not in docs/conformance.md:\n{missing:#?}");
    assert!(foreign.is_empty(), "in docs/conformance.md but not in the catalogue:\n{foreign:#?}");
}

//! Every bit and every message has its row in docs/virtio.md, under its own number and name.

use std::collections::BTreeSet;
use std::path::Path;

use vhost_user::{BackendRequest, Features, ProtocolFeatures, Request};

/// Number and name of each row of the table under a heading.
fn rows(heading: &str) -> BTreeSet<(u32, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/virtio.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, behind) = text.split_once(&format!("\n## {heading}\n")).expect("such a heading");
    let section = behind.split("\n## ").next().expect("at least one part");
    let mut rows = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, name, state, ..] = cells[..] else { panic!("too few cells: {line}") };
        let Ok(number) = number.parse() else { continue }; // the table's head
        assert!(!state.is_empty(), "nothing is said of {name}");
        assert!(rows.insert((number, name.to_owned())), "{name} has two rows");
    }
    rows
}

fn bits<'a>(names: impl Iterator<Item = (&'a str, u64)>) -> BTreeSet<(u32, String)> {
    names.map(|(name, bit)| (bit.trailing_zeros(), name.to_owned())).collect()
}

#[test]
fn feature_bits() {
    let names = Features::all().iter_names().map(|(name, bit)| (name, bit.bits()));
    assert_eq!(rows("Feature bits"), bits(names));
}

#[test]
fn protocol_features() {
    let names = ProtocolFeatures::all().iter_names().map(|(name, bit)| (name, bit.bits()));
    assert_eq!(rows("Protocol features"), bits(names));
}

#[test]
fn messages() {
    let of = |requests: Vec<(u32, &str)>| -> BTreeSet<(u32, String)> {
        requests.into_iter().map(|(code, name)| (code, name.to_owned())).collect()
    };
    let front = Request::ALL.iter().map(|request| (request.code(), request.name()));
    assert_eq!(rows("Messages of the front-end"), of(front.collect()));
    let back = BackendRequest::ALL.iter().map(|request| (request.code(), request.name()));
    assert_eq!(rows("Messages of the back-end"), of(back.collect()));
}

/// Features documented as supported are those offered.
#[test]
fn what_is_done_is_what_is_offered() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/virtio.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, behind) = text.split_once("\n## Protocol features\n").unwrap();
    let section = behind.split("\n## ").next().unwrap();
    for (name, feature) in ProtocolFeatures::all().iter_names() {
        let row = section.lines().find(|line| line.contains(&format!(" | {name} | "))).unwrap();
        let says_done = row.contains(&format!(" | {name} | done"));
        assert_eq!(says_done, ProtocolFeatures::SUPPORTED.contains(feature), "{row}");
    }
}

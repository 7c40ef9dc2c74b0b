//! The example parses and shows every field; the page has the row of every field.

use std::collections::BTreeSet;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::super::fields::{Default, Field, Kind, SECTIONS};
use super::*;
use crate::state::shape;

const EXAMPLE: &str = include_str!("../../../../../docs/shunt.example.toml");
const PAGE: &str = include_str!("../../../../../docs/configuration.md");

#[test]
fn the_example_means_what_its_comments_say() {
    let config = parse(EXAMPLE);
    let lanes =
        Lanes { cpus: vec![2, 3], poll_us: 50, yield_us: 50, sleep: true, cpu_latency_us: Some(0) };
    assert_eq!(config.lanes, lanes);
    let limits = (config.limits.session_memory_mib, config.limits.guest_memory_mib);
    assert_eq!(limits, (Some(256 << 10), Some(1 << 20)));
    assert_eq!(config.state_dir.as_deref(), Some(Path::new("/var/lib/shunt")));
    let tcp = config.api.as_ref().and_then(|api| api.tcp.as_ref()).unwrap();
    assert_eq!((tcp.address.port(), tcp.tls.is_some()), (8443, true));
    assert_eq!(config.state.adapter("web").map(|web| web.iov_weight), Some(50));
    let [nic, _, smart] = config.nics.as_slice() else { panic!("{} NICs", config.nics.len()) };
    assert!(smart.switchdev && !nic.switchdev);
    assert_eq!(config.state.nic("nic2").unwrap().rules.len(), 2);
    assert_eq!((nic.name.as_str(), nic.kind, nic.total_vfs), ("nic0", NicKind::Soft, 8));
    let uplink = nic.uplink.as_ref().unwrap();
    assert_eq!(uplink.to_string(), "vhost-user:/run/shunt/uplink.sock");
    assert_eq!(nic.pf.as_ref().unwrap().mac.to_string(), "02:00:00:00:00:f0");
    assert_eq!(nic.vfs.iter().map(|vf| vf.index).collect::<Vec<_>>(), [0, 1, 5, 3]);
    assert_eq!(nic.vfs[0].function.macs.len(), 2);
    assert_eq!(vhost_user(&nic.vfs[0].function.attachment).queue_pairs, 2);
    let last = &nic.vfs[2].function;
    assert_eq!((last.vlan.map(|vlan| vlan.get()), last.rules.spoof_check), (Some(200), false));
    assert_eq!(vhost_user(&last.attachment).mode, SocketMode::Client);
    assert_eq!(last.attachment.socket(), Some("/var/run/vm5/net.sock"));
    assert_eq!(nic.vfs[3].function.attachment.to_string(), "tap:web0");
}

#[test]
fn the_example_shows_every_field() {
    fn names(table: &DeTable<'_>, found: &mut BTreeSet<String>) {
        for (key, value) in table.iter() {
            found.insert(key.get_ref().to_string());
            // Their fields are the state document's.
            if ["switch", "adapter", "vpf", "uplink", "representor", "rule"]
                .contains(&key.get_ref().as_ref())
            {
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) => names(inner, found),
                DeValue::Array(items) => {
                    let tables = items.iter().filter_map(|item| match item.get_ref() {
                        DeValue::Table(inner) => Some(inner),
                        _ => None,
                    });
                    tables.for_each(|inner| names(inner, found));
                }
                _ => {}
            }
        }
    }
    let mut shown = BTreeSet::new();
    names(DeTable::parse(EXAMPLE).unwrap().get_ref(), &mut shown);
    let known =
        SECTIONS.iter().flat_map(|section| section.fields()).map(|field| field.name.to_owned());
    assert_eq!(shown, known.collect::<BTreeSet<_>>());
}

/// Fields of attachments are the document's: a table for each kind.
#[test]
fn the_page_has_the_row_of_every_field_of_every_attachment() {
    let (_, chapter) = PAGE.split_once("\n## Attachments\n").unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let mut kinds = chapter.split("\n### ").skip(1);
    let schema = &shape::schemas()["Attachment"];
    for of_kind in schema["oneOf"].as_array().unwrap().iter().skip(1) {
        let kind = of_kind["properties"]["kind"]["enum"][0].as_str().unwrap();
        let (heading, body) = kinds.next().unwrap().split_once('\n').unwrap();
        assert_eq!(heading, format!("`{kind}`"));
        let mut expected = BTreeSet::new();
        let required = of_kind["required"].as_array().unwrap();
        for (name, field) in of_kind["properties"].as_object().unwrap() {
            let default = match &field["default"] {
                _ if name == "kind" => continue,
                _ if required.contains(&name.as_str().into()) => "*required*".to_owned(),
                Value::Null => "*none*".to_owned(),
                value => format!("`{value}`"),
            };
            let allowed = shape::allowed(field);
            let allowed = allowed.strip_prefix("write ").unwrap();
            expected.insert(format!("| `{name}` | {allowed} | {default} |"));
        }
        let rows = body.lines().filter(|line| line.starts_with("| `"));
        let start =
            |row: &str| row.rsplit_once(" | ").map(|(start, _)| format!("{start} |")).unwrap();
        let found: BTreeSet<String> = rows.map(start).collect();
        assert_eq!(found, expected, "{kind}");
    }
    assert_eq!(kinds.next(), None);
}

#[test]
fn the_page_has_every_field_of_a_rule() {
    let (_, chapter) = PAGE.split_once("\n## Switchdev mode\n").unwrap();
    let (_, rows) = chapter.split_once("`[[nic.rule]]`").unwrap();
    let rows = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let found: BTreeSet<&str> =
        rows.flat_map(|(names, _)| names.trim_end_matches('`').split("`, `")).collect();
    let fields = shape::schemas()["NicRule"]["properties"].as_object().unwrap().keys();
    assert_eq!(found, fields.map(String::as_str).collect());
}

/// The beginning of a field's row, up to the meaning, which only the page has.
fn row(field: &Field) -> String {
    let allowed = field.kind.to_string().replace('|', "\\|");
    let default = match &field.default {
        Default::Required => "*required*".to_owned(),
        Default::Computed(words) if words.starts_with(['[', '`']) => words.to_string(),
        Default::Computed(words) => format!("*{words}*"),
        value => format!("`{value}`"),
    };
    // What a reader may copy stands in code type.
    let allowed = match field.kind {
        Kind::Choice(_) | Kind::Profile => {
            allowed.split(" or ").map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        Kind::Bool => "`true` or `false`".to_owned(),
        _ => allowed,
    };
    format!("| `{}` | {allowed} | {default} | ", field.name)
}

#[test]
fn the_page_has_the_row_of_every_field_and_no_other() {
    let of_the_state = ["Attachments\n", "Switchdev mode\n", "Virtual PFs\n"];
    let is_of_the_file =
        |section: &&str| !of_the_state.iter().any(|chapter| section.starts_with(chapter));
    let mut sections = PAGE.split("\n## ").skip(1).filter(is_of_the_file);
    for section in SECTIONS {
        let page = sections.next().unwrap_or_else(|| panic!("no chapter for {:?}", section.header));
        let (heading, body) = page.split_once('\n').unwrap();
        let expected = match section.header {
            "" => "The top of the file".to_owned(),
            header => format!("`{header}`"),
        };
        assert_eq!(heading, expected);
        let rows: Vec<&str> = body.lines().filter(|line| line.starts_with("| `")).collect();
        let fields: Vec<String> = section.fields().map(row).collect();
        assert_eq!(
            rows.len(),
            fields.len(),
            "rows of {heading}; they should begin\n{}",
            fields.join("\n")
        );
        for (found, field) in rows.iter().zip(&fields) {
            assert!(
                found.starts_with(field.as_str()),
                "{heading}: this row\n{found}\nshould begin\n{field}"
            );
        }
    }
    assert_eq!(sections.next(), None, "a chapter for something that is no table");
}

#[test]
fn the_page_shows_a_file_that_works_and_an_error_that_is_given() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (file, rest) = rest.split_once("```").unwrap();
    assert_eq!(parse(file).nics[0].vfs.len(), 2);
    let (_, rest) = rest.split_once("```text\n").unwrap();
    let (error, _) = rest.split_once("\n```").unwrap();
    let broken = file.replacen(":01\"", "\"", 1);
    let told = Config::parse("shunt.toml", &broken).unwrap_err().to_string();
    assert_eq!(told, error);
    let (_, rest) = rest.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    assert_eq!(parse(file).state.adapters.len(), 1);
}

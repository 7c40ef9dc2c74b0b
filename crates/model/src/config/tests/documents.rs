//! The example parses and shows every field; the page has the row of every field.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use toml::de::DeTable;

use super::*;
use crate::profile::Profile;
use crate::state::{NicKind, schema};

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
    assert_eq!(config.api.tcp.map(|tcp| tcp.port()), Some(8443));
    assert!(config.api.tls_key.is_some());
    let state = &config.state;
    let adapter = |name: &str| state.adapter(name).unwrap_or_else(|| panic!("no adapter {name}"));
    assert_eq!(adapter("web").iov_weight, 50);
    let nic = state.nic("nic0").unwrap();
    assert_eq!((nic.total_vfs, nic.num_vfs, nic.vfs.len()), (8, 8, 0));
    assert_eq!(nic.uplink.as_ref().unwrap().to_string(), "vhost-user:/run/shunt/uplink.sock");
    assert_eq!(nic.pf.as_ref().unwrap().mac.to_string(), "02:00:00:00:00:f0");
    assert_eq!(adapter("nic0-vf0").settings.macs.len(), 2);
    assert_eq!(vhost_user(&adapter("nic0-vf0").attachment).queue_pairs, 2);
    let client = adapter("nic0-vf5");
    assert_eq!(client.settings.vlan.map(|vlan| vlan.id), Some(200));
    assert!(!client.settings.spoof_check);
    assert_eq!(vhost_user(&client.attachment).mode, SocketMode::Client);
    assert_eq!(client.attachment.socket(), Some("/var/run/vm5/net.sock"));
    assert_eq!(adapter("nic0-vf3").attachment.to_string(), "tap:net0");
    assert_eq!(state.nic("nic2").unwrap().rules.len(), 2);
}

/// Documents of the pages of cards: each has a card, and is valid.
#[test]
fn documents_of_cards_are_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let families = fs::read_dir(docs.join("cards")).expect("docs/cards");
    let mut pages: Vec<_> = families.map(|entry| entry.expect("a page").path()).collect();
    pages.push(docs.join("cards.md"));
    assert_eq!(pages.len(), 7);
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let (_, rest) = text.split_once("```toml\n").expect("a document");
        let (document, _) = rest.split_once("```").expect("its end");
        let file = format!("run_dir = \"/run/shunt\"\n{document}");
        let nic = parse(&file).state.nic("card0").cloned().expect("card0");
        let at = page.display();
        assert_eq!((nic.kind, nic.num_vfs), (NicKind::Pci, 4), "{at}");
        assert_eq!(nic.vfs[0].settings.vlan.map(|vlan| vlan.id), Some(100), "{at}");
    }
}

#[test]
fn the_example_shows_every_field_of_the_daemon_and_of_a_vf() {
    let value: Value = toml::from_str(EXAMPLE).unwrap();
    let shown = |table: &Value| -> BTreeSet<String> {
        table.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let known =
        |schema: &str| -> BTreeSet<String> { shown(&schema::schemas()[schema]["properties"]) };
    let root = shown(&value);
    assert_eq!(known("Configuration").difference(&root).collect::<Vec<_>>(), ["version"]);
    for (table, schema) in [("api", "ApiSettings"), ("lanes", "Lanes"), ("limits", "Limits")] {
        assert_eq!(shown(&value[table]), known(schema));
    }
    let missing = known("Vf");
    let missing: Vec<_> = missing.difference(&shown(&value["nic"][0]["vf"][0])).cloned().collect();
    assert_eq!(missing, ["driver", "query_rss"], "the others are for NICs of any kind");
    DeTable::parse(EXAMPLE).unwrap();
}

/// The rows of an object's fields, without those that `besides` has too.
fn rows(schema: &Value, besides: &Value) -> String {
    let none = Map::new();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().unwrap_or(&none).iter();
    let fields =
        fields.filter(|(name, field)| besides["properties"].get(name.as_str()) != Some(field));
    let (first, rest): (Vec<_>, Vec<_>) =
        fields.partition(|(name, _)| required.contains(&name.as_str()));
    // A new card is a new file, and no change of the page.
    let profiles = Profile::names().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let profiles = profiles.join(" or ");
    let mut text = "| Field | Allowed | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    for (name, field) in first.into_iter().chain(rest) {
        let default = match &field["default"] {
            _ if required.contains(&name.as_str()) => "*required*".to_owned(),
            Value::Null | Value::Object(_) => String::new(),
            value => format!("`{value}`"),
        };
        let allowed = schema::allowed(field);
        let allowed = allowed.strip_prefix("write ").unwrap_or(&allowed).replace('|', "\\|");
        let allowed = allowed.replace("an object with its fields", "a table");
        let allowed = allowed.replace("a list of objects", "tables");
        let allowed =
            allowed.replace(&profiles, "a card of [profiles](../profiles) with a table `soft`");
        let meaning =
            field["description"].as_str().or_else(|| described(field)).unwrap_or_default();
        let meaning = meaning.replace('\n', " ");
        let _ = writeln!(text, "| `{name}` | {allowed} | {default} | {meaning} |");
    }
    text
}

/// Description beside the reference to the type's schema.
fn described(field: &Value) -> Option<&str> {
    let parts = field["oneOf"].as_array().or(field["allOf"].as_array())?;
    parts.iter().find_map(|part| part["description"].as_str())
}

/// The page with new tables of fields: each follows a comment that names its schema.
fn page() -> String {
    const BEGIN: &str = "<!-- fields: ";
    const END: &str = "<!-- end of fields -->";
    let schemas = schema::schemas();
    let mut parts = PAGE.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->\n").expect("a name, and a table");
        let (_, rest) = rest.split_once(END).expect("an end");
        let table = match name.strip_prefix("Attachment ") {
            Some(kind) => {
                let kinds = schemas["Attachment"]["oneOf"].as_array().unwrap();
                let is_it = |one: &&Value| one["properties"]["kind"]["enum"][0] == kind;
                rows(kinds.iter().find(is_it).unwrap(), &Value::Null)
            }
            None => {
                let settings = &schemas["PortSettings"];
                let besides = if name == "PortSettings" { &Value::Null } else { settings };
                rows(schemas.get(name).unwrap_or_else(|| panic!("no schema {name}")), besides)
            }
        };
        let _ = write!(text, "{BEGIN}{name} -->\n{table}{END}{rest}");
    }
    text
}

/// `SHUNT_WRITE_DOCS=1` writes the page.
#[test]
fn the_page_has_the_fields_that_the_types_have() {
    let page = page();
    if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        fs::write(path, &page).unwrap();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (PAGE.lines().collect(), page.lines().collect());
    let differs = old.iter().zip(&new).find(|(old, new)| old != new);
    assert_eq!(differs, None, "run this test with SHUNT_WRITE_DOCS=1");
    let missing = |name: &&str| !PAGE.contains(&format!("<!-- fields: {name} -->"));
    let is_table = |schema: &Value| schema["type"] == "object";
    let elsewhere = ["DaemonSettings", "State", "MoveRequest", "Moving", "RuleMatch"];
    for (name, _) in schema::schemas().iter().filter(|(_, schema)| is_table(schema)) {
        assert!(elsewhere.contains(&name.as_str()) || !missing(&name.as_str()), "{name}");
    }
    for kind in AttachmentKind::ALL {
        assert!(!missing(&format!("Attachment {kind}").as_str()), "{kind}");
    }
}

#[test]
fn the_page_shows_a_file_that_works_and_an_error_that_is_given() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (file, rest) = rest.split_once("```").unwrap();
    assert_eq!(parse(file).state.adapters.len(), 2);
    let (_, rest) = rest.split_once("```text\n").unwrap();
    let (error, _) = rest.split_once("\n```").unwrap();
    let broken = file.replacen(":01\"", "\"", 1);
    let told = Config::parse("shunt.toml", &broken).unwrap_err().to_string();
    assert_eq!(told, error);
    let (_, rest) = rest.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    assert_eq!(parse(file).state.adapters.len(), 1);
}

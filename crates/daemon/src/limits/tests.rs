//! Tests of the sum over a document, and of the page of limits.

use engine::limits::LIMITS;
use model::state::State;
use serde_json::json;

use super::*;
use crate::data_plane::wanted_ports;

const PLENTY: Amounts = Amounts { descriptors: u64::MAX, mappings: u64::MAX, threads: u64::MAX };

/// 16 NICs, each with 255 VFs and an adapter for each of them.
fn largest() -> State {
    let nic = |i: u32| json!({"name": format!("n{i}"), "total_vfs": 255, "num_vfs": 255});
    let adapter = |i: u32| {
        let mac = format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 255);
        let (name, nic) = (format!("a{i}"), format!("n{}", i / 255));
        json!({"name": name, "nic": nic, "mac": mac, "attachment": {"socket": format!("/s/{i}")}})
    };
    let nics: Vec<_> = (0..16).map(nic).collect();
    let adapters: Vec<_> = (0..16 * 255).map(adapter).collect();
    model::testing::state(&json!({"version": 1, "nic": nics, "adapter": adapters}))
}

fn checked(state: &State, allowed: Amounts) -> Result<Vec<String>, String> {
    let wanted = wanted_ports(state);
    let ports = wanted.iter().map(|want| (want.field.as_str(), &want.spec));
    let named = |problems: Problems| problems.named(&state.to_document()).to_string();
    check(ports, allowed).map_err(named)
}

#[test]
fn sixteen_nics_with_255_vfs_are_rejected_if_their_sockets_alone_need_too_much() {
    let state = largest();
    let error = checked(&state, Amounts { descriptors: 4095, ..PLENTY }).unwrap_err();
    assert_eq!(
        error,
        "adapter a4079, attachment: cannot be served: all ports need at least 4096 open files, the \
         daemon may have 4095; raise ulimit -Hn (LimitNOFILE=) to 4096, or use fewer ports"
    );
    let enough = Amounts { descriptors: 4096, ..PLENTY };
    assert_eq!(checked(&state, enough).unwrap().len(), 1);
    let error = checked(&state, Amounts { threads: 5, mappings: 63, ..PLENTY }).unwrap_err();
    assert!(error.contains("at least 64 mapped files") && error.contains("may have 63"), "{error}");
    assert!(error.contains("at least 6 threads") && error.contains("may have 5"), "{error}");
}

#[test]
fn guests_that_could_need_too_much_are_a_warning_with_the_exact_sum() {
    let state = largest();
    // 149 descriptors, 136 mappings and a thread for each adapter.
    let worst =
        Amounts { descriptors: 1024 + 149 * 4080, mappings: 512 + 136 * 4080, threads: 128 + 4080 };
    assert_eq!(checked(&state, worst).unwrap(), [""; 0]);
    let less = |worst: u64| worst - 1;
    let almost = Amounts {
        descriptors: less(worst.descriptors),
        mappings: less(worst.mappings),
        threads: less(worst.threads),
    };
    let warnings = checked(&state, almost).unwrap();
    let needs = ["608944 open files", "555392 mapped files", "4208 threads"];
    assert_eq!(warnings.len(), needs.len());
    for (warning, need) in warnings.iter().zip(needs) {
        assert!(warning.contains(&format!("can make the daemon need {need}")), "{warning}");
    }
    assert!(worst.mappings <= guard::MAPPINGS_MAX as u64, "the table has room for all");
}

#[test]
fn this_process_is_within_its_limits() {
    let allowed = Amounts::allowed();
    let used = Amounts {
        descriptors: open_files(),
        mappings: guard::mappings() as u64,
        threads: threads(),
    };
    assert_eq!(used.beyond(allowed), []);
    assert!(used.threads > 0 && allowed.mappings <= guard::MAPPINGS_MAX as u64);
}

const INTRODUCTION: &str = "\
# Limits

This page lists the limits on the daemon's resources that guests, front-ends and vDPA drivers use.
It is written from the table in `crates/engine/src/limits.rs`.

`shunt stats --json` has for each limit the amount in use, the limit, and how often it was met
(`limits`); `shunt stats` shows those that were met. Each time is an event too (`shunt events`),
with the port: 20 at once, then one in 5 s for each port. A vDPA device that meets one is not
counted: its port shows the reason.

";

const SUM: &str = "
## The sum over a document

Each change, and `shunt up --check`, adds up what the ports need:

| port | open files | mappings | threads |
|---|---|---|---|
";

const NOTES: &str = "
The first number is what the port has without a guest, the second the most that a hostile guest or
front-end can reach. More than this machine allows is an error for the first. For the second it is a
warning in the log, and an event: then one guest can keep others from attaching.

Memory that the daemon touches first, and zero pages in place of a truncated file, are charged to
the daemon's cgroup. Both are at most what the session may map.
";

/// `SHUNT_WRITE_DOCS=1` writes the page.
#[test]
fn the_page_has_the_limits_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let row = |entry: &engine::limits::LimitEntry| {
        let value = match entry.value {
            LimitValue::Fixed(bytes) if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
            LimitValue::Fixed(number) => number.to_string(),
            LimitValue::Setting(name) => format!("`{name}`"),
            LimitValue::Least(text) => text.to_owned(),
        };
        let of = if entry.is_of_session { "a session" } else { "the daemon" };
        let (name, counts, effect) = (entry.name, entry.counts, entry.effect);
        format!("| `{name}` | {of} | {counts} | {value} | {effect} |\n")
    };
    let limits: String = LIMITS.iter().map(row).collect();
    let port = |name: &str, attachment: serde_json::Value| {
        let attachment = serde_json::from_value(attachment).unwrap();
        let [least, most] = Amounts::of(&PortSpec::Attachment(attachment));
        let cells = [
            (least.descriptors, most.descriptors),
            (least.mappings, most.mappings),
            (least.threads, most.threads),
        ];
        let cells = cells.map(|(least, most)| format!("{least} to {most}"));
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let vhost_user = |pairs| json!({"kind": "vhost-user", "socket": "/s", "queue_pairs": pairs});
    let daemon = DAEMON.map(|it| [it.descriptors, it.mappings, it.threads]);
    let daemon = [0, 1, 2].map(|at| format!("{} to {}", daemon[0][at], daemon[1][at]));
    let ports = [
        port("vhost-user, one queue pair", vhost_user(1)),
        port("vhost-user, four queue pairs", vhost_user(4)),
        port("vDPA device", json!({"kind": "vduse", "name": "a"})),
        port("tap, one queue pair", json!({"kind": "tap", "interface": "a"})),
        format!("| the daemon itself | {} |\n", daemon.join(" | ")),
    ]
    .concat();
    let header = "| limit | of | counts | value | effect |\n|---|---|---|---|---|\n";
    let page = format!("{INTRODUCTION}{header}{limits}{SUM}{ports}{NOTES}");
    if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "run this test with SHUNT_WRITE_DOCS=1");
}

//! Tests of the sum over a document, and of the page of limits.

use engine::limits::LIMITS;
use model::state::State;
use serde_json::json;

use super::*;

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
    let checked = check(state, 2, allowed);
    let warnings = checked.map(|warnings| warnings.into_iter().map(|(_, text)| text).collect());
    warnings.map_err(|problems| problems.named(&state.to_document()).to_string())
}

#[test]
fn sixteen_nics_with_255_vfs_are_rejected_if_their_sockets_alone_need_too_much() {
    let state = largest();
    let error = checked(&state, Amounts { descriptors: 4103, ..PLENTY }).unwrap_err();
    assert_eq!(
        error,
        "adapter a4079, attachment: cannot be served: lanes and all ports need at least 4104 open \
         files, the daemon may have 4103; raise ulimit -Hn (LimitNOFILE=) to 4104, or use fewer \
         ports"
    );
    let enough = Amounts { descriptors: 4104, ..PLENTY };
    assert_eq!(checked(&state, enough).unwrap().len(), 1);
    let error = checked(&state, Amounts { threads: 7, mappings: 79, ..PLENTY }).unwrap_err();
    assert!(error.contains("at least 80 mapped files") && error.contains("may have 79"), "{error}");
    assert!(error.contains("at least 8 threads") && error.contains("may have 7"), "{error}");
}

#[test]
fn guests_that_could_need_too_much_are_a_warning_with_the_exact_sum() {
    let state = largest();
    // 402 descriptors, 136 mappings and a thread for each adapter; 4, 8 and 1 for each lane.
    let worst = Amounts {
        descriptors: 1024 + 402 * 4080 + 8,
        mappings: 512 + 136 * 4080 + 16,
        threads: 128 + 4080 + 2,
    };
    assert_eq!(checked(&state, worst).unwrap(), [""; 0]);
    let less = |worst: u64| worst - 1;
    let almost = Amounts {
        descriptors: less(worst.descriptors),
        mappings: less(worst.mappings),
        threads: less(worst.threads),
    };
    let warnings = checked(&state, almost).unwrap();
    let needs = ["1641192 open files", "555408 mapped files", "4210 threads"];
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
        threads: number_after(&std::fs::read_to_string("/proc/self/status").unwrap(), "Threads:"),
    };
    assert_eq!(used.beyond(allowed), []);
    assert!(used.threads > 0 && allowed.mappings <= guard::MAPPINGS_MAX as u64);
}

#[test]
fn channels_of_guests_are_in_the_sum() {
    let adapter = json!({"name": "a", "nic": "n", "mac": "02:00:00:00:00:01",
        "attachment": {"socket": "/s/a"}});
    let vpf = |control| json!([{"name": "v", "pf": "a", "control": control}]);
    let state = |vpfs| {
        let nic = json!([{"name": "n"}]);
        model::testing::state(&json!({"version": 1, "nic": nic, "adapter": [adapter], "vpf": vpfs}))
    };
    let none = Amounts { descriptors: 0, ..PLENTY };
    let without = checked(&state(vpf(json!(null))), none).unwrap_err();
    let with = checked(&state(vpf(json!({"socket": "/s/c"}))), none).unwrap_err();
    assert!(without.contains("at least 25 open files"), "{without}");
    assert!(with.contains("at least 26 open files"), "{with}");
}

#[test]
fn limits_are_read_once_a_minute() {
    let (mut gauges, mut reads, start) = (LimitGauges::default(), 0, Instant::now());
    for seconds in 0..REREAD.as_secs() * 3 {
        let read = || {
            reads += 1;
            (Amounts { threads: reads, ..PLENTY }, 0)
        };
        let (allowed, _) = gauges.allowed(start + Duration::from_secs(seconds), read);
        assert_eq!(allowed.threads, seconds / REREAD.as_secs() + 1);
    }
    assert_eq!(reads, 3);
}

#[test]
fn numbers_are_found_by_the_whole_name_of_their_line() {
    let text = "low 1\nmaxima 2\nmax 3\nRssShmem:\t 4 kB\nmax 5\n";
    let found = ["max", "RssShmem:", "RssFile:", "ma"].map(|name| number_after(text, name));
    assert_eq!(found, [3, 4, 0, 0]);
    assert!(memory_max() > 0);
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

Each change, and `shunt up --check`, adds up what is needed by lanes, ports and channels:

| user | open files | mappings | threads |
|---|---|---|---|
";

const NOTES: &str = "
The first number is the need without a guest, the second the most that a hostile guest or front-end
can reach. More than this machine allows is an error for the first. For the second it is a warning
in the log, and an event: then one guest can keep others from attaching. It is repeated only after a
state for which the limit is enough.

Among the files of a connection are 64 that wait to be closed, and 253 that the kernel passes with
one message. The message of a front-end may have 8; more end its session.

Memory that the daemon touches first, and zero pages in place of a truncated file, are charged to
the daemon's cgroup (`touched_memory`). Both are at most what the session may map.
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
    let amounts = |name: &str, [least, most]: [Amounts; 2]| {
        let cells = [
            (least.descriptors, most.descriptors),
            (least.mappings, most.mappings),
            (least.threads, most.threads),
        ];
        let cells = cells.map(|(least, most)| format!("{least} to {most}"));
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let port = |name: &str, attachment: serde_json::Value| {
        let attachment = serde_json::from_value(attachment).unwrap();
        amounts(name, Amounts::of(&PortSpec::Attachment(attachment)))
    };
    let vhost_user = |pairs| json!({"kind": "vhost-user", "socket": "/s", "queue_pairs": pairs});
    let ports = [
        port("vhost-user, one queue pair", vhost_user(1)),
        port("vhost-user, four queue pairs", vhost_user(4)),
        port("vDPA device", json!({"kind": "vduse", "name": "a"})),
        port("tap, one queue pair", json!({"kind": "tap", "interface": "a"})),
        port("stream socket", json!({"kind": "stream", "socket": "/s"})),
        amounts("channel of a guest that sets its VFs", CHANNEL),
        amounts("a lane", [LANE, LANE]),
        amounts("the daemon itself", DAEMON),
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

//! Commands that manage a daemon, against an API served on a real socket.
//!
//! The data plane behind it is a mock: it assigns VFs and queues by the policy, and carries no
//! frames.

mod terminal;

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use api::fdb::{FdbEntry, FdbKind};
use api::plane::{Plane, PlaneError};
use api::stats::RuleStats;
use api::store::Directory;
use api::{Listen, Manager, Server};
use model::config::socket_path;
use model::state::{
    Actual, ActualAdapter, ActualDevice, Allocation, DeviceState, Problem, Problems, State,
};
use serde_json::{Value, json};

/// A data plane that rejects one name, and has guests behind adapters of another.
#[derive(Debug, Default)]
struct Paper(api::testing::Paper);

impl Plane for Paper {
    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, PlaneError> {
        if to.adapter("cursed").is_some() {
            let allowed = "choose another name";
            return Err(PlaneError(
                Problem::new("adapter[0].name", "cursed", "brings bad luck", allowed).into(),
            ));
        }
        self.0.reconcile(from, to).map(|_| self.actual())
    }

    fn fdb(&self, _switch: &str) -> Vec<FdbEntry> {
        let entry = |mac: &str, vlan, port: &str, kind, age_s| FdbEntry {
            mac: mac.into(),
            vlan,
            port: port.into(),
            kind,
            age_s,
        };
        vec![
            entry("02:00:00:00:00:02", Some(7), "db", FdbKind::Static, None),
            entry("02:00:00:00:00:99", None, "uplink", FdbKind::Learned, Some(75)),
        ]
    }

    fn actual(&self) -> Actual {
        let mut actual = self.0.actual();
        let gone = |what: &str| {
            let (state, reason) = (DeviceState::Gone, Some(format!("no {what}")));
            Some(ActualDevice { state, since_ms: 0, reason, notes: Vec::new() })
        };
        for one in actual.adapters.iter_mut().filter(|one| one.name.starts_with("gone")) {
            one.device = gone("network namespace green");
        }
        for one in actual.nics.iter_mut().filter(|one| one.name.starts_with("gone")) {
            one.uplink = gone("interface eth9");
        }
        for one in actual.adapters.iter_mut().filter(|one| one.name.starts_with("busy")) {
            *one = ActualAdapter::of(Allocation::from(&*one), true);
        }
        actual
    }
}

/// A served API, and commands that find it.
struct Site {
    dir: tempfile::TempDir,
    _server: Server,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = Directory::open(&dir.path().join("state")).expect("a state directory");
        let stats = Box::new(|| {
            let rule =
                |rule, frames| RuleStats { switch: "sw0".into(), port: "web".into(), rule, frames };
            let rules = vec![rule(1, 41), rule(2, 42)];
            anyhow::Ok(api::stats::Stats { rules, ..api::stats::of(Vec::new()) })
        });
        let manager =
            Manager::open(state, None, Box::<Paper>::default(), stats).expect("a manager");
        let listen = Listen { socket: socket_path(dir.path()), tcp: None };
        let server = Server::start(manager, &listen).expect("an API");
        Site { dir, _server: server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        shunt(&words(line), self.dir.path().to_str().expect("a path that is UTF-8"), "")
    }

    /// Output of a command that succeeds.
    fn says(&self, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "shunt {line}: {errors}");
        assert!(errors.is_empty(), "shunt {line}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Output of a command as JSON.
    fn json(&self, line: &str) -> Value {
        let text = self.says(&format!("{line} --json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("shunt {line}: {error}: {text}"))
    }

    /// Asserts that a command fails with that code and all these words, and prints nothing else.
    fn fails(&self, code: i32, line: &str, all: &[&str]) {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "shunt {line}: {errors}");
        assert!(output.stdout.is_empty(), "shunt {line}");
        for word in all {
            assert!(errors.contains(word), "shunt {line}: no {word:?} in {errors}");
        }
    }

    /// A NIC, an iov switch and two adapters, made by commands.
    fn furnished() -> Site {
        let site = Site::new();
        for line in [
            "nic create nic0 --total-vfs 4 --num-vfs 2 --uplink-socket /run/shunt/wire.sock",
            "switch create sw0 --nic nic0 --iov",
            "adapter create web --switch sw0 --mac 02:00:00:00:00:01 --socket /run/web.sock --iov-weight 9",
            "adapter create db --switch sw0 --mac 02:00:00:00:00:02 --socket /run/db.sock --vlan 7",
        ] {
            let said = site.says(line);
            assert!(said.starts_with("created ") && said.lines().count() == 1, "{said}");
        }
        site
    }
}

/// Words between blanks; quoted text in single quotes is one word.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

fn shunt(args: &[String], run_dir: &str, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(args)
        .env("SHUNT_RUN_DIR", "/nowhere")
        .args((!run_dir.is_empty()).then_some(["--run-dir", run_dir]).into_iter().flatten())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("shunt was built for this test");
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_site_is_built_shown_and_taken_down_by_commands() {
    let site = Site::furnished();
    let adapters = site.says("adapter list");
    assert!(adapters.contains("vf 0") && adapters.contains("WeightZero"), "{adapters}");
    let vfs = site.says("vf list nic0");
    assert!(vfs.contains("web") && vfs.contains("free") && vfs.contains("disabled"), "{vfs}");
    assert!(site.says("switch list").contains("on"));
    assert!(site.says("nic show nic0").contains("num_vfs = 2"));

    site.says("vf set nic0 1 --mac 02:00:00:00:00:f1 --vlan 5 --qos 3 --trust on --link-state enable --max-tx-mbps 100");
    site.says("vf set nic0 1 --spoof-check off --min-tx-mbps 10");
    let vf = site.json("vf show nic0 1");
    assert_eq!(vf["vlan"], json!({"id": 5, "qos": 3, "proto": "802.1q"}));
    assert_eq!(
        (&vf["max_tx_mbps"], &vf["min_tx_mbps"]),
        (&json!(100), &json!(10)),
        "one flag leaves the other"
    );
    assert_eq!((&vf["spoof_check"], &vf["trust"]), (&json!(false), &json!(true)));
    site.says("vf set nic0 1 --vlan 0");
    assert_eq!(site.json("vf show nic0 1").get("vlan"), None);
    site.says("vf reset nic0 1");
    site.fails(2, "vf show nic0 1", &["VF 1 of NIC nic0 has no settings of its own"]);

    site.says("switch port sw0 web --dhcp-guard on --isolated on");
    site.says("switch port sw0 uplink --trunks 5,100-199 --native-vlan 5");
    site.says("switch acl sw0 web --add 'deny protocol=17 to_port=67-68' --add count");
    let rules = site.says("switch acl sw0 web");
    assert!(
        rules.contains("protocol=udp to_port=67-68") && rules.contains("every frame"),
        "{rules}"
    );
    let ports = site.says("switch ports sw0");
    assert!(ports.contains("5,100-199") && ports.contains("dhcp,isolated"), "{ports}");
    site.says("switch acl sw0 web --clear");
    assert_eq!(site.says("switch acl sw0 web"), "none\n");

    site.says("adapter set web --trunks 5,100-199 --vlan 5 --mirror-to db --spoof-check off");
    site.says("adapter set web --mirror-file /var/tmp/x.pcapng --tx-weight 50 --macs none");
    let web = &site.json("adapter show web")["adapter"][0];
    assert_eq!(web["mirror"], json!({"direction": "both", "file": "/var/tmp/x.pcapng"}));
    assert_eq!(
        (&web["trunks"], &web["tx_weight"], &web["spoof_check"]),
        (&json!(["5", "100-199"]), &json!(50), &json!(false))
    );
    site.says("switch port sw0 web --max-macs 2");
    site.says("nic create nic1 --total-vfs 0 --profile xl710 --budget-permille 50 --pf-socket /run/pf.sock --pf-mac 02:00:00:00:00:0f");
    let nic = &site.json("nic show nic1")["nic"][0];
    assert_eq!(
        (&nic["pf"]["mac"], &nic["budget_permille"]),
        (&json!("02:00:00:00:00:0f"), &json!(50))
    );
    site.says("nic delete nic1");
    site.says("switch port sw0 web --reset");

    for line in ["adapter delete web", "adapter delete db", "switch delete sw0", "nic delete nic0"]
    {
        assert!(site.says(line).starts_with("deleted "));
    }
    let list = site.json("nic list");
    let left = list.as_array().expect("a list").iter().filter(|nic| nic["managed"] == true);
    assert_eq!(left.count(), 0, "{list}");
}

#[test]
fn attachments_of_every_kind_and_tunnels_are_set_by_flags() {
    let site = Site::furnished();
    site.says(
        "adapter create box --switch sw0 --mac 02:00:00:00:00:03 --attachment tap:box0 --mtu 9000 \
         --attachment-set netns=blue --attachment-set offload=false",
    );
    let of_box = |site: &Site| site.json("adapter show box")["adapter"][0]["attachment"].clone();
    let tap = json!({
        "kind": "tap", "interface": "box0", "netns": "blue", "queue_pairs": 1, "mtu": 9000,
        "offload": false,
    });
    assert_eq!(of_box(&site), tap);
    site.says("adapter set box --queue-pairs 2");
    assert_eq!(of_box(&site)["netns"], "blue", "what no flag says stays");
    site.says("adapter set box --netns none");
    assert_eq!(of_box(&site).get("netns"), None, "the daemon's own namespace");
    site.says("adapter set box --attachment stream:/run/box.sock --mode client");
    let stream =
        json!({"kind": "stream", "socket": "/run/box.sock", "mode": "client", "mtu": 1500});
    assert_eq!(of_box(&site), stream);
    site.says("adapter set box --socket /run/box.sock");
    assert_eq!(of_box(&site)["kind"], "vhost-user");

    site.says(
        "nic set nic0 --uplink xdp:eth1 --uplink-set zero_copy=require --uplink-set filter=true",
    );
    let uplink = site.json("nic show nic0")["nic"][0]["uplink"].clone();
    assert_eq!((&uplink["zero_copy"], &uplink["filter"]), (&json!("require"), &json!(true)));
    assert!(site.says("nic list").contains("xdp:eth1"));
    site.says("nic set nic0 --uplink none");
    assert_eq!(site.json("nic show nic0")["nic"][0].get("uplink"), None);

    site.says("switch tunnel sw0 far --vni 7 --peers 10.0.0.2,10.0.0.3 --vlan 5 --mtu 1500");
    site.says("switch tunnel sw0 far --vlan 0 --local 10.0.0.1");
    let tunnels = site.says("switch tunnels sw0");
    assert!(tunnels.contains("10.0.0.2,10.0.0.3") && tunnels.contains("4789"), "{tunnels}");
    let far = &site.json("switch tunnels sw0")[0];
    assert_eq!((&far["vlan"], &far["local"]), (&json!(null), &json!("10.0.0.1")));
    site.says("switch tunnel sw0 far --delete");
    assert_eq!(site.says("switch tunnels sw0"), "none\n");

    let line = "adapter set box --attachment eth1";
    site.fails(2, line, &["attachment", "\"eth1\" is not allowed", "tap:web0"]);
    let line = "adapter set box --attachment tap:box0 --attachment-set socket=/run/x";
    site.fails(2, line, &["attachment.socket", "unknown field of kind tap"]);
    site.fails(2, "switch tunnel sw0 far --vni 7", &["peers", "is missing"]);
}

#[test]
fn every_command_has_json() {
    let site = Site::furnished();
    let db = &site.json("adapter list")[1];
    let path = ["path", "actual_path", "actual_reason"].map(|field| &db[field]);
    assert_eq!(path, ["vf", "vmq", "WeightZero"]);
    assert_eq!(site.json("vf list nic0")[0]["owner_holder"], "web");
    assert_eq!(site.json("nic list")[0]["actual_support"], "Supported");
    assert_eq!(site.json("switch list")[0]["iov"], true);
    assert_eq!(site.json("adapter set db --vlan 8")["vlan"]["id"], 8);
    let plan = site.json("adapter delete db --dry-run");
    assert_eq!(plan.pointer("/plan/steps/0/action"), Some(&json!("remove")));
    assert_eq!(site.json("adapter delete db"), json!({}));
    assert_eq!(site.json("export")["adapter"].as_array().map(Vec::len), Some(1));
    let events = site.json("events");
    assert!(events.as_array().expect("a list").last().expect("one")["sequence"].as_u64() > Some(4));
}

/// Words of a command for the site's daemon.
fn for_site(site: &Site, line: &str) -> Vec<String> {
    let run_dir = site.dir.path().to_str().expect("a path that is UTF-8");
    [words(line), vec!["--run-dir".to_owned(), run_dir.to_owned()]].concat()
}

fn on_terminal(site: &Site, width: u16, line: &str, env: &[(&str, &str)]) -> String {
    terminal::on_terminal(width, &for_site(site, line), env)
}

#[test]
fn every_table_fits_terminals_of_80_and_60_columns() {
    let site = Site::new();
    let (nic, sw, tunnel) = ("nic-of-15-chars", "switch-15-chars", "t".repeat(63));
    let (web, gone) = ("w".repeat(63), format!("gone-{}", "g".repeat(58)));
    for line in [
        format!("nic create {nic} --total-vfs 4 --num-vfs 2 --uplink-socket /run/{web}.sock"),
        format!("switch create {sw} --nic {nic} --iov"),
        format!(
            "adapter create {web} --switch {sw} --mac 02:00:00:00:00:01 --socket /run/web.sock \
             --iov-weight 9 --vlan 4094 --min-tx-mbps 100000 --max-tx-mbps 1000000"
        ),
        format!(
            "adapter create short --switch {sw} --mac 02:00:00:00:00:02 --socket /run/short.sock \
             --iov-weight 9"
        ),
        format!(
            "switch acl {sw} {web} --add 'deny from_ip=10.0.0.0/16 to_ip=10.1.0.0/16 \
             protocol=udp from_port=68 to_port=67' --add allow"
        ),
        format!("switch port {sw} {web} --isolated on --dhcp-guard on --router-guard on"),
        format!("switch port {sw} uplink --trunks 5,100-199,300-399,3000 --native-vlan 5"),
        format!("switch tunnel {sw} {tunnel} --vni 16777215 --peers 10.0.0.2,10.0.0.3,10.0.0.4"),
        "nic create nic1 --total-vfs 2 --num-vfs 2 --mode switchdev --uplink-socket /run/1.sock"
            .to_owned(),
        "nic rules nic1 --add 'vf0 uplink to_mac=02:00:00:00:00:02 protocol=tcp from_port=443 \
         from_ip=10.0.0.0/16 push_vlan=100'"
            .to_owned(),
    ] {
        site.says(&line);
    }
    for line in [
        format!(
            "adapter create {gone} --switch {sw} --mac 02:00:00:00:00:03 --attachment tap:a \
             --netns green"
        ),
        "vpf vm-of-15-chars- --vfs 2".to_owned(),
    ] {
        let made = site.run(&line);
        assert!(made.status.success(), "{line}: {}", String::from_utf8_lossy(&made.stderr));
    }
    for line in [
        "nic list".to_owned(),
        "nic rules nic1".to_owned(),
        format!("vf list {nic}"),
        "switch list".to_owned(),
        format!("switch ports {sw}"),
        format!("switch acl {sw} {web}"),
        format!("switch fdb {sw}"),
        format!("switch tunnels {sw}"),
        "adapter list".to_owned(),
        "vpf".to_owned(),
    ] {
        terminal::fits(&for_site(&site, &line));
    }
    for line in ["explain", "explain spoofed_mac", "explain PortPolicy", "lab list"] {
        terminal::fits(&words(line));
    }
    let narrow = on_terminal(&site, 60, "adapter list", &[("LANG", "C.UTF-8")]);
    for whole in [&web, &gone, "02:00:00:00:00:01", "PortPolicy"] {
        assert!(narrow.contains(whole), "{whole} was split:\n{narrow}");
    }
}

#[test]
fn tables_follow_the_terminal_and_keep_each_address_on_one_line() {
    let site = Site::furnished();
    let utf8 = [("LANG", "C.UTF-8")];
    for width in [80, 200] {
        let list = on_terminal(&site, width, "adapter list", &utf8);
        let of_web: Vec<&str> = list.lines().filter(|line| line.contains(" web ")).collect();
        assert_eq!(of_web.len(), 1, "{list}");
        assert!(of_web[0].contains("02:00:00:00:00:01") && of_web[0].contains("vf 0"), "{list}");
        assert!(list.contains('─'), "no lines on a terminal: {list}");
    }
    for plain in [&[("LANG", "C")][..], &[("LANG", "C.UTF-8"), ("NO_COLOR", "1")], &[]] {
        assert_eq!(
            on_terminal(&site, 60, "adapter list", plain),
            site.says("adapter list"),
            "{plain:?}"
        );
    }
}

#[test]
fn columns_of_sentences_are_wrapped_on_a_narrow_terminal_only() {
    let site = Site::furnished();
    let networks = "from_ip=10.0.0.0/16 to_ip=10.1.0.0/16 protocol=udp from_port=68 to_port=67";
    site.says(&format!("switch acl sw0 web --add 'deny {networks}'"));
    let (utf8, acl) = ([("LANG", "C.UTF-8")], "switch acl sw0 web");
    let narrow = on_terminal(&site, 60, acl, &utf8);
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains("to_ip=10.1.0.0/16"), "a word was split: {narrow}");
    for text in [on_terminal(&site, 200, acl, &utf8), site.says(acl)] {
        let with_all = |line: &&str| networks.split(' ').all(|word| line.contains(word));
        assert_eq!(text.lines().filter(with_all).count(), 1, "{text}");
    }
}

#[test]
fn a_dry_run_tells_rules_and_ports_in_words() {
    let site = Site::furnished();
    let change = "switch acl sw0 web --add 'deny protocol=udp to_port=53' --add allow";
    let plan = site.says(&format!("{change} --dry-run"));
    assert!(plan.contains("port web, acl 1: none -> deny protocol=udp to_port=53\n"), "{plan}");
    site.says(change);
    for line in ["switch acl sw0 web --remove 1 --dry-run", "adapter delete web --dry-run"] {
        let plan = site.says(line);
        assert!(!plan.contains(['{', '[', '"']), "shunt {line}: {plan}");
        assert_eq!(site.json(line)["plan"]["steps"].as_array().map(Vec::is_empty), Some(false));
    }
    assert!(site.says("adapter delete web --dry-run").contains("port web: removed\n"));
}

#[test]
fn fields_of_an_attachment_are_unset_with_none() {
    let site = Site::furnished();
    site.says(
        "adapter set web --attachment-set socket_group=kvm --attachment-set socket_mode=0660",
    );
    let attachment = || site.json("adapter show web")["adapter"][0]["attachment"].clone();
    assert_eq!(attachment()["socket_group"], "kvm");
    site.says(
        "adapter set web --attachment-set socket_group=none --attachment-set socket_mode=none",
    );
    let now = attachment();
    assert!(now["socket_group"].is_null() && now["socket_mode"].is_null(), "{now}");
}

#[test]
fn tables_in_a_pipe_are_plain_and_have_one_line_a_row() {
    let site = Site::furnished();
    let long = format!("/run/{}", "x".repeat(90));
    site.says(&format!(
        "adapter create {} --switch sw0 --mac 02:00:00:00:00:03 --socket {long} --vlan 4094 \
         --min-tx-mbps 100000 --max-tx-mbps 1000000 --iov-weight 1 --path auto",
        "n".repeat(63)
    ));
    site.says("switch port sw0 web --isolated on --dhcp-guard on --router-guard on");
    site.says(
        "switch port sw0 uplink --trunks 5,100-199,300-399,1000-2000,3000 --native-vlan 1500",
    );
    let rows = [
        ("nic list", 1),
        ("vf list nic0", 4),
        ("switch list", 1),
        ("switch ports sw0", 2),
        ("adapter list", 3),
    ];
    for (line, rows) in rows {
        let text = site.says(line);
        assert!(text.is_ascii(), "{text}");
        // PCI NICs of the machine are a table of their own.
        let first = text.lines().take_while(|line| !line.is_empty());
        assert_eq!(first.count(), 1 + rows, "{text}");
    }
    let list = site.says("adapter list");
    assert!(list.lines().any(|line| line.contains("02:00:00:00:00:03") && line.contains("4094")));
}

#[test]
fn rules_are_shown_with_counts_and_removed_by_number() {
    let site = Site::furnished();
    site.says(
        "switch acl sw0 web --add 'deny protocol=udp to_port=53' --add 'count protocol=tcp' --add allow",
    );
    let text = site.says("switch acl sw0 web");
    let cells: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[1], ["1", "deny", "protocol=udp", "to_port=53", "41"]);
    assert_eq!(cells[2], ["2", "count", "protocol=tcp", "42"]);
    assert_eq!(cells[3], ["3", "allow", "every", "frame", "-"]);
    let json = site.json("switch acl sw0 web");
    let fields = ["rule", "action", "protocol", "frames"].map(|field| &json[1][field]);
    assert_eq!(json!(fields), json!([2, "count", "tcp", 42]));
    site.says("switch acl sw0 web --remove 1 --remove 3 --add 'deny protocol=sctp'");
    let port = &site.json("export")["switch"][0]["port"][0];
    assert_eq!(
        port["acl"],
        json!([{"action": "count", "protocol": "tcp"}, {"action": "deny", "protocol": "sctp"}])
    );
    site.fails(
        2,
        "switch acl sw0 web --remove 3",
        &["--remove: 3 is out of range; write a number, 1 to 2"],
    );
    site.fails(2, "switch acl sw0 web --add 'deny protocol=quic'", &["protocol", "tcp, udp"]);
}

#[test]
fn addresses_of_a_switch_are_listed_and_filtered() {
    let site = Site::furnished();
    let text = site.says("switch fdb sw0");
    let cells: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[1], ["02:00:00:00:00:02", "7", "db", "static", "-"]);
    assert_eq!(cells[2], ["02:00:00:00:00:99", "-", "uplink", "learned", "75"]);
    for filter in ["--port uplink", "--vlan 0", "--mac 02:00:00:00:00:99"] {
        let found = site.json(&format!("switch fdb sw0 {filter}"));
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{filter}");
        assert_eq!(found[0]["age_s"], 75);
    }
    site.fails(2, "switch fdb none", &["none"]);
    assert_eq!(site.json("switch fdb sw0 --port web"), json!([]));
    let known =
        ["--port: \"upling\" is no port of switch sw0; did you mean uplink?", "web, db, uplink"];
    site.fails(2, "switch fdb sw0 --port upling", &known);
}

#[test]
fn help_has_examples() {
    for command in
        ["nic", "vf", "switch", "adapter", "apply", "export", "events", "completions", "man"]
    {
        let help = shunt(&words(&format!("{command} --help")), "", "");
        let help = String::from_utf8_lossy(&help.stdout);
        assert!(help.contains("Examples:\n  "), "{help}");
    }
}

#[test]
fn mistakes_are_2_and_name_field_value_and_what_is_allowed() {
    let site = Site::furnished();
    for (line, all) in [
        (
            "adapter set web --iov-weight 101",
            &["iov_weight: 101", "write a whole number, 0 to 100"][..],
        ),
        ("adapter set web --mac zz", &["mac: \"zz\"", "six hex pairs"]),
        ("adapter set web --mac 02:00:00:00:00:02 --vlan 7", &["mac:", "choose another"]),
        ("adapter set web --path fast", &["path: \"fast\"", "\"synthetic\""]),
        ("adapter set web --vf some", &["vf: \"some\"", "0 to 254"]),
        ("adapter set web", &["no setting to change", "--help"]),
        ("adapter set ghost --vlan 1", &["adapter ghost does not exist; see shunt adapter list"]),
        (
            "adapter create web --switch sw0 --mac 02:00:00:00:00:09 --socket /x",
            &["adapter web exists already"],
        ),
        (
            "adapter create cursed --switch sw0 --mac 02:00:00:00:00:09 --socket /x",
            &["brings bad luck"],
        ),
        (
            "adapter create x --mac 02:00:00:00:00:09 --socket /x",
            &["switch: is missing; name a switch, or a NIC with nic"],
        ),
        ("nic set nic0 --num-vfs 3", &["num_vfs: 3", "write 2 or 0"]),
        ("nic create nic0 --total-vfs 3", &["NIC nic0 exists already"]),
        ("nic delete nic0", &["NIC nic0 still has switch sw0; delete or change them first"]),
        ("vf set nic0 7 --trust on", &["index: 7", "0 to 3"]),
        ("vf set nic0 1 --trust yes", &["--trust", "on, off"]),
        ("vf set nic9 1 --trust on", &["NIC nic9 does not exist"]),
        (
            "vf set nic0 0 --vlan 7 --spoof-check off",
            &["is in use by adapter web", "shunt adapter set web --spoof-check off --vlan 7"],
        ),
        ("vf reset nic0 0 --owner 999", &["nic0/vf0 has the owner web"]),
        (
            "switch acl sw0 web --add drop",
            &["rule 1 of port web of switch sw0, action: \"drop\"", "\"deny\""],
        ),
        ("switch acl sw0 web --add 'deny rx'", &["leave rx out", "uplink"]),
        ("switch port sw0 web --trunks 5", &["trunks:", "set trunks of adapter web"]),
        ("switch port sw0 web --max-macs 5", &["max_macs: 5", "spoof_check = false"]),
        ("switch port sw0 ghost --isolated on", &["adapter: \"ghost\"", "write uplink"]),
        ("apply -f /nowhere", &["/nowhere", "-f"]),
    ] {
        site.fails(2, line, all);
    }
    let iov = "switch set sw0 --iov";
    site.fails(2, iov, &["--iov"]);
}

#[test]
fn a_path_that_an_adapter_does_not_get_is_a_warning_with_reason_and_remedy() {
    let site = Site::furnished();
    let output = site.run("adapter set db --path vf");
    assert!(output.status.success());
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(warned.starts_with("warning: adapter db is on path "), "{warned}");
    assert!(warned.ends_with(", not vf: WeightZero; set --iov-weight\n"), "{warned}");
    for line in [
        "adapter set db --path vf --dry-run",
        "adapter set db --path vf --iov-weight 5",
        "adapter set db --path synthetic",
        "adapter set db --path vmq",
    ] {
        site.says(line);
    }
}

#[test]
fn a_missing_interface_is_told_at_once_and_in_the_list() {
    let site = Site::furnished();
    let create = "adapter create gone --switch sw0 --mac 02:00:00:00:00:09 --attachment tap:a";
    let output = site.run(&format!("{create} --attachment-set netns=green"));
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{warned}");
    assert!(
        warned.contains("adapter gone") && warned.contains("network namespace green"),
        "{warned}"
    );
    let list = site.says("adapter list");
    let row = list.lines().find(|line| line.starts_with("gone ")).expect("a row");
    assert!(row.ends_with(" gone"), "its state only: {list}");
    let shown = site.says("adapter show gone");
    assert!(shown.contains(": no network namespace green\n"), "{shown}");
    let listed = site.json("adapter list");
    let gone = listed.as_array().expect("a list").iter().find(|one| one["name"] == "gone");
    let reason = &gone.expect("it is there")["actual_device_reason"];
    assert_eq!(reason, "no network namespace green");
    let warned =
        "warning: the uplink of NIC gone has no device until it appears: no interface eth9\n";
    for line in ["nic create gone --total-vfs 1", "nic set gone --uplink packet:eth9"] {
        let output = site.run(line);
        assert!(output.status.success(), "{line}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), warned, "{line}");
    }
}

#[test]
fn without_a_daemon_it_is_1_and_says_where_it_was_looked_for() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run_dir = dir.path().to_str().expect("UTF-8");
    for line in ["nic list", "export", "events", "adapter delete web"] {
        let output = shunt(&words(line), run_dir, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
        assert!(errors.contains("api.sock") && errors.contains("--run-dir"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn what_is_exported_can_be_applied() {
    let site = Site::furnished();
    site.says("switch acl sw0 web --add 'deny protocol=17 to_port=67-68'");
    let toml = site.says("export");
    let file = site.path("state.toml");
    fs::write(&file, &toml).expect("a file");
    let apply = format!("apply -f {}", file.display());
    assert_eq!(site.says(&format!("{apply} --dry-run")), "nothing to do\n");
    assert_eq!(site.says(&apply), "nothing to do\n");

    let elsewhere = Site::new();
    let plan = elsewhere.says(&format!("{apply} --dry-run"));
    assert_eq!(plan, "create nic nic0\ncreate switch sw0\ncreate adapter db\ncreate adapter web\n");
    assert_eq!(elsewhere.says("export"), Site::new().says("export"));
    let said = elsewhere.says(&apply);
    assert_eq!(said, format!("{plan}applied, generation 1\n"), "the plan comes first");
    assert_eq!(elsewhere.says("export"), toml);

    let json = site.path("state.json");
    fs::write(&json, elsewhere.says("export --json")).expect("a file");
    let third = Site::new();
    third.says(&format!("apply -f {}", json.display()));
    assert_eq!(third.says("export"), toml);
}

#[test]
fn what_a_file_says_wrong_is_told_with_the_file() {
    let site = Site::furnished();
    let before = site.says("export");
    let file = site.path("x.toml");
    let shown = file.display().to_string();
    let apply = format!("apply -f {shown}");
    for (text, all) in [
        (
            "[[nic]]\nname = \"n\"\ntotal_vfs = 256\n",
            &["x.toml:3:13: NIC n, total_vfs: 256", "0 to 255"][..],
        ),
        ("nic = = 3", &["x.toml:1:7: "]),
        ("\n\n[[nic]\n", &["x.toml:3:7: the header of a list entry"]),
        ("{\"nic\": }", &["is not JSON"]),
        (
            "{\"nic\": [],\n \"nic\": []}",
            &["nic: is there twice, the second time at line 2", "keep one"],
        ),
        ("version = 2", &["version: 2 is newer than this program"]),
        (
            "[[adapter]]\nname = 1\n",
            &[
                "x.toml:1:1: adapter 1, attachment: is missing",
                "x.toml:2:8: adapter 1, name: 1 is a number",
            ],
        ),
    ] {
        fs::write(&file, text).expect("a file");
        let all: Vec<&str> = all.iter().copied().chain([shown.as_str()]).collect();
        site.fails(2, &apply, &all);
    }
    fs::write(&file, "#".repeat(2 << 20)).expect("a file");
    site.fails(2, &apply, &["1048576 bytes"]);
    assert_eq!(site.says("export"), before, "nothing was changed");
}

/// The output of one command is accepted by another, in both syntaxes, without changes.
#[test]
fn every_object_goes_round() {
    let site = Site::furnished();
    for line in [
        "vf set nic0 1 --mac 02:00:00:00:00:09 --trunks 5,100-199 --trust on",
        "adapter set web --spoof-check off --max-tx-mbps 100 --link-state enable",
        "adapter set db --attachment tap:db0 --attachment-set netns=blue",
        "switch port sw0 web --max-macs 7",
    ] {
        site.says(line);
    }
    let objects =
        ["nic show nic0", "switch show sw0", "adapter show web", "adapter show db", "export"];
    for show in objects {
        for (name, text) in
            [("x.toml", site.says(show)), ("x.json", format!("{:#}", site.json(show)))]
        {
            let file = site.path(name);
            fs::write(&file, &text).expect("a file");
            let said = site.says(&format!("apply -f {} --dry-run", file.display()));
            assert!(said.starts_with("nothing to do\n"), "{show}: {said}\n{text}");
        }
    }
    // A daemon starts with it, too.
    for (name, text) in
        [("x.toml", site.says("export")), ("x.json", format!("{:#}", site.json("export")))]
    {
        let file = site.path(name);
        fs::write(&file, &text).expect("a file");
        let config = model::config::Config::load(&file).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.state.to_document(), site.json("export"));
    }
}

/// The daemon's own file is a document, too; the daemon's settings in it are not applied.
#[test]
fn the_daemons_file_is_applied_as_it_was_read() {
    let site = Site::new();
    let file = site.path("shunt.toml");
    let text = format!(
        "run_dir = {:?}\n[lanes]\npoll_us = 7\n[[nic]]\nname = \"nic0\"\ntotal_vfs = 4\n[[nic.vf]]\n\
         mac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:vf0.sock\"\n",
        site.path("")
    );
    fs::write(&file, text).expect("a file");
    let apply = format!("apply -f {}", file.display());
    site.says(&apply);
    let adapter = &site.json("adapter show nic0-vf0")["adapter"][0];
    assert_eq!(adapter["attachment"]["socket"], site.path("vf0.sock").display().to_string());
    assert_eq!(site.json("nic show nic0")["nic"][0]["num_vfs"], 4);
    assert!(site.says(&apply).starts_with("nothing to do"));
}

#[test]
fn input_that_is_empty_removes_nothing() {
    let site = Site::furnished();
    let before = site.says("export");
    let file = site.path("x.toml");
    let run_dir = site.dir.path().to_str().expect("UTF-8").to_owned();
    for (text, all) in [
        ("", &["is empty"][..]),
        (" \n\n", &["is empty"]),
        ("# nothing\n", &["version: is missing; write 1"]),
        ("{}", &["version: is missing; write 1"]),
        ("version = 1\n", &["names no NIC, switch, adapter or virtual PF"]),
        ("{\"version\": 1, \"adapter\": []}", &["names no NIC"]),
    ] {
        fs::write(&file, text).expect("a file");
        for more in ["", " --prune --yes", " --dry-run"] {
            let shown = file.display().to_string();
            let all: Vec<&str> = all.iter().copied().chain([shown.as_str()]).collect();
            site.fails(2, &format!("apply -f {shown}{more}"), &all);
            let piped = shunt(&words(&format!("apply -f -{more}")), &run_dir, text);
            assert_eq!(piped.status.code(), Some(2), "{text}");
        }
    }
    // The daemon's own file, whose objects were all made by commands.
    fs::write(&file, "socket_mode = \"0600\"\n").expect("a file");
    let shown = file.display().to_string();
    assert!(site.says(&format!("apply -f {shown}")).starts_with("nothing to do"));
    site.fails(2, &format!("apply -f {shown} --prune --yes"), &["version: is missing", &shown]);
    assert_eq!(site.says("export"), before);
}

#[test]
fn what_a_file_does_not_name_goes_with_prune_only() {
    let site = Site::furnished();
    site.says("adapter create busy1 --switch sw0 --mac 02:00:00:00:00:03 --socket /run/b1.sock");
    site.says("adapter create busy2 --switch sw0 --mac 02:00:00:00:00:04 --socket /run/b2.sock");
    let count = || site.json("adapter list").as_array().map(Vec::len);
    let mut document = site.json("export");
    document["adapter"].as_array_mut().expect("a list").truncate(1);
    let file = site.path("x.json");
    fs::write(&file, document.to_string()).expect("a file");
    let apply = format!("apply -f {}", file.display());
    let said = site.says(&apply);
    assert_eq!(
        said,
        "nothing to do\nnot in the file, and kept without --prune: adapter db, adapter busy1, \
         adapter busy2 (3)\n"
    );
    assert_eq!(count(), Some(4));

    let planned = site.says(&format!("{apply} --prune --dry-run"));
    assert!(planned.contains("remove adapter db\n"), "{planned}");
    assert!(planned.ends_with("removed, with running guests: busy1, busy2\n"), "{planned}");
    // There is no terminal to ask.
    let asks = ["busy1, busy2", "--yes", "x.json"];
    site.fails(2, &format!("{apply} --prune"), &asks);
    let refused = site.run(&format!("{apply} --prune --json"));
    let told: Problems = serde_json::from_slice(&refused.stderr).expect("problems as JSON");
    let told = &told.problems[0];
    assert_eq!((refused.status.code(), &*told.file), (Some(2), file.to_str().expect("UTF-8")));
    assert_eq!((&*told.field, &*told.remedy), ("--yes", "repeat with --yes to remove them"));
    assert_eq!(told.message, "is missing: this removes adapters with running guests: busy1, busy2");
    assert_eq!(count(), Some(4));
    let said = site.says(&format!("{apply} --prune --yes"));
    assert!(said.ends_with("applied, generation 7\n"), "{said}");
    assert_eq!(count(), Some(1));
    // Without guests no consent is needed.
    document["adapter"] = json!([]);
    fs::write(&file, document.to_string()).expect("a file");
    site.says(&format!("{apply} --prune"));
    assert_eq!(count(), Some(0));
}

#[test]
fn a_document_may_come_from_a_pipe() {
    let site = Site::new();
    let args = words("apply -f - --json");
    let run_dir = site.dir.path().to_str().expect("UTF-8").to_owned();
    let output = shunt(&args, &run_dir, "version = 1\n[[nic]]\nname = \"n\"\ntotal_vfs = 0\n");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&said["dry_run"], &said["generation"]), (&json!(false), &json!(1)));
}

#[test]
fn events_tell_what_was_done_and_why_a_path_changed() {
    let site = Site::furnished();
    site.says("adapter set web --path synthetic");
    let text = site.says("events");
    assert!(text.contains("adapter web: vf 0 -> synthetic\n"), "{text}");
    assert!(text.contains("adapter web: change path"), "{text}");
    let events = site.json("events");
    let last = &events.as_array().expect("a list").last().expect("an event")["sequence"];
    assert_eq!(site.says(&format!("events --since {last}")), "");
}

#[test]
fn manual_pages_are_made_of_the_command_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pages = dir.path().join("man1");
    let output = shunt(&words(&format!("man {}", pages.display())), "", "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (page, says) in [
        ("shunt.1", "adapter"),
        ("shunt-apply.1", "\\-\\-dry\\-run"),
        ("shunt-adapter-set.1", "\\-\\-iov\\-weight"),
        ("shunt-vf.1", "Examples:"),
    ] {
        let text =
            fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(says), "{page}: {text}");
    }
    assert!(!pages.join("shunt-lab-guest.1").exists(), "not for people");
}

/// An API's socket in a directory of its own, as a proxy for that of `site`. Runs `between` before
/// it passes on the second connection, which makes a change.
fn with_something_between(site: &Site, between: impl FnOnce() + Send, ask: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let listener = UnixListener::bind(socket_path(dir.path())).expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut between = Some(between);
            for i in 0..2 {
                let (client, _) = listener.accept().expect("a connection");
                if i == 1 {
                    between.take().into_iter().for_each(|between| between());
                }
                let server = UnixStream::connect(socket_path(site.dir.path())).expect("the API");
                let copy = |from: &UnixStream, to: &UnixStream| {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    scope.spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to); // until either is closed
                        let _ = to.shutdown(Shutdown::Both);
                    });
                };
                copy(&client, &server);
                copy(&server, &client);
            }
        });
        ask(dir.path().to_str().expect("a path that is UTF-8"));
    });
}

#[test]
fn a_list_that_somebody_else_changed_meanwhile_is_not_overwritten() {
    let site = Site::furnished();
    site.says("nic create card --total-vfs 2 --num-vfs 2");
    site.says("nic set card --mode switchdev");
    site.says("nic rules card --add 'vf0 vf1' --add 'vf1 vf0'");
    site.says("switch acl sw0 web --add count");
    for (ours, theirs, shown, left) in [
        ("nic rules card --remove 1", "nic rules card --remove 2", "nic rules card", 1),
        ("switch acl sw0 web --add count", "switch acl sw0 web --clear", "switch acl sw0 web", 0),
    ] {
        let told = |dir: &str| {
            let output = shunt(&words(ours), dir, "");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && errors.contains("generation"), "{ours}: {errors}");
        };
        with_something_between(&site, || drop(site.says(theirs)), told);
        assert_eq!(site.json(shown).as_array().map(Vec::len), Some(left), "{shown}");
    }
}

/// `SHUNT_RUN_DIR` is in place of `--run-dir`, which overrides it.
#[test]
fn the_environment_names_the_daemon_unless_the_option_does() {
    let site = Site::furnished();
    let list = |variable: &Path, option: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(["adapter", "list"]).args(option).env("SHUNT_RUN_DIR", variable);
        command.output().expect("shunt was built for this test")
    };
    let (here, other) = (site.dir.path(), Path::new("/nowhere"));
    let told = list(here, &[]);
    assert!(told.status.success() && String::from_utf8_lossy(&told.stdout).contains("web"));
    let refused = list(here, &["--run-dir", "/nowhere"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/nowhere/api.sock"), "{errors}");
    let option = ["--run-dir", here.to_str().expect("UTF-8")];
    assert!(list(other, &option).status.success());
}

/// Every command in a document exists: without a daemon it fails, but not for its words.
#[test]
fn commands_in_documents_are_commands() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("state.toml"), "version = 1\n").expect("a file");
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut seen = 0;
    for name in ["api.md", "commands.md"] {
        let text = fs::read_to_string(docs.join(name)).expect("a document");
        let quoted = text.split('`').skip(1).step_by(2);
        for line in quoted.filter(|line| line.starts_with("shunt ") && !line.contains(['<', '\n']))
        {
            let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
                .args(&words(line)[1..])
                .args((words(line).len() == 2).then_some("--help")) // named, not shown
                .current_dir(dir.path())
                .env("SHUNT_RUN_DIR", dir.path())
                .stdin(Stdio::null())
                .output()
                .expect("shunt was built for this test");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_ne!(output.status.code(), Some(2), "{name}: {line}: {errors}");
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} commands were found");
}

/// QEMU's options of a virtual PF, printed with a note if the memory is left out.
fn vpf(site: &Site, line: &str) -> String {
    let output = site.run(line);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shunt {line}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_virtual_pf_is_made_changed_and_removed() {
    let site = Site::furnished();
    let before = site.json("export");
    let first =
        vpf(&site, "vpf vm --vfs 2 --grant mac,vlan --grant-macs 52:54:00 --grant-vlans 100-199");
    assert_eq!(first.matches("-device virtio-net-pci,").count(), 3, "{first}");
    assert!(first.contains("sriov-pf=vpf-vm") && first.contains("name=shunt.vpf.vm"), "{first}");
    let made = site.json("export");
    let nic = &made["nic"][1];
    assert_eq!((&nic["name"], &nic["num_vfs"]), (&json!("vm"), &json!(3)), "its own NIC");
    let control = &made["vpf"][0]["control"];
    assert_eq!(control["settings"], json!(["mac", "vlan"]));
    assert_eq!(
        (&control["mac_prefixes"], &control["vlans"]),
        (&json!(["52:54:00"]), &json!(["100-199"]))
    );
    // A repetition, and the name alone, print the same.
    assert_eq!(vpf(&site, "vpf vm --vfs 2"), first);
    assert_eq!(vpf(&site, "vpf vm"), first);
    assert_eq!(site.json("export"), made);
    // Named settings change, the others stay.
    vpf(&site, "vpf vm --queue-pairs 4 --grant-max-tx-mbps 100 --grant mac,vlan,rate");
    let changed = site.json("export");
    assert_eq!(changed["adapter"][3]["attachment"]["queue_pairs"], 4);
    assert_eq!(changed["adapter"][3]["mac"], made["adapter"][3]["mac"]);
    assert_eq!(changed["vpf"][0]["control"]["vlans"], json!(["100-199"]));
    assert!(
        vpf(&site, "vpf vm --format libvirt --memory 1G").contains("<qemu:arg value='-netdev'/>")
    );
    assert!(site.says("vpf").contains("virtio"));
    assert!(site.says("vpf vm --remove --dry-run").contains("remove vpf vm"));
    assert!(site.says("vpf vm --remove").starts_with("removed virtual PF vm"));
    assert_eq!(site.json("export"), before);
}

#[test]
fn a_virtual_pf_on_what_is_there() {
    let site = Site::furnished();
    vpf(&site, "vpf vm --vfs 1 --switch sw0 --no-control --backend stream --mac 52:54:00:00:00:10");
    let state = site.json("export");
    let of = |name: &str| {
        let adapters = state["adapter"].as_array().expect("a list");
        adapters.iter().find(|adapter| adapter["name"] == name).expect("an adapter").clone()
    };
    assert_eq!(
        (&of("vm-vf0")["switch"], &of("vm-vf0")["mac"]),
        (&json!("sw0"), &json!("52:54:00:00:00:11"))
    );
    assert_eq!(of("vm-pf")["attachment"]["kind"], "stream");
    assert_eq!(state["vpf"][0]["control"], Value::Null);
    // An adapter that existed before stays when the virtual PF is removed.
    site.says("vpf vm --remove");
    let own = r#"{"name": "own", "pf": "web", "vf": [{"adapter": "db"}]}"#;
    let mut document = site.json("export");
    document["vpf"] = json!([serde_json::from_str::<Value>(own).expect("JSON")]);
    fs::write(site.path("own.json"), document.to_string()).expect("a file");
    site.says(&format!("apply -f {}", site.path("own.json").display()));
    assert!(vpf(&site, "vpf own").contains("path=/run/web.sock"));
    site.says("vpf own --remove");
    assert_eq!(site.json("adapter list").as_array().map(Vec::len), Some(2));
}

#[test]
fn igb_has_one_port_and_addresses_for_its_vfs() {
    let site = Site::furnished();
    let options = vpf(&site, "vpf vm --model igb --switch sw0 --trunks 100-199 --max-tx-mbps 50");
    assert!(options.contains("-device igb,") && options.contains("-netdev stream,"), "{options}");
    let state = site.json("export");
    let pf = &state["adapter"][2];
    assert_eq!((&pf["name"], pf["macs"].as_array().map(Vec::len)), (&json!("vm-pf"), Some(7)));
    assert_eq!((&pf["trunks"], &pf["max_tx_mbps"]), (&json!(["100-199"]), &json!(50)));
    assert_eq!(state["vpf"][0]["vf"], json!([]));
}

#[test]
fn mistakes_about_virtual_pfs_change_nothing() {
    let site = Site::furnished();
    let before = site.json("export");
    for (line, words) in [
        ("vpf vm", vec!["virtual PF vm does not exist", "--vfs"]),
        ("vpf vm --grant all", vec!["virtual PF vm does not exist; give --vfs"]),
        ("vpf vm --vfs 8", vec!["write a whole number, 0 to 7"]),
        ("vpf vm --vfs 7 --qmp /run/vm.qmp", vec!["--qmp: only reads"]),
        ("vpf vm --qmp /run/vm.qmp", vec!["virtual PF vm does not exist"]),
        ("vpf vm --remove", vec!["virtual PF vm does not exist"]),
        ("vpf vm --vfs 1 --nic nic0 --mac 02", vec!["--mac: \"02\"", "six hex pairs"]),
        ("vpf vm --vfs 1 --nic nic0 --vdpa 0", vec!["--vdpa: \"0\"", "0=/dev/vhost-vdpa-0"]),
        (
            "vpf vm --vfs 1 --nic nic0 --vdpa 0=/dev/none",
            vec!["there is no /dev/none", "vhost_vdpa"],
        ),
        (
            "vpf vm --vfs 1 --nic nic0 --vdpa 1=/dev/null",
            vec!["--vdpa: 1 is no VF of vm, which has 1 VFs"],
        ),
        ("vpf vm --model igb --vfs 3", vec!["igb has 7 VFs"]),
        (
            "vpf vm --model e1000 --nic nic0 --vfs 1",
            vec!["\"e1000\"", "write \"virtio\" or \"igb\""],
        ),
        ("vpf vm --vfs 1 --nic nic0 --trunks 5", vec!["for igb"]),
        ("vpf vm --vfs 1 --nic nic0 --grant speed", vec!["\"speed\"", "\"mac\" or \"vlan\""]),
        (
            "vpf vm --vfs 1 --nic nic0 --grant mac --grant-vlans 5",
            vec!["limits vlan, which the guest may not set"],
        ),
        ("vpf vm --vfs 1 --nic nic0 --grant-vfs 1 --grant mac", vec!["is no VF of vm"]),
        ("vpf vm --vfs 1 --switch sw9", vec!["\"sw9\"", "no switch"]),
        ("vpf vm --vfs 1 --nic nic1", vec!["--nic: \"nic1\" is no NIC; did you mean nic0?"]),
    ] {
        site.fails(2, line, &words);
    }
    assert_eq!(site.json("export"), before);
}

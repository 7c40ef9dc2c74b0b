//! Good files, the documents that ship with the project, and (in `mistakes`) what a wrong file is
//! told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::state::{Attachment, AttachmentKind, SocketMode, VhostUser};

mod api;
mod desired;
mod documents;
mod mistakes;
mod older;

/// The least that a file must hold before its VFs.
const HEAD: &str = "run_dir = \"/run/shunt\"\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n";

fn parse(text: &str) -> Config {
    Config::parse("shunt.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn vhost_user(attachment: &Attachment) -> &VhostUser {
    match attachment {
        Attachment::VhostUser(socket) => socket,
        other => panic!("{other}"),
    }
}

#[test]
fn the_least_file_gets_every_default() {
    let text = format!(
        "{HEAD}[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:vf0.sock\"\n"
    );
    let config = parse(&text);
    let lanes =
        Lanes { cpus: vec![], poll_us: 50, yield_us: 50, sleep: true, cpu_latency_us: None };
    assert_eq!(lanes.count(), 1);
    let state = config.state.clone(); // it has tests of its own
    let run_dir = "/run/shunt".into();
    let (api, limits) = (ApiSettings::default(), Limits::default());
    let (socket_group, socket_mode) = (None, None);
    assert_eq!(
        config,
        Config { run_dir, state_dir: None, socket_group, socket_mode, api, lanes, limits, state }
    );
    assert_eq!((config.state.nics[0].total_vfs, config.state.nics[0].num_vfs), (1, 1));
}

#[test]
fn other_ways_to_write_the_same_are_the_same() {
    let usual = format!(
        "{HEAD}[[nic.vf]]\nmac = \"02:00:00:00:00:0a\"\nattachment = {{ socket = \"vf0.sock\", mtu = 9000 }}\n"
    );
    let inline = "run_dir = '/run/shunt'\r\nnic = [{ name = \"nic0\", kind = \"soft\", vf = [\r\n\
        { mac = \"02:00:00:00:00:0A\", attachment = { socket = \"/run/shunt/vf0.sock\", mtu = 0x2328 } }] }]\r\n";
    assert_eq!(parse(&usual), parse(inline));
    assert_eq!(parse(&usual), parse(&format!("\u{feff}{usual}")), "a byte-order mark is ignored");
}

#[test]
fn one_address_may_be_on_several_vlans_and_nics() {
    let vf = |vlan: &str, socket: &str| {
        format!(
            "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"{socket}\"\n{vlan}\n"
        )
    };
    let second = "[[nic]]\nname = \"nic1\"\nkind = \"soft\"\n";
    let text = [
        HEAD,
        &vf("", "a"),
        &vf("vlan.id = 1", "b"),
        &vf("vlan.id = 4094", "c"),
        second,
        &vf("", "d"),
    ]
    .concat();
    let config = parse(&text);
    let adapters = &config.state.adapters;
    let vlans: Vec<_> = adapters.iter().map(|it| it.settings.vlan.map(|vlan| vlan.id)).collect();
    assert_eq!(vlans, [None, Some(1), Some(4094), None]);
}

#[test]
fn limits_themselves_are_allowed() {
    // 107 bytes with the directory before it.
    let socket = "s".repeat(107 - "/run/shunt/".len());
    let text = format!(
        "run_dir = \"/run/shunt\"\nlanes = {{ cpus = [0, 1023], poll_us = 0, yield_us = 1_000_000, sleep = false, cpu_latency_us = 1000000 }}\n\
         [[nic]]\nname = \"a-15-byte-name-\"\nkind = \"soft\"\ntotal_vfs = 255\n\
         [[nic.vf]]\nindex = 254\nmac = \"fe:ff:ff:ff:ff:ff\"\nattachment = {{ socket = \"{socket}\", queue_pairs = 16, mtu = 65535 }}\n"
    );
    let config = parse(&text);
    assert_eq!(
        config.lanes,
        Lanes {
            cpus: vec![0, 1023],
            poll_us: 0,
            yield_us: 1_000_000,
            sleep: false,
            cpu_latency_us: Some(1_000_000)
        }
    );
    assert_eq!(config.lanes.count(), 2);
    let vf = &config.state.adapters[0];
    let at = vhost_user(&vf.attachment);
    assert_eq!((vf.vf, at.queue_pairs, at.mtu), (Some(254), 16, 65535));
    assert_eq!(at.socket.len(), 107);
}

#[test]
fn the_run_directory_without_a_word_about_it() {
    let dir = |xdg: Option<&str>, uid| run_dir_for(xdg.map(OsStr::new), uid);
    assert_eq!(dir(Some("/run/user/1000"), 1000), Path::new("/run/user/1000/shunt"));
    assert_eq!(dir(Some("relative"), 1000), Path::new("/tmp/shunt-1000"));
    for session in [None, Some(""), Some("/run/user/0")] {
        assert_eq!(dir(session, 0), Path::new("/run/shunt"), "root, {session:?}");
    }
    assert_eq!(dir(None, 1000), Path::new("/tmp/shunt-1000"));
    let config = parse("[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n");
    assert_eq!(config.run_dir, default_run_dir());
}

#[test]
fn a_daemon_is_looked_for_where_any_session_of_the_user_and_the_service_have_it() {
    let dirs = |xdg: Option<&str>, uid| run_dirs_for(xdg.map(OsStr::new), uid);
    let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
    let session = "/run/user/1000/shunt";
    assert_eq!(
        dirs(Some("/run/user/1000"), 1000),
        paths(&[session, "/tmp/shunt-1000", "/run/shunt"])
    );
    assert_eq!(dirs(None, 1000), paths(&["/tmp/shunt-1000", "/run/shunt", session]));
    for session in [None, Some("/run/user/0")] {
        assert_eq!(dirs(session, 0), paths(&["/run/shunt"]), "root, {session:?}");
    }
}

#[test]
fn each_run_directory_has_its_own_default_state_directory() {
    let users =
        [("XDG_RUNTIME_DIR", "/run/user/1000"), ("XDG_STATE_HOME", "/u/state"), ("HOME", "/u")];
    let of = |uid, run_dir: &str, set: &[(&str, &str)]| {
        let set: BTreeMap<_, _> = set.iter().copied().collect();
        state_dir_for(Path::new(run_dir), uid, |name| set.get(name).map(PathBuf::from))
    };
    let dir = |run_dir: &str, set: &[(&str, &str)]| of(1000, run_dir, set);
    assert_eq!(dir("/run/user/1000/shunt", &users), Path::new("/u/state/shunt"));
    let without = [users[0], users[2]];
    assert_eq!(dir("/run/user/1000/shunt/", &without), Path::new("/u/.local/state/shunt"));
    assert_eq!(dir("/run/user/1000/shunt", &users[..1]), Path::new("/run/user/1000/shunt/state"));
    assert_eq!(dir("/run/shunt", &users), Path::new("/var/lib/shunt"));
    // The default without a session.
    assert_eq!(dir("/tmp/shunt-1000", &users[1..]), Path::new("/u/state/shunt-tmp"));
    assert_eq!(dir("/tmp/shunt-1000", &without[1..]), Path::new("/u/.local/state/shunt-tmp"));
    assert_eq!(dir("/tmp/shunt-1000", &[]), Path::new("/tmp/shunt-1000/state"));
    for other in ["/tmp/shunt", "/tmp/shunt-1001", "/run/shunt/b", "/run/user/1000/shunt-b"] {
        assert_eq!(dir(other, &users), Path::new(other).join("state"));
    }
    // Root's does not depend on its session.
    let roots = [("XDG_RUNTIME_DIR", "/run/user/0"), ("XDG_STATE_HOME", "/state"), ("HOME", "/r")];
    for set in [&roots[..], &[]] {
        assert_eq!(of(0, "/run/shunt", set), Path::new("/var/lib/shunt"));
        assert_eq!(of(0, "/run/user/0/shunt", set), Path::new("/run/user/0/shunt/state"));
    }
}

#[test]
fn files_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shunt.toml");
    let told = |path: &Path| {
        let text = Config::load(path).unwrap_err().to_string();
        text.replace(&dir.path().display().to_string(), "DIR")
    };
    insta::assert_snapshot!(told(&path), @r#"--config: "DIR/shunt.toml" does not exist; give the path of a file that this user can read"#);
    insta::assert_snapshot!(told(dir.path()), @r#"--config: "DIR" is a directory; give the path of a file that this user can read"#);
    fs::write(&path, b"# caf\xe9\n").unwrap();
    insta::assert_snapshot!(told(&path), @"DIR/shunt.toml: line 1 is not UTF-8; save the file as UTF-8");
    fs::write(&path, vec![b'#'; MAX_FILE_BYTES + 1]).unwrap();
    insta::assert_snapshot!(told(&path), @"DIR/shunt.toml: is larger than 1048576 bytes, the most allowed; make it smaller");
    fs::write(&path, HEAD).unwrap();
    assert_eq!(Config::load(&path), Ok(parse(HEAD)));
}

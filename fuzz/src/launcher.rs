//! Requests to the launcher, from a daemon that has been taken over.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use daemon::testing::{check_request, requests};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use serde_json::{Value, json};

use crate::Reached;
use crate::documents::change;
use crate::input::Input;

/// The one PF of a NIC.
const PF: &str = "0000:01:00.0";
/// Another PF, of a disk.
const DISK: &str = "0000:02:00.0";
/// Number of VFs of each.
const VFS: u64 = 2;
/// Requests for which the network namespace matters.
const IN_NAMESPACE: [&str; 3] = ["open-tap", "open-socket", "attach-program"];

/// PCI functions, as in sysfs.
static SYSFS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    for (address, class, driver) in [(PF, "0x020000", "igb"), (DISK, "0x010802", "nvme")] {
        let function = dir.path().join("bus/pci/devices").join(address);
        fs::create_dir_all(&function).expect("a directory");
        let all = [("class", class), ("sriov_totalvfs", "7"), ("sriov_numvfs", "2")];
        all.iter().for_each(|(name, text)| fs::write(function.join(name), text).expect("a file"));
        let driver = format!("../../../bus/pci/drivers/{driver}");
        symlink(driver, function.join("driver")).expect("a link");
    }
    dir
});

/// A valid request of each kind: its name and its body.
static VALID: LazyLock<Vec<(&'static str, Value)>> = LazyLock::new(|| {
    let netdev = json!({
        "netns": "web", "name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1500, "up": true,
        "addresses": [{"ip": "10.0.0.1", "prefix_len": 24}], "gateways": ["10.0.0.254"],
    });
    let device = json!({
        "name": "web0", "features": 1, "rings": 2, "ring_size_max": 256, "config": [0],
    });
    let insert = json!({"Insert": {"mac": [2, 0, 0, 0, 0, 1], "queue": 1, "location": 7}});
    let valid = vec![
        ("open-namespace", json!({"path": "/run/netns/web"})),
        ("identify-namespace", json!({"path": "/run/netns/web"})),
        ("open-tap", json!({"name": "tap0", "several": false})),
        ("open-socket", json!("Route")),
        ("set-buffers", json!({"receive": 4096, "send": null})),
        ("change-interface", json!({"name": "lo", "setting": {"Mtu": 1500}})),
        ("change-link", json!({"index": 1, "change": "Remove"})),
        ("find-group", json!({"name": "kvm"})),
        ("hold-latency", json!({"latency_us": 0})),
        ("create-map", json!({"kind": "Hash", "name": "map", "sizes": [4, 4, 64]})),
        ("load-redirect", json!({"record": null, "first": null, "fragments": false})),
        ("attach-program", json!({"interface": 1, "how": "Generic"})),
        ("prefer-busy-poll", json!({"micros": 20, "budget": 64})),
        ("change-flow-rule", json!({"interface": "lo", "change": insert})),
        ("keep-tags", json!({"interface": "lo", "keep": true})),
        ("change-vfs", json!({"pf": PF, "num_vfs": 2})),
        ("change-vf", json!({"pf": PF, "vf": 1, "setting": {"vlan": {"id": 10, "qos": 3}}})),
        (
            "bind-driver",
            json!({"pf": PF, "vf": 1, "binding": {"driver": "vfio-pci", "driver_override": null}}),
        ),
        ("eswitch-mode", json!({"pf": PF, "set": "switchdev"})),
        ("place-netdev", json!({"pf": PF, "vf": 0, "to": netdev})),
        ("change-vduse-devices", json!({"Create": device})),
        ("open-vduse-device", json!({"name": "web0"})),
        ("change-vdpa-bus", json!({"name": "web0", "add": true})),
        ("socket-file", json!({"path": "/run/web.sock", "operation": {"SetMode": [[1, 2], 438]}})),
        ("open-capture", json!({"path": "/var/tmp/web.pcapng"})),
        ("open-recording", json!({"path": "/var/tmp/web.pcapng"})),
        ("name-files", json!({"read": [], "write": ["/run/shunt"]})),
        ("start-program", json!({"other": "/usr/bin/shunt", "user": 0})),
        ("end-program", json!({"pid": 1, "how": "Stop"})),
    ];
    let names: Vec<_> = valid.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, requests().collect::<Vec<_>>(), "each kind has a valid request here");
    valid
});

/// Some fields and variants of requests.
const FIELDS: [&str; 12] = [
    "pf",
    "vf",
    "driver",
    "Remove",
    "SetGroup",
    "Bind",
    "RemoveStale",
    "Up",
    "Mac",
    "rate",
    "mac",
    "vlan",
];

/// Some texts of requests.
const TEXTS: [&str; 16] = [
    PF,
    DISK,
    "0000:01:10.0",
    "igbvf",
    "vfio-pci",
    "mlx5_vfio_pci",
    "uio_pci_generic",
    "uio_pci_generic\n_vfio_pci",
    "Bind",
    "RemoveStale",
    "Interfaces",
    "Remove",
    "lo",
    "change-vf",
    "bind-driver",
    "socket-file",
];

/// `data` is a message of any content, or a valid one with values changed. It is read and checked,
/// and not served.
pub(crate) fn launcher(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let (interfaces, unix) = sockets();
    let fds = match input.below(3) {
        0 => vec![],
        1 => vec![interfaces.as_fd()],
        _ => vec![unix.as_fd()],
    };
    let message = if input.byte() == 0xff {
        data.get(2..).unwrap_or_default().to_vec()
    } else {
        let (name, body) = &VALID[input.below(VALID.len() as u32) as usize];
        let valid = json!({"name": name, "in_namespace": input.flag(), "body": body});
        change(valid, &mut input, &FIELDS, &TEXTS).to_string().into_bytes()
    };
    let mut reached = Reached::default();
    match check_request(SYSFS.path(), &message, &fds) {
        Ok(name) => {
            let message: Value = serde_json::from_slice(&message).expect("it was read");
            let in_namespace = field(&message, "in_namespace", 1);
            assert!(in_namespace != json!(true) || IN_NAMESPACE.contains(&name), "{message}");
            accepted(name, &field(&message, "body", 2));
            reached.add("accepted", 1);
        }
        Err(Errno::BADMSG) => reached.add("malformed", 1),
        Err(Errno::INVAL) => reached.add("unknown", 1),
        Err(_) => reached.add("refused", 1),
    }
    reached
}

/// A socket for interfaces, and a UNIX socket without a file.
fn sockets() -> (std::os::fd::OwnedFd, UnixStream) {
    let interfaces = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    (interfaces, UnixStream::pair().expect("a socket pair").0)
}

/// A field of a structure, which may be written as an object or as an array.
fn field(value: &Value, name: &str, at: usize) -> Value {
    value.get(name).or_else(|| value.get(at)).cloned().unwrap_or_default()
}

/// Name of a variant with contents or without.
fn variant(value: &Value) -> &str {
    let named = value.as_object().and_then(|object| object.keys().next());
    value.as_str().or(named.map(String::as_str)).unwrap_or_default()
}

/// Limits of accepted requests.
fn accepted(name: &str, body: &Value) {
    match name {
        "change-vfs" | "change-vf" | "bind-driver" | "eswitch-mode" | "place-netdev" => {
            assert_eq!(field(body, "pf", 0), PF, "{body}");
        }
        "create-map" => {
            let sizes = field(body, "sizes", 2);
            let size = |at: usize| sizes[at].as_u64().map_or(0, u128::from);
            assert!((size(0) + size(1)).max(1) * size(2) <= 64 << 20, "{body}");
        }
        // None of the sockets is proof of a file.
        "socket-file" => {
            let operation = field(body, "operation", 1);
            assert!(["Bind", "Connect", "RemoveStale"].contains(&variant(&operation)), "{body}");
        }
        _ => {}
    }
    if ["change-vf", "bind-driver", "place-netdev"].contains(&name) {
        assert!(field(body, "vf", 1).as_u64().is_some_and(|vf| vf < VFS), "{body}");
    }
    match name {
        "bind-driver" => {
            let binding = field(body, "binding", 2);
            for (field_name, at) in [("driver", 0), ("driver_override", 1)] {
                let driver = field(&binding, field_name, at);
                let Some(driver) = driver.as_str() else { continue };
                let is_name =
                    driver.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it));
                let is_vfio = driver == "vfio-pci" || driver.ends_with("_vfio_pci");
                assert!(driver == "igbvf" || is_name && is_vfio, "{body}");
            }
        }
        "change-vf" => {
            let setting = field(body, "setting", 2);
            assert_ne!(variant(&setting), "driver", "{body}");
            let vlan = setting.get("vlan").cloned().unwrap_or_default();
            let [id, qos] = [field(&vlan, "id", 0), field(&vlan, "qos", 1)].map(|it| it.as_u64());
            assert!(id <= Some(4094) && qos <= Some(7), "{body}");
        }
        _ => {}
    }
}

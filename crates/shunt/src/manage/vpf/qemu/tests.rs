//! Options in the syntax of QEMU 11.1, for each kind of back end.

use serde_json::{Value, json};

use super::*;

const HOW: QemuArgs<'static> =
    QemuArgs { memory: Some("512M"), reconnect_ms: 1000, bus: None, chassis: 9 };

fn adapter(name: &str, byte: u8, attachment: Value) -> Value {
    let mac = format!("02:00:00:00:00:{byte:02x}");
    json!({"name": name, "nic": "nic0", "mac": mac, "attachment": attachment})
}

fn state(adapters: Value, vpf: Value) -> State {
    let nic = json!([{"name": "nic0", "total_vfs": 4}]);
    let state = json!({"version": 1, "nic": nic, "adapter": adapters, "vpf": [vpf]});
    State::parse(&state).unwrap()
}

/// Lines for the only virtual PF of a state.
fn lines(state: &State, how: &QemuArgs<'_>) -> String {
    as_lines(&options(state, &state.vpfs[0], how).unwrap())
}

fn virtio() -> State {
    let many = json!({"socket": "/run/a,b.sock", "queue_pairs": 4, "mtu": 9000});
    state(
        json!([adapter("p", 1, json!("vhost-user:/run/p.sock")), adapter("v", 2, many)]),
        json!({"name": "7", "pf": "p", "vf": [{"adapter": "v"}], "control": {"socket": "/run/c"}}),
    )
}

#[test]
fn vfs_come_before_the_pf_and_name_it() {
    let expected = "\
-object memory-backend-memfd,id=vpf-7-mem,size=512M,share=on
-machine memory-backend=vpf-7-mem
-device pcie-root-port,id=vpf-7-port,chassis=9
-chardev socket,id=vpf-7-vf0-chr,path=/run/a,,b.sock,reconnect-ms=1000
-netdev vhost-user,id=vpf-7-vf0,chardev=vpf-7-vf0-chr,queues=4
-device virtio-net-pci,bus=vpf-7-port,addr=0x0.0x1,sriov-pf=vpf-7,netdev=vpf-7-vf0,mac=02:00:00:00:00:02,romfile=,mq=on,vectors=10,host_mtu=9000
-chardev socket,id=vpf-7-pf-chr,path=/run/p.sock,reconnect-ms=1000
-netdev vhost-user,id=vpf-7-pf,chardev=vpf-7-pf-chr
-device virtio-net-pci,bus=vpf-7-port,addr=0x0.0x0,id=vpf-7,netdev=vpf-7-pf,mac=02:00:00:00:00:01,romfile=
-chardev socket,id=vpf-7-ctl,path=/run/c,reconnect-ms=1000
-device virtio-serial-pci,id=vpf-7-serial
-device virtserialport,bus=vpf-7-serial.0,chardev=vpf-7-ctl,name=shunt.vpf.7
";
    assert_eq!(lines(&virtio(), &HOW), expected);
    let how = QemuArgs { memory: None, reconnect_ms: 0, bus: Some("rp"), chassis: 0 };
    let bare = lines(&virtio(), &how);
    for gone in ["reconnect", "memory", "pcie-root-port"] {
        assert!(!bare.contains(gone), "{gone} in {bare}");
    }
    assert!(bare.contains("virtio-net-pci,bus=rp,addr=0x0.0x1"), "{bare}");
    let notes = notes(&virtio(), &virtio().vpfs[0], &how);
    assert!(notes[0].contains("--memory"), "{notes:?}");
}

#[test]
fn each_back_end_has_its_netdev() {
    let client = json!({"socket": "/run/v.sock", "mode": "client"});
    let state = state(
        json!([
            adapter("p", 1, json!("stream:/run/p.sock")),
            adapter("v", 2, client),
            adapter("t", 3, json!("packet:tap7")),
        ]),
        json!({
            "name": "vm", "pf": "p",
            "vf": [{"adapter": "v"}, {"adapter": "t"}, {"vhost_vdpa": "/dev/vhost-vdpa-3"}],
        }),
    );
    let lines = lines(&state, &HOW);
    for line in [
        "-netdev stream,id=vpf-vm-pf,addr.type=unix,addr.path=/run/p.sock,server=off,reconnect-ms=1000\n",
        "-chardev socket,id=vpf-vm-vf0-chr,path=/run/v.sock,server=on,wait=off\n",
        "-netdev tap,id=vpf-vm-vf1,ifname=tap7,script=no,downscript=no\n",
        "-netdev vhost-vdpa,id=vpf-vm-vf2,vhostdev=/dev/vhost-vdpa-3\n",
        "addr=0x0.0x3,sriov-pf=vpf-vm,netdev=vpf-vm-vf2,romfile=\n",
    ] {
        assert!(lines.contains(line), "no {line} in {lines}");
    }
    let at = |text: &str| lines.find(text).unwrap();
    assert!(at("addr=0x0.0x3") < at("addr=0x0.0x1") && at("addr=0x0.0x1") < at("addr=0x0.0x0"));
}

#[test]
fn igb_has_one_netdev_and_addresses_for_its_vfs() {
    let mut pf = adapter("p", 0x10, json!("stream:/run/p.sock"));
    pf["macs"] = json!(["02:00:00:00:00:11", "02:00:00:00:00:12"]);
    let state = state(json!([pf]), json!({"name": "vm", "model": "igb", "pf": "p"}));
    let lines = lines(&state, &HOW);
    let device = "-device igb,bus=vpf-vm-port,addr=0x0.0x0,id=vpf-vm,netdev=vpf-vm-pf,mac=02:00:00:00:00:10\n";
    assert!(lines.contains(device), "{lines}");
    let notes = notes(&state, &state.vpfs[0], &HOW);
    assert!(notes.iter().any(|note| note.ends_with("vf 1 mac 02:00:00:00:00:12")), "{notes:?}");
}

#[test]
fn libvirt_makes_the_memory_itself() {
    let xml = as_libvirt(&options(&virtio(), &virtio().vpfs[0], &HOW).unwrap());
    assert!(!xml.contains("memory-backend"), "{xml}");
    assert!(xml.contains("<source type='memfd'/>") && xml.contains("<access mode='shared'/>"));
    assert!(xml.contains(
        "    <qemu:arg value='-chardev'/>\n    <qemu:arg value='socket,id=vpf-7-vf0-chr"
    ));
    let odd = vec![option("-a", "b'<&".into())];
    assert!(as_libvirt(&odd).contains("value='b&apos;&lt;&amp;'"));
}

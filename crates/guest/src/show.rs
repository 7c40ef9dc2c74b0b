//! The host's answers, printed like `ip link` and `ip -j -d link`.

use std::fmt::Write;
use std::fs;

use crate::json::Json;

fn text<'j>(value: &'j Json, name: &str) -> &'j str {
    value.get(name).and_then(Json::text).unwrap_or_default()
}

fn number(value: &Json, name: &str) -> f64 {
    value.get(name).and_then(Json::number).unwrap_or(0.0)
}

fn is(value: &Json, name: &str) -> bool {
    value.get(name) == Some(&Json::Bool(true))
}

fn on(value: &Json, name: &str) -> &'static str {
    if is(value, name) { "on" } else { "off" }
}

/// The PF's network device: the one with its address that is not a VF.
pub(crate) fn device_of(hello: &Json) -> Option<String> {
    let mac = text(hello.get("pf")?, "mac");
    let entries = fs::read_dir("/sys/class/net").ok()?.flatten();
    let mut found = entries.filter(|entry| {
        let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        let is_vf =
            ["device/physfn", "device/../physfn"].iter().any(|it| entry.path().join(it).exists());
        !mac.is_empty()
            && address.trim_end() == mac
            && !is_vf
            && entry.path().join("device").exists()
    });
    found.next()?.file_name().into_string().ok()
}

/// The PF and the settings that the host allows.
pub(crate) fn pf(hello: &Json) -> String {
    let none = Json::Null;
    let (pf, grants) = (hello.get("pf").unwrap_or(&none), hello.get("grants").unwrap_or(&none));
    let list = |name: &str| {
        let items = grants.get(name).map(Json::items).unwrap_or_default();
        let shown: Vec<String> =
            items.iter().map(|it| it.text().map_or(it.to_string(), str::to_owned)).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    };
    let rate = |name: &str| match number(grants, name) {
        0.0 => "the host's".to_owned(),
        mbps => format!("{mbps} Mbps"),
    };
    let lines = [
        ("PF", format!("{}, {}, {}", text(pf, "name"), text(pf, "model"), text(pf, "mac"))),
        ("VFs", number(pf, "num_vfs").to_string()),
        ("host", text(hello, "daemon").to_owned()),
        ("may set", list("settings")),
        ("on VFs", list("vfs")),
        ("addresses", list("mac_prefixes")),
        ("VLANs", list("vlans")),
        ("tags", list("vlan_protos")),
        ("max_tx_rate", format!("up to {}", rate("max_tx_rate"))),
        ("min_tx_rate", format!("up to {}", rate("min_tx_rate"))),
    ];
    lines.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name:<12} {value}");
        out
    })
}

/// The VFs as `ip link` shows them.
pub(crate) fn list(hello: &Json, list: &Json, device: Option<&str>) -> String {
    let none = Json::Null;
    let pf = hello.get("pf").unwrap_or(&none);
    let mut out = String::new();
    let name = device.unwrap_or("-");
    let _ = writeln!(out, "{name}: pf {} link/ether {}", text(pf, "name"), text(pf, "mac"));
    for vf in list.get("vfs").map(Json::items).unwrap_or_default() {
        let index = number(vf, "vf");
        if vf.get("mac").is_none() {
            let _ = writeln!(out, "    vf {index}     {}", text(vf, "backend"));
            continue;
        }
        let _ =
            write!(out, "    vf {index}     link/ether {} brd ff:ff:ff:ff:ff:ff", text(vf, "mac"));
        if number(vf, "vlan") > 0.0 {
            let _ = write!(out, ", vlan {}", number(vf, "vlan"));
        }
        if number(vf, "qos") > 0.0 {
            let _ = write!(out, ", qos {}", number(vf, "qos"));
        }
        if text(vf, "proto") == "802.1ad" {
            out += ", vlan protocol 802.1ad";
        }
        let (max, min) = (number(vf, "max_tx_rate"), number(vf, "min_tx_rate"));
        if max > 0.0 {
            let _ = write!(out, ", tx rate {max} (Mbps), max_tx_rate {max}Mbps");
        }
        if min > 0.0 {
            let _ = write!(out, ", min_tx_rate {min}Mbps");
        }
        let _ = writeln!(
            out,
            ", spoof checking {}, link-state {}, trust {}",
            on(vf, "spoofchk"),
            text(vf, "state"),
            on(vf, "trust")
        );
    }
    out
}

/// The same as `ip -j -d link`, with extra fields.
pub(crate) fn list_json(hello: &Json, list: &Json, device: Option<&str>) -> Json {
    let none = Json::Null;
    let pf = hello.get("pf").unwrap_or(&none);
    let name = device.map_or(Json::Null, |name| Json::Text(name.to_owned()));
    let vfs = list.get("vfs").map(Json::items).unwrap_or_default().iter().map(entry);
    let of = |name: &str| pf.get(name).cloned().unwrap_or(Json::Null);
    let link = object([
        ("ifname", name),
        ("address", of("mac")),
        ("pf", of("name")),
        ("model", of("model")),
        ("num_vfs", of("num_vfs")),
        ("vfinfo_list", Json::List(vfs.collect())),
    ]);
    Json::List(vec![link])
}

fn entry(vf: &Json) -> Json {
    let of = |name: &str| vf.get(name).cloned().unwrap_or(Json::Null);
    if vf.get("mac").is_none() {
        return object([("vf", of("vf")), ("backend", of("backend"))]);
    }
    let mut vlan = Json::Object(Vec::new());
    for name in ["vlan", "qos"].into_iter().filter(|name| number(vf, name) > 0.0) {
        vlan.put(name, of(name));
    }
    if text(vf, "proto") == "802.1ad" {
        vlan.put("protocol", of("proto"));
    }
    let mut entry = object([
        ("vf", of("vf")),
        ("link_type", Json::Text("ether".into())),
        ("address", of("mac")),
        ("broadcast", Json::Text("ff:ff:ff:ff:ff:ff".into())),
        ("vlan_list", Json::List(vec![vlan])),
    ]);
    if number(vf, "max_tx_rate") > 0.0 {
        entry.put("tx_rate", of("max_tx_rate"));
    }
    entry.put("rate", object([("max_tx", of("max_tx_rate")), ("min_tx", of("min_tx_rate"))]));
    for (name, ours) in
        [("spoofchk", "spoofchk"), ("link_state", "state"), ("trust", "trust"), ("guest", "guest")]
    {
        entry.put(name, of(ours));
    }
    entry.put("may_set", of("may_set"));
    entry.put("set_here", of("set_here"));
    entry
}

fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Json {
        Json::read(
            r#"{"daemon":"shunt 1","pf":{"name":"vm7","model":"virtio","mac":"x","num_vfs":2},
                "grants":{"settings":["mac"],"vfs":[0,1],"mac_prefixes":[],"vlans":["7"],"vlan_protos":["802.1ad"],
                "max_tx_rate":100,"min_tx_rate":0}}"#,
        )
        .unwrap()
    }

    fn vfs() -> Json {
        Json::read(
            r#"{"vfs":[{"vf":0,"backend":"shunt","mac":"52:54:00:aa:bb:01","vlan":100,"qos":3,
                "proto":"802.1ad","max_tx_rate":50,"min_tx_rate":5,"spoofchk":true,"trust":true,
                "state":"auto","guest":"running","may_set":["mac"],"set_here":[]},
                {"vf":1,"backend":"shunt","mac":"52:54:00:aa:bb:02","vlan":0,"qos":0,
                "proto":"802.1q","max_tx_rate":0,"min_tx_rate":0,"spoofchk":false,"trust":false,
                "state":"disable","guest":"connected","may_set":[],"set_here":[]},
                {"vf":2,"backend":"vhost-vdpa"}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_list_looks_as_that_of_ip_link() {
        let expected = "\
eth0: pf vm7 link/ether x
    vf 0     link/ether 52:54:00:aa:bb:01 brd ff:ff:ff:ff:ff:ff, vlan 100, qos 3, vlan protocol 802.1ad, \
tx rate 50 (Mbps), max_tx_rate 50Mbps, min_tx_rate 5Mbps, spoof checking on, link-state auto, trust on
    vf 1     link/ether 52:54:00:aa:bb:02 brd ff:ff:ff:ff:ff:ff, spoof checking off, link-state disable, trust off
    vf 2     vhost-vdpa
";
        assert_eq!(list(&hello(), &vfs(), Some("eth0")), expected);
    }

    #[test]
    fn json_has_the_fields_of_ip() {
        let shown = list_json(&hello(), &vfs(), None).to_string();
        for part in [
            r#"[{"ifname":null,"address":"x","pf":"vm7","#,
            r#""vfinfo_list":[{"vf":0,"link_type":"ether","address":"52:54:00:aa:bb:01","broadcast":"ff:ff:ff:ff:ff:ff","#,
            r#""vlan_list":[{"vlan":100,"qos":3,"protocol":"802.1ad"}],"tx_rate":50,"rate":{"max_tx":50,"min_tx":5},"#,
            r#""spoofchk":true,"link_state":"auto","trust":true"#,
            r#""vlan_list":[{}],"rate":{"max_tx":0,"min_tx":0},"spoofchk":false"#,
            r#"{"vf":2,"backend":"vhost-vdpa"}"#,
        ] {
            assert!(shown.contains(part), "no {part} in {shown}");
        }
    }

    #[test]
    fn rights_are_shown_with_their_limits() {
        let shown = pf(&hello());
        for line in [
            "may set      mac",
            "VLANs        7",
            "tags         802.1ad",
            "addresses    none",
            "up to 100 Mbps",
            "on VFs       0, 1",
        ] {
            assert!(shown.contains(line), "no {line} in {shown}");
        }
        assert!(
            pf(&Json::Null).contains("may set      none"),
            "a host that says little is no fault"
        );
    }
}

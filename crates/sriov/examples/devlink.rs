//! Shows and changes a devlink device by this crate, to compare it with devlink(8).
//!
//! usage: devlink BUS/NAME [WORD ...]
//!
//! Without words it prints what `devlink -j` shows: `dev info`, `dev eswitch show`, `port show` and
//! `port function rate show`, as far as the crate reads it. [`change`] has the words of changes.
//! Needs root.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use sriov::{Devlink, DevlinkDevice, RateChange, RateOwner};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("devlink: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Failure> {
    let (name, words) = words.split_first().ok_or("usage: devlink BUS/NAME [WORD ...]")?;
    let (bus, name) = name.split_once('/').ok_or("name the device as BUS/NAME")?;
    let device = DevlinkDevice { bus: bus.to_owned(), name: name.to_owned() };
    let devlink = Devlink::open()?;
    if words.is_empty() {
        println!("{:#}", shown(&devlink, &device)?);
        return Ok(());
    }
    change(&devlink, &device, words)
}

fn change(devlink: &Devlink, device: &DevlinkDevice, words: &[&str]) -> Result<(), Failure> {
    // A port is its index, a group its name.
    let owner = |text: &str| match text.parse() {
        Ok(port) => RateOwner::Port(port),
        Err(_) => RateOwner::Node(text.to_owned()),
    };
    match *words {
        ["mode", mode] => devlink.set_eswitch_mode(device, serde_json::from_value(json!(mode))?)?,
        ["mac", port, mac] => devlink.set_function_mac(device, port.parse()?, mac.parse()?)?,
        ["active", port] => devlink.set_function_active(device, port.parse()?, true)?,
        ["add", node] => devlink.add_rate_node(device, node)?,
        ["delete", node] => devlink.remove_rate_node(device, node)?,
        ["tx_share", of, rate] => {
            devlink.set_rate(device, &owner(of), &RateChange::TxShare(rate.parse()?))?;
        }
        ["tx_max", of, rate] => {
            devlink.set_rate(device, &owner(of), &RateChange::TxMax(rate.parse()?))?;
        }
        ["parent", of] => devlink.set_rate(device, &owner(of), &RateChange::Parent(None))?,
        ["parent", of, node] => {
            let parent = Some(node.to_owned());
            devlink.set_rate(device, &owner(of), &RateChange::Parent(parent))?;
        }
        _ => return Err("unknown words".into()),
    }
    Ok(())
}

fn shown(devlink: &Devlink, device: &DevlinkDevice) -> Result<Value, Failure> {
    let info = devlink.info(device)?;
    let mut versions = json!({});
    for version in info.versions {
        versions[version.kind][version.name] = version.value.into();
    }
    let mut ports = Map::new();
    for port in devlink.ports(device)? {
        let all = json!({
            "flavour": port.flavour,
            "netdev": port.interface,
            "pfnum": port.pf,
            "vfnum": port.vf,
        });
        ports.insert(port.index.to_string(), present(all));
    }
    let mut rates = Map::new();
    for rate in devlink.rates(device)? {
        let limit = |rate: u64| (rate > 0).then_some(rate);
        let (name, kind) = match rate.owner {
            RateOwner::Port(index) => (index.to_string(), "leaf"),
            RateOwner::Node(name) => (name, "node"),
        };
        let all = json!({
            "type": kind,
            "tx_share": limit(rate.tx_share),
            "tx_max": limit(rate.tx_max),
            "parent": rate.parent,
        });
        rates.insert(name, present(all));
    }
    let mode = devlink.eswitch_mode(device)?;
    let info = json!({"driver": info.driver, "versions": versions});
    Ok(json!({"info": info, "eswitch": {"mode": mode}, "port": ports, "rate": rates}))
}

/// An object without its empty fields.
fn present(mut object: Value) -> Value {
    object.as_object_mut().into_iter().for_each(|all| all.retain(|_, value| !value.is_null()));
    object
}

//! The words of the channel: one JSON object a line, both ways; `docs/guest-control.md` is its
//! contract.

use model::state::{LinkState, MacText, Vlan, VlanProto};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::{Errno, Refusal};
use super::request::{Asked, Request};
use super::setting::Wish;

/// The version that is spoken.
pub(crate) const VERSION: u64 = 1;
/// The longest request in bytes, without the newline.
pub(crate) const LINE_MAX: usize = 4096;
/// The highest rate in Mbit/s, as in the document.
const RATE_MAX: u32 = 1_000_000;

/// A request as it is written. `null` is as good as nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "v")]
    _version: u64,
    #[serde(rename = "id")]
    _id: u64,
    op: Op,
    vf: Option<u16>,
    mac: Option<String>,
    vlan: Option<u16>,
    qos: Option<u8>,
    proto: Option<VlanProto>,
    max_tx_rate: Option<u32>,
    min_tx_rate: Option<u32>,
    spoofchk: Option<bool>,
    trust: Option<bool>,
    state: Option<LinkState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Hello,
    List,
    Set,
    Reset,
}

/// Reads a line.
pub(crate) fn read(line: &[u8]) -> Asked {
    let value = match model::json::parse(line) {
        Ok(value) => value,
        Err(error) => {
            let text: String = format!("this line {error}").chars().take(200).collect();
            return Asked { id: 0, what: Err(Refusal::new(Errno::Proto, text)) };
        }
    };
    let id = value["id"].as_u64().unwrap_or(0);
    Asked { id, what: request(value) }
}

fn request(value: Value) -> Result<Request, Refusal> {
    // Of another version nothing else is known.
    if let Some(version) = value["v"].as_u64().filter(|version| *version != VERSION) {
        let text = format!("version {version} is not spoken here, {VERSION} is");
        return Err(Refusal::new(Errno::ProtoNoSupport, text));
    }
    let written: Written = serde_json::from_value(value).map_err(|error| {
        let text: String = error.to_string().chars().take(200).collect();
        Refusal::new(Errno::Proto, format!("this is no request: {text}"))
    })?;
    let inval = |text: &str| Err(Refusal::new(Errno::Inval, text));
    let wish = wish(&written)?;
    if written.op != Op::Set && !wish.is_empty() {
        return inval("only set takes settings");
    }
    match (written.op, written.vf) {
        (Op::Hello, None) => Ok(Request::Hello),
        (Op::Hello, Some(_)) => inval("hello takes no vf"),
        (Op::List, vf) => Ok(Request::List(vf)),
        (Op::Set | Op::Reset, None) => inval("vf is missing"),
        (Op::Set, Some(_)) if wish.is_empty() => inval("set without a setting"),
        (Op::Set, Some(vf)) => Ok(Request::Set(vf, wish)),
        (Op::Reset, Some(vf)) => Ok(Request::Reset(vf)),
    }
}

fn wish(written: &Written) -> Result<Wish, Refusal> {
    let inval = |text: String| Refusal::new(Errno::Inval, text);
    let mac = written.mac.as_deref().map(|text| {
        let parsed = text.parse::<MacText>();
        parsed.map_err(|_| inval("mac is no unicast MAC address such as 02:00:00:00:00:01".into()))
    });
    let rates = [("max_tx_rate", written.max_tx_rate), ("min_tx_rate", written.min_tx_rate)];
    if let Some((name, _)) = rates.iter().find(|(_, rate)| rate.is_some_and(|it| it > RATE_MAX)) {
        return Err(inval(format!("{name} is more than {RATE_MAX} Mbit/s")));
    }
    Ok(Wish {
        mac: mac.transpose()?,
        vlan: vlan(written).map_err(inval)?,
        max_tx_mbps: written.max_tx_rate,
        min_tx_mbps: written.min_tx_rate,
        spoof_check: written.spoofchk,
        trust: written.trust,
        link_state: written.state,
    })
}

/// As in `ip link`, what is not said of a VLAN is 0 and 802.1Q.
fn vlan(written: &Written) -> Result<Option<Option<Vlan>>, String> {
    let Some(id) = written.vlan else {
        return match (written.qos, written.proto) {
            (None, None) => Ok(None),
            _ => Err("qos and proto are of a VLAN, and vlan is missing".into()),
        };
    };
    let (qos, proto) = (written.qos.unwrap_or(0), written.proto.unwrap_or_default());
    match id {
        0 if qos == 0 && written.proto.is_none_or(|proto| proto == VlanProto::Dot1q) => {
            Ok(Some(None))
        }
        0 => Err("qos and proto are of a VLAN, and vlan 0 is none".into()),
        1..=4094 if qos <= 7 => Ok(Some(Some(Vlan { id, qos, proto }))),
        1..=4094 => Err(format!("qos {qos} is more than 7")),
        _ => Err(format!("vlan {id} is more than 4094")),
    }
}

/// The answer to a request, as a line.
pub(crate) fn answer(id: u64, result: Result<Value, Refusal>) -> Vec<u8> {
    let answer = match result {
        Ok(result) => json!({"v": VERSION, "id": id, "result": result}),
        Err(Refusal { errno, text }) => {
            let error = json!({"errno": errno.code(), "name": errno.name(), "text": text});
            json!({"v": VERSION, "id": id, "error": error})
        }
    };
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

//! Protocol of the channel: one JSON object a line in each direction, specified in
//! `docs/guest-control.md`.

use model::state::{LinkState, MacText, Vlan, VlanProto};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{Errno, GuestError};
use super::line::Line;
use super::request::{ReceivedRequest, Request};
use super::setting::SettingsChange;

/// Protocol version.
pub(crate) const VERSION: u64 = 1;
/// Longest request in bytes, without the newline.
pub(crate) const LINE_MAX: usize = 4096;
/// Highest rate in Mbit/s, as in the document.
const RATE_MAX: u32 = 1_000_000;

/// A request as sent. `null` counts as absent.
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

/// Parses a line; an overlong one is rejected.
pub(super) fn read_line(line: Line) -> ReceivedRequest {
    match line {
        Line::Whole(bytes) => read(&bytes),
        Line::TooLong => {
            let text = format!("a request has at most {LINE_MAX} bytes");
            ReceivedRequest { id: 0, what: Err(GuestError::new(Errno::MsgSize, text)) }
        }
    }
}

/// Parses the bytes of a line.
pub(crate) fn read(line: &[u8]) -> ReceivedRequest {
    let value = match model::json::parse(line) {
        Ok(value) => value,
        Err(error) => {
            let text: String = format!("this line {error}").chars().take(200).collect();
            return ReceivedRequest { id: 0, what: Err(GuestError::new(Errno::Proto, text)) };
        }
    };
    let id = value["id"].as_u64().unwrap_or(0);
    ReceivedRequest { id, what: request(value) }
}

fn request(value: Value) -> Result<Request, GuestError> {
    // Fields of other versions are unknown.
    if let Some(version) = value["v"].as_u64().filter(|version| *version != VERSION) {
        let text = format!("version {version} is not supported; use version {VERSION}");
        return Err(GuestError::new(Errno::ProtoNoSupport, text));
    }
    let written: Written = serde_json::from_value(value).map_err(|error| {
        let text: String = error.to_string().chars().take(200).collect();
        GuestError::new(Errno::Proto, format!("not a request: {text}"))
    })?;
    let inval = |text: &str| Err(GuestError::new(Errno::Inval, text));
    let change = change(&written)?;
    if written.op != Op::Set && !change.is_empty() {
        return inval("only set takes settings");
    }
    match (written.op, written.vf) {
        (Op::Hello, None) => Ok(Request::Hello),
        (Op::Hello, Some(_)) => inval("hello takes no vf"),
        (Op::List, vf) => Ok(Request::List(vf)),
        (Op::Set | Op::Reset, None) => inval("vf is missing"),
        (Op::Set, Some(_)) if change.is_empty() => inval("set without a setting"),
        (Op::Set, Some(vf)) => Ok(Request::Set(vf, change)),
        (Op::Reset, Some(vf)) => Ok(Request::Reset(vf)),
    }
}

fn change(written: &Written) -> Result<SettingsChange, GuestError> {
    let inval = |text: String| GuestError::new(Errno::Inval, text);
    let mac = written.mac.as_deref().map(|text| {
        let parsed = text.parse::<MacText>();
        parsed
            .map_err(|_| inval("mac is not a unicast MAC address such as 02:00:00:00:00:01".into()))
    });
    let rates = [("max_tx_rate", written.max_tx_rate), ("min_tx_rate", written.min_tx_rate)];
    if let Some((name, _)) = rates.iter().find(|(_, rate)| rate.is_some_and(|it| it > RATE_MAX)) {
        return Err(inval(format!("{name} is more than {RATE_MAX} Mbit/s")));
    }
    Ok(SettingsChange {
        mac: mac.transpose()?,
        vlan: vlan(written).map_err(inval)?,
        max_tx_mbps: written.max_tx_rate,
        min_tx_mbps: written.min_tx_rate,
        spoof_check: written.spoofchk,
        trust: written.trust,
        link_state: written.state,
    })
}

/// As in `ip link`, absent parts of a VLAN are 0 and 802.1Q.
fn vlan(written: &Written) -> Result<Option<Option<Vlan>>, String> {
    let Some(id) = written.vlan else {
        return match (written.qos, written.proto) {
            (None, None) => Ok(None),
            _ => Err("qos and proto need vlan".into()),
        };
    };
    let (qos, proto) = (written.qos.unwrap_or(0), written.proto.unwrap_or_default());
    match id {
        0 if qos == 0 && written.proto.is_none_or(|proto| proto == VlanProto::Dot1q) => {
            Ok(Some(None))
        }
        0 => Err("qos and proto need a vlan other than 0".into()),
        1..=4094 if qos <= 7 => Ok(Some(Some(Vlan { id, qos, proto }))),
        1..=4094 => Err(format!("qos {qos} is more than 7")),
        _ => Err(format!("vlan {id} is more than 4094")),
    }
}

/// Response line.
pub(crate) fn answer(id: u64, result: Result<Value, GuestError>) -> Vec<u8> {
    let answer = match result {
        Ok(result) => json!({"v": VERSION, "id": id, "result": result}),
        Err(GuestError { errno, text }) => {
            let error = json!({"errno": errno.code(), "name": errno.name(), "text": text});
            json!({"v": VERSION, "id": id, "error": error})
        }
    };
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

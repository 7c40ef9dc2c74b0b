//! From flags to a merge patch (RFC 7396).

use model::state::{Attachment, AttachmentKind, Problem};
use serde_json::{Map, Value, json};

use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;

/// A merge patch under construction.
#[derive(Debug, Default)]
pub(super) struct Patch(Map<String, Value>);

impl Patch {
    /// Sets a field if its flag was given; `path` separates its parts by dots.
    pub(super) fn set(mut self, path: &str, value: Option<impl Into<Value>>) -> Patch {
        let Some(value) = value.map(Into::into) else {
            return self;
        };
        let mut fields = &mut self.0;
        let (above, name) = path.rsplit_once('.').map_or((None, path), |(a, n)| (Some(a), n));
        for part in above.into_iter().flat_map(|above| above.split('.')) {
            let entry = fields.entry(part).or_insert_with(|| json!({}));
            if !entry.is_object() {
                *entry = json!({}); // it was null, and has a field now
            }
            let Value::Object(inner) = entry else {
                return self;
            };
            fields = inner;
        }
        fields.insert(name.to_owned(), value);
        self
    }

    /// Sets an attachment, if its flag was given: `kind:target`, and further fields as
    /// `NAME=VALUE`, lists with commas; `none` removes one. An invalid value is passed on, and the
    /// daemon reports the error.
    pub(super) fn attachment(self, field: &str, short: Option<&str>, options: &[String]) -> Patch {
        let table = short.and_then(Attachment::table_of);
        let mut patch = match (table, short) {
            (Some(Value::Object(table)), _) => {
                table.into_iter().fold(self, |patch, (name, value)| {
                    patch.set(&format!("{field}.{name}"), Some(value))
                })
            }
            (_, short) => self.set(field, short),
        };
        let fields = Fields::of("Attachment");
        for option in options {
            let (name, text) = option.split_once('=').unwrap_or((option, "true"));
            let is_list = text != "none" && fields.is_array(name);
            let value = if is_list { list(text) } else { scalar(text) };
            patch = patch.set(&format!("{field}.{name}"), Some(value));
        }
        patch
    }

    /// Sets a vhost-user socket as attachment, if its flag was given.
    pub(super) fn socket(self, field: &str, path: Option<&str>) -> Patch {
        self.set(&format!("{field}.kind"), path.map(|_| AttachmentKind::VhostUser.word()))
            .set(&format!("{field}.socket"), path)
    }

    /// Returns `true` if no flag was given.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patch of an object as a document; an empty one is rejected.
    pub(super) fn finish_for(self, object: String) -> Result<Value, UsageError> {
        if self.is_empty() {
            let problem = Problem::new("", (), "gets no setting to change", "give one; see --help");
            return Err(problem.of(object).into());
        }
        Ok(self.finish())
    }

    pub(super) fn finish(self) -> Value {
        Value::Object(self.0)
    }
}

/// A number for the daemon, which checks its range. Any other text is passed on too, so that the
/// daemon's error names the object, the field and the allowed values.
#[derive(Debug, Clone)]
pub(super) struct Number(Value);

impl Number {
    /// Returns `true` for `none` and 0, which remove a setting such as a VLAN.
    pub(super) fn is_none(&self) -> bool {
        self.0 == 0 || self.0 == "none"
    }

    /// Null for `none` and 0.
    pub(super) fn or_none(self) -> Value {
        if self.is_none() { Value::Null } else { self.0 }
    }
}

impl std::str::FromStr for Number {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Number, Self::Err> {
        let number = serde_json::from_str(text).ok().filter(Value::is_number);
        Ok(Number(number.unwrap_or_else(|| text.into())))
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Value {
        number.0
    }
}

/// `on` or `off`, the words of `ip link` and PowerShell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnOff {
    On,
    Off,
}

impl From<OnOff> for Value {
    fn from(word: OnOff) -> Value {
        Value::from(word == OnOff::On)
    }
}

/// Help for a flag that takes an attachment in its short form.
pub(super) fn attachment_help(of: &str) -> String {
    let forms = AttachmentKind::ALL.map(|kind| format!("{kind}:{}", kind.place_field()));
    format!("{of}: one of {}", forms.join(", "))
}

/// VLAN of untagged frames.
#[derive(Debug, clap::Args)]
pub(super) struct VlanFlags {
    /// Make it an access port of this VLAN, 1 to 4094; with trunks, the VLAN of untagged frames;
    /// none or 0 for no VLAN.
    #[arg(long, value_name = "ID")]
    vlan: Option<Number>,
    /// Priority in the VLAN tag, 0 to 7.
    #[arg(long, value_name = "PCP")]
    qos: Option<Number>,
    /// Tag protocol: 802.1q or 802.1ad.
    #[arg(long, value_name = "PROTO", add = complete::one_of("VlanProto"))]
    proto: Option<String>,
}

impl VlanFlags {
    pub(super) fn patch(&self, patch: Patch) -> Patch {
        let none = self.vlan.as_ref().is_some_and(Number::is_none);
        patch
            .set("vlan", none.then_some(Value::Null))
            .set("vlan.id", self.vlan.clone().filter(|_| !none))
            .set("vlan.qos", self.qos.clone())
            .set("vlan.proto", self.proto.as_deref())
    }
}

/// Minimum and maximum rates.
#[derive(Debug, clap::Args)]
pub(super) struct RateFlags {
    /// Guaranteed rate, Mbit/s; 0 for none. The maximum stays unchanged.
    #[arg(long, value_name = "MBPS")]
    min_tx_mbps: Option<Number>,
    /// Maximum rate, Mbit/s; 0 for no limit. The minimum stays unchanged.
    #[arg(long, value_name = "MBPS")]
    max_tx_mbps: Option<Number>,
}

impl RateFlags {
    pub(super) fn patch(&self, patch: Patch) -> Patch {
        patch
            .set("min_tx_mbps", self.min_tx_mbps.clone())
            .set("max_tx_mbps", self.max_tx_mbps.clone())
    }
}

/// Settings of a VF, which an adapter keeps on all paths.
#[derive(Debug, clap::Args)]
pub(super) struct FunctionFlags {
    /// Further addresses to receive and send from, separated by commas; none for none.
    #[arg(long, value_name = "MACS")]
    macs: Option<String>,
    #[command(flatten)]
    vlan: VlanFlags,
    /// VLANs that the guest may tag, such as 5,100-199; none for none.
    #[arg(long, value_name = "VLANS")]
    trunks: Option<String>,
    /// Drop frames with other source addresses or VLANs than its own.
    #[arg(long)]
    spoof_check: Option<OnOff>,
    /// Let the guest change its address and receive modes.
    #[arg(long)]
    trust: Option<OnOff>,
    /// Deliver frames of its VLANs with unknown destinations; requires trust.
    #[arg(long)]
    promiscuous: Option<OnOff>,
    /// Link state for the guest: auto, enable or disable.
    #[arg(long, value_name = "STATE", add = complete::one_of("LinkState"))]
    link_state: Option<String>,
    #[command(flatten)]
    rates: RateFlags,
    /// Share of a lane's time under contention, 1 to 100.
    #[arg(long, value_name = "W")]
    tx_weight: Option<Number>,
    /// Maximum broadcast and multicast frames a second from the guest; 0 for no limit.
    #[arg(long, value_name = "PPS")]
    storm_limit_pps: Option<Number>,
    #[command(flatten)]
    mirror: MirrorFlags,
}

impl FunctionFlags {
    pub(super) fn patch(&self, patch: Patch) -> Patch {
        let patch = patch
            .set("macs", self.macs.as_deref().map(list))
            .set("trunks", self.trunks.as_deref().map(list))
            .set("spoof_check", switched(self.spoof_check))
            .set("trust", switched(self.trust))
            .set("promiscuous", switched(self.promiscuous))
            .set("link_state", self.link_state.as_deref())
            .set("tx_weight", self.tx_weight.clone())
            .set("storm_limit_pps", self.storm_limit_pps.clone());
        self.mirror.patch(self.rates.patch(self.vlan.patch(patch)))
    }
}

/// Mirroring of frames.
#[derive(Debug, clap::Args)]
pub(super) struct MirrorFlags {
    /// Mirror its frames to this adapter.
    #[arg(long, value_name = "ADAPTER", conflicts_with_all = ["mirror_file", "no_mirror"],
        add = complete::adapter())]
    mirror_to: Option<String>,
    /// Mirror its frames to this pcapng file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_mirror")]
    mirror_file: Option<String>,
    /// Direction of mirrored frames, seen from the guest: rx, tx or both.
    #[arg(long, value_name = "DIRECTION", add = complete::one_of("MirrorDirection"))]
    mirror_direction: Option<String>,
    /// Stop mirroring.
    #[arg(long)]
    no_mirror: bool,
}

impl MirrorFlags {
    pub(super) fn patch(&self, mut patch: Patch) -> Patch {
        let new = self.mirror_to.is_some() || self.mirror_file.is_some();
        if new {
            // The other target is removed; fields without a flag get their default.
            let direction = self.mirror_direction.as_deref().unwrap_or("both");
            let other = if self.mirror_to.is_some() { "mirror.file" } else { "mirror.adapter" };
            patch = patch.set("mirror.direction", Some(direction)).set(other, Some(Value::Null));
        }
        patch
            .set("mirror", self.no_mirror.then_some(Value::Null))
            .set("mirror.adapter", self.mirror_to.as_deref())
            .set("mirror.file", self.mirror_file.as_deref())
            .set("mirror.direction", self.mirror_direction.as_deref().filter(|_| !new))
    }
}

/// Parses a number, `true`, `false`, or `none` as null; all else is a text.
fn scalar(text: &str) -> Value {
    let value = serde_json::from_str(if text == "none" { "null" } else { text }).ok();
    let value = value.filter(|it: &Value| it.is_number() || it.is_boolean() || it.is_null());
    value.unwrap_or_else(|| text.into())
}

/// Parses `5,100-199` as the list in the document; `none` as an empty one.
pub(super) fn list(text: &str) -> Value {
    match text {
        "none" => json!([]),
        items => items.split(',').map(|item| Value::from(item.trim())).collect(),
    }
}

/// A name, or null for `none`.
pub(super) fn or_none(name: &str) -> Value {
    if name == "none" { Value::Null } else { name.into() }
}

/// Converts an on/off flag.
pub(super) fn switched(word: Option<OnOff>) -> Option<Value> {
    word.map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_given_are_not_in_the_patch() {
        let patch =
            Patch::default().set("a", None::<u64>).set("b.c", Some(1)).set("b.d", Some("x"));
        assert_eq!(patch.finish(), json!({"b": {"c": 1, "d": "x"}}));
        assert!(Patch::default().set("a", None::<u64>).is_empty());
    }

    #[test]
    fn no_vlan_is_written_as_none_or_0() {
        let number = |text: &str| text.parse::<Number>().ok();
        let flags = |vlan, qos| VlanFlags { vlan, qos, proto: None };
        let patch = |flags: VlanFlags| flags.patch(Patch::default()).finish();
        assert_eq!(patch(flags(number("none"), None)), json!({"vlan": null}));
        assert_eq!(patch(flags(number("0"), None)), json!({"vlan": null}));
        let both = flags(number("7"), number("3"));
        assert_eq!(patch(both), json!({"vlan": {"id": 7, "qos": 3}}));
        assert_eq!(patch(flags(None, number("3"))), json!({"vlan": {"qos": 3}}));
    }

    #[test]
    fn an_attachment_is_its_kind_and_place_and_options() {
        let options = [
            "zero_copy=require".to_owned(),
            "filter=true".to_owned(),
            "busy_poll_us=20".to_owned(),
        ];
        let patch = |short: Option<&str>, options: &[String]| {
            Patch::default().attachment("uplink", short, options).finish()
        };
        assert_eq!(
            patch(Some("xdp:eth1"), &options),
            json!({"uplink": {"kind": "xdp", "interface": "eth1", "zero_copy": "require",
                "filter": true, "busy_poll_us": 20}})
        );
        assert_eq!(patch(None, &["netns=blue".to_owned()]), json!({"uplink": {"netns": "blue"}}));
        let lists = ["ip=192.0.2.1/24,2001:db8::1/64".to_owned(), "gateway=none".to_owned()];
        let lists_set = json!({"ip": ["192.0.2.1/24", "2001:db8::1/64"], "gateway": null});
        assert_eq!(patch(None, &lists), json!({"uplink": lists_set}));
        let unset = ["socket_group=none".to_owned(), "socket_mode=none".to_owned()];
        let null_fields = json!({"socket_group": null, "socket_mode": null});
        assert_eq!(patch(None, &unset), json!({"uplink": null_fields}));
        assert_eq!(patch(Some("eth1"), &[]), json!({"uplink": "eth1"}), "the daemon refuses it");
        assert!(Patch::default().attachment("uplink", None, &[]).is_empty());
    }

    #[test]
    fn the_help_names_every_kind_of_attachment() {
        let help = attachment_help("Attachment");
        AttachmentKind::ALL.iter().for_each(|kind| assert!(help.contains(kind.word()), "{help}"));
        assert!(help.contains("vduse:name"), "{help}");
    }

    #[test]
    fn lists() {
        assert_eq!(list("5, 100-199"), json!(["5", "100-199"]));
        assert_eq!(list("none"), json!([]));
        assert_eq!(list("5,"), json!(["5", ""]), "the daemon says what is wrong with it");
    }
}

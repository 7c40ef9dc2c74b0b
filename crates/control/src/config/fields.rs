//! The one table of all fields: from it come defaults, ranges, the lists in error texts, and the rows of
//! `docs/configuration.md` (a test compares them).

use std::fmt;

use model::profile::Profile;

/// A TOML table of the file.
pub(super) struct Section {
    /// How its header is written: `[lanes]`, `[[nic.vf]]`; empty for the top of the file.
    pub(super) header: &'static str,
    /// Its fields, in groups, because attachments share theirs.
    pub(super) groups: &'static [&'static [Field]],
}

impl Section {
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.groups.iter().copied().flatten()
    }

    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name)
    }

    /// Where its fields stand, for the middle of a sentence.
    pub(super) fn place(&self) -> String {
        match self.header {
            "" => "at the top of the file".to_owned(),
            header => format!("in {header}"),
        }
    }
}

/// One field.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) default: Default,
}

/// What may be written.
pub(super) enum Kind {
    /// A whole number from the first to the second, both included; the third is its unit, or empty.
    Int(u64, u64, &'static str),
    /// true or false.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name of a card profile.
    Profile,
    /// A text or a list that has rules of its own, which are these words.
    Special(&'static str),
    /// A table.
    Table(&'static Section),
    /// Any number of tables.
    Tables(&'static Section),
    /// Any number of tables with this header, whose fields are those of the state document and are checked there.
    Document(&'static str),
    /// An attachment as in the state document; the words are an example of its short form.
    Attachment(&'static str),
}

/// What holds if nothing is written.
pub(super) enum Default {
    /// That is an error.
    Required,
    Int(u64),
    Bool(bool),
    Word(&'static str),
    /// Something that the reader works out, in words.
    Computed(&'static str),
}

impl Kind {
    /// The words of a choice; none of other kinds.
    pub(super) fn words(&self) -> &'static [&'static str] {
        match self {
            Kind::Choice(words) => words,
            Kind::Profile => Profile::names(),
            _ => &[],
        }
    }
}

impl fmt::Display for Kind {
    /// What is allowed, to follow "write".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Int(min, max, "") => write!(f, "a whole number, {min} to {max}"),
            Kind::Int(min, max, unit) => write!(f, "a whole number of {unit}, {min} to {max}"),
            Kind::Bool => f.write_str("true or false"),
            Kind::Choice(_) | Kind::Profile => {
                for (i, word) in self.words().iter().enumerate() {
                    write!(f, "{}\"{word}\"", if i > 0 { " or " } else { "" })?;
                }
                Ok(())
            }
            Kind::Special(words) => f.write_str(words),
            Kind::Table(section) => write!(f, "one table with the header {}", section.header),
            Kind::Tables(section) => write!(f, "tables, each with the header {}", section.header),
            Kind::Document(header) => write!(f, "tables, each with the header {header}"),
            Kind::Attachment(example) => {
                write!(f, "a kind and its place in quotes, such as \"{example}\", or a table")
            }
        }
    }
}

impl fmt::Display for Default {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Default::Required => f.write_str("required"),
            Default::Int(number) => write!(f, "{number}"),
            Default::Bool(value) => write!(f, "{value}"),
            Default::Word(word) => write!(f, "\"{word}\""),
            Default::Computed(words) => f.write_str(words),
        }
    }
}

use Default::{Bool as DefaultBool, Computed, Int as DefaultInt, Required, Word};
use Kind::{Attachment, Bool, Choice, Document, Int, Special, Table, Tables};

const fn field(name: &'static str, kind: Kind, default: Default) -> Field {
    Field { name, kind, default }
}

#[rustfmt::skip] // One row a field; a table reads best as one.
mod rows {
    use super::*;

    pub(in super::super) static ROOT: Section = Section { header: "", groups: &[&[
        field("run_dir", Special("an absolute path in quotes, such as \"/run/shunt\""),
            Computed("`$XDG_RUNTIME_DIR/shunt`, else `/run/shunt` for root, else `/tmp/shunt-UID`")),
        field("state_dir", Special("an absolute path in quotes, such as \"/var/lib/shunt\""), Computed("none")),
        field("api", Table(&API), Computed("its defaults")),
        field("lanes", Table(&LANES), Computed("its defaults")),
        field("limits", Table(&LIMITS), Computed("its defaults")),
        field("nic", Tables(&NIC), Computed("none")),
        field("switch", Document("[[switch]]"), Computed("none")),
        field("adapter", Document("[[adapter]]"), Computed("none")),
        field("vpf", Document("[[vpf]]"), Computed("none")),
    ]] };

    pub(in super::super) static API: Section = Section { header: "[api]", groups: &[&[
        field("enabled", Bool, DefaultBool(true)),
        field("socket", Special("a path in quotes, such as \"api.sock\""), Computed("`api.sock` in `run_dir`")),
        field("tcp", Special("an IP address and port in quotes, such as \"127.0.0.1:8080\" or \"[::1]:8080\""),
            Computed("none")),
        field("token_file", Special("an absolute path in quotes, such as \"/etc/shunt/token\""), Computed("none")),
        field("tls_certificate", Special("an absolute path in quotes, such as \"/etc/shunt/certificate.pem\""),
            Computed("none")),
        field("tls_key", Special("an absolute path in quotes, such as \"/etc/shunt/key.pem\""), Computed("none")),
    ]] };

    pub(in super::super) static LANES: Section = Section { header: "[lanes]", groups: &[&[
        field("cpus", Special("a list of 1 to 64 different CPU numbers such as [2, 3], each 0 to 1023"),
            Computed("one lane, not pinned")),
        field("poll_us", Int(0, 1_000_000, "microseconds"), DefaultInt(50)),
        field("yield_us", Int(0, 1_000_000, "microseconds"), DefaultInt(50)),
        field("sleep", Bool, DefaultBool(true)),
        field("cpu_latency_us", Int(0, 1_000_000, "microseconds"), Computed("none: the machine is left alone")),
    ]] };

    pub(in super::super) static LIMITS: Section = Section { header: "[limits]", groups: &[&[
        field("session_memory_mib", Int(1, 134_217_728, "MiB"), Computed("the machine's memory")),
        field("guest_memory_mib", Int(1, 134_217_728, "MiB"), Computed("64 times the machine's memory, at most 64 TiB")),
    ]] };

    pub(in super::super) static NIC: Section = Section { header: "[[nic]]", groups: &[&[
        field("name", Special("1 to 15 of the characters a-z, 0-9 and -, in quotes"), Required),
        field("kind", Choice(&["soft"]), Required),
        field("profile", Kind::Profile, Word("ideal")),
        field("mode", Choice(&["legacy", "switchdev"]), Word("legacy")),
        field("bridging", Choice(&["veb", "vepa", "isolated"]), Word("veb")),
        field("total_vfs", Int(0, 255, ""), Computed("the number of `[[nic.vf]]` tables")),
        field("budget_permille", Int(0, 1_000_000, ""), DefaultInt(0)),
        field("vmq_queues", Int(0, 255, ""), DefaultInt(64)),
        field("uplink", Attachment("xdp:eth1"), Computed("none")),
        field("pf", Table(&PF), Computed("none")),
        field("vf", Tables(&VF), Computed("none")),
        field("representor", Document("[[nic.representor]]"), Computed("none")),
        field("rule", Document("[[nic.rule]]"), Computed("none")),
    ]] };

    pub(in super::super) static PF: Section = Section { header: "[nic.pf]", groups: &[FUNCTION, SOCKET] };

    pub(in super::super) static VF: Section = Section { header: "[[nic.vf]]", groups: &[&[
        field("index", Int(0, 254, ""), Computed("the table's position, from 0")),
    ], FUNCTION, SOCKET] };

    const FUNCTION: &[Field] = &[
        field("mac", Special("a unicast MAC address in quotes, six hex pairs such as \"02:00:00:00:00:01\""),
            Required),
        field("macs", Special("a list of at most 4096 unicast MAC addresses such as [\"02:00:00:00:00:01\"]"),
            Computed("[]")),
        field("vlan", Int(1, 4094, ""), Computed("none: untagged")),
        field("vlan_qos", Int(0, 7, ""), DefaultInt(0)),
        field("vlan_protocol", Choice(&["802.1Q", "802.1ad"]), Word("802.1Q")),
        field("trunk", Special("a list of VLANs such as [10, 20], each 1 to 4094"), Computed("[]")),
        field("spoof_check", Bool, DefaultBool(true)),
        field("trust", Bool, DefaultBool(false)),
        field("promiscuous", Bool, DefaultBool(false)),
        field("link_state", Choice(&["auto", "enable", "disable"]), Word("auto")),
        field("weight", Int(1, 100, ""), DefaultInt(10)),
        field("min_tx_mbps", Int(0, 1_000_000, "Mbit/s"), DefaultInt(0)),
        field("max_tx_mbps", Int(0, 1_000_000, "Mbit/s"), DefaultInt(0)),
        field("storm_limit", Int(0, 10_000_000, "frames a second"), DefaultInt(0)),
    ];

    const SOCKET: &[Field] = &[
        field("attachment", Attachment("tap:web0"), Computed("the fields that follow")),
        field("socket", Special("a path in quotes, such as \"vf0.sock\""), Computed("required without `attachment`")),
        field("mode", Choice(&["server", "client"]), Word("server")),
        field("queue_pairs", Int(1, 16, ""), DefaultInt(1)),
        field("mtu", Int(68, 65535, "bytes"), DefaultInt(1500)),
        field("mergeable", Bool, DefaultBool(true)),
        field("indirect", Bool, DefaultBool(true)),
        field("event_index", Bool, DefaultBool(true)),
        field("in_order", Bool, DefaultBool(false)),
        field("packed", Bool, DefaultBool(true)),
        field("offload", Bool, DefaultBool(true)),
    ];
}
pub(super) use rows::{API, LANES, LIMITS, NIC, PF, ROOT, VF};

/// One entry of `cpus`; 1024 is what Linux's usual CPU set holds.
pub(super) static CPU: Field = field("cpus", Int(0, 1023, ""), Required);

/// One entry of `trunk`.
pub(super) static TRUNK_VLAN: Field = field("trunk", Int(1, 4094, ""), Required);

/// The socket of an attachment that is a table of its own.
pub(super) static SOCKET: Field =
    field("socket", Special("a path in quotes, such as \"vf0.sock\""), Required);

/// Every section, in the order of the documentation.
pub(super) static SECTIONS: [&Section; 7] = [&ROOT, &API, &LANES, &LIMITS, &NIC, &PF, &VF];

//! Attachments in the document: a table with `kind` and the fields of that kind, or the short form,
//! a text `kind:place`. Both are read; the table with all defaults is stored and shown.

#[macro_use]
mod declare;
mod kinds;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{State, text};

pub use kinds::*;

impl AttachmentKind {
    /// The kind of that name.
    pub fn of(word: &str) -> Option<AttachmentKind> {
        AttachmentKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Attachment {
    /// The short form as a table; `None` if it does not begin with a kind.
    pub fn table_of(short: &str) -> Option<Value> {
        let (kind, place) = short.split_once(':')?;
        let field = AttachmentKind::of(kind)?.place_field();
        Some(json!({"kind": kind, field: place}))
    }

    /// Path of its socket, if any.
    pub fn socket(&self) -> Option<&str> {
        (self.kind().place_field() == "socket").then(|| self.place())
    }

    /// `true` for the interface of a VF, which is no port of the daemon.
    pub fn is_vf(&self) -> bool {
        matches!(self, Attachment::VfInterface(_))
    }

    /// Its interface, if any, and the path of the interface's namespace; none for the daemon's own.
    pub fn interface(&self) -> Option<(&str, Option<String>)> {
        let netns = match self {
            Attachment::Tap(tap) => &tap.netns,
            Attachment::Packet(packet) => &packet.netns,
            Attachment::Xdp(xdp) => &xdp.netns,
            Attachment::VfInterface(vf) => &vf.netns,
            Attachment::VhostUser(_)
            | Attachment::Stream(_)
            | Attachment::Pcap(_)
            | Attachment::Vduse(_) => return None,
        };
        Some((self.place(), netns.as_deref().map(netns_path)))
    }
}

/// Path of a network namespace, given as a path or as a name of `ip netns`.
fn netns_path(written: &str) -> String {
    if written.starts_with('/') { written.to_owned() } else { format!("/run/netns/{written}") }
}

impl State {
    /// Attachments of the document: of uplinks, PFs, representors and adapters.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let of_nics = self.nics.iter().flat_map(|nic| {
            let representors = nic.representors.iter().map(|it| &it.attachment);
            nic.uplink.iter().chain(nic.pf.iter().map(|pf| &pf.attachment)).chain(representors)
        });
        of_nics.chain(self.adapters.iter().map(|adapter| &adapter.attachment))
    }

    /// Captures that the document plays.
    pub fn played(&self) -> impl Iterator<Item = &str> {
        let played = |attachment: &&Attachment| matches!(attachment, Attachment::Pcap(_));
        self.attachments().filter(played).map(Attachment::place)
    }
}

impl Default for AttachmentKind {
    fn default() -> AttachmentKind {
        AttachmentKind::ALL[0]
    }
}

impl fmt::Display for AttachmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Attachment {
    /// Short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.place())
    }
}

impl Serialize for Attachment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Attachment::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(table) = value.as_str().and_then(Attachment::table_of) {
            value = table;
        }
        if let Some(fields) = value.as_object_mut() {
            fields.entry("kind").or_insert_with(|| AttachmentKind::default().word().into());
        }
        Attachment::deserialize(value).map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Attachment {
    fn schema() -> RefOr<Schema> {
        let description = "How a guest reaches its adapter, or the wire its uplink: a table with the fields of its \
            kind, or the short form, the kind and its place with a colon between them.";
        let tables = AttachmentKind::ALL.into_iter().map(table_schema);
        let either = OneOfBuilder::new().item(text::attachment());
        let either = tables.fold(either, OneOfBuilder::item);
        either.description(Some(description)).into()
    }
}

/// Schema of a kind: its fields and its name.
fn table_schema(kind: AttachmentKind) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut table)) = kind.fields() else {
        unreachable!("a kind's fields are those of a struct");
    };
    let word = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Kind of attachment."))
        .enum_values(Some([kind.word()]));
    if kind == AttachmentKind::default() {
        let word = word.default(Some(kind.word().into()));
        table.properties.insert("kind".to_owned(), word.into());
    } else {
        table.properties.insert("kind".to_owned(), word.into());
        table.required.insert(0, "kind".to_owned());
    }
    RefOr::T(Schema::Object(table))
}

impl ToSchema for Attachment {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        kinds::schemas(schemas);
    }
}

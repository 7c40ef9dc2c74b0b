//! Attachments: the fields of a vhost-user socket, which stand among a function's own, or whatever the state document has.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::de::DeValue;

use super::super::MAX_SOCKET_PATH_BYTES;
use super::super::error::Report;
use super::super::fields::SOCKET as SOCKET_FIELD;
use super::super::place::{Place, locate};
use super::super::table::Table;
use super::super::value::{Given, Item};
use super::Reader;
use super::document::{json, told};
use crate::state::{Attachment, AttachmentKind, Problem, SocketMode, VhostUser, shape};

/// The fields that `attachment` stands for.
const SOCKET: [&str; 9] = [
    "socket",
    "mode",
    "queue_pairs",
    "mtu",
    "mergeable",
    "indirect",
    "event_index",
    "in_order",
    "packed",
];

impl Reader {
    /// `Some(None)` for a NIC without one, `None` for one with a mistake.
    pub(super) fn uplink(&mut self, table: &Table<'_>) -> Option<Option<Attachment>> {
        match table.item("uplink") {
            Given::Value(item) => self.of_document(table, "uplink", &item).map(Some),
            Given::Absent => Some(None),
            Given::Bad => None,
        }
    }

    /// What a guest has: `attachment`, or the fields of a vhost-user socket.
    pub(super) fn attachment(&mut self, table: &Table<'_>) -> Option<Attachment> {
        if let Given::Value(item) = table.item("attachment") {
            for name in SOCKET {
                if let Given::Value(other) = table.item(name) {
                    table.refuse(
                        &other,
                        "is beside `attachment`, which has all of that; leave it out",
                    );
                }
            }
            return self.of_document(table, "attachment", &item);
        }
        if let Given::Absent = table.item("socket") {
            let kind = &table.field("socket").kind;
            let message = format!("is missing; write {kind}, or another attachment");
            table.report.error(table.at, table.path_of("socket"), message);
        }
        let socket = self.socket(table);
        let mode = table.choice("mode").map(|word| match word {
            "client" => SocketMode::Client,
            _ => SocketMode::Server,
        });
        let (queue_pairs, mtu) = (table.int("queue_pairs"), table.int("mtu"));
        let [mergeable, indirect, event_index, in_order, packed, offload] =
            ["mergeable", "indirect", "event_index", "in_order", "packed", "offload"]
                .map(|name| table.bool(name));
        Some(Attachment::VhostUser(VhostUser {
            // The file is UTF-8, and a run directory that is not was refused.
            socket: socket?.to_string_lossy().into_owned(),
            mode: mode?,
            queue_pairs,
            mtu,
            mergeable,
            indirect,
            event_index,
            in_order,
            packed,
            offload,
        }))
    }

    /// One that is written as in the state document, but that its socket may be below the run directory.
    fn of_document(
        &mut self,
        table: &Table<'_>,
        name: &str,
        item: &Item<'_>,
    ) -> Option<Attachment> {
        let (report, errors) = (table.report, table.report.errors());
        if !matches!(item.value, DeValue::String(_) | DeValue::Table(_)) {
            return table.wrong_type(table.field(name), item).value();
        }
        let mut value = json(report, (item.value, item.span.clone()), &item.path);
        if let Some(long) = value.as_str().and_then(Attachment::table_of) {
            value = long;
        }
        if let Some(socket) = socket_of(&mut value) {
            let written = socket.as_str().unwrap_or_default().to_owned();
            let place = within(item, "socket");
            let path = self.socket_at(table, &written, place)?;
            *socket = path.to_string_lossy().into_owned().into();
        }
        if let Err(problems) = shape::check("Attachment", &value, &item.path) {
            for problem in &problems.problems {
                tell(report, item, problem);
            }
            report.not_shown(problems.more);
        }
        if report.errors() > errors {
            return None;
        }
        serde_json::from_value(value).ok()
    }

    /// The path of a socket, which no other field of the file has.
    pub(super) fn socket(&mut self, table: &Table<'_>) -> Option<PathBuf> {
        let (text, item) = table.text("socket").value()?;
        self.socket_at(table, text, item)
    }

    /// A socket's path as written, and where it stands.
    fn socket_at(&mut self, table: &Table<'_>, text: &str, item: Item<'_>) -> Option<PathBuf> {
        let field = if table.knows("socket") { table.field("socket") } else { &SOCKET_FIELD };
        let last = text.rsplit('/').next().unwrap_or_default();
        if ["", ".", ".."].contains(&last) || text.contains('\0') {
            table.refuse_as(field, &item, "is not the path of a socket");
            return None;
        }
        let path = self.run_dir.join(text);
        let bytes = path.as_os_str().as_bytes().len();
        if bytes > MAX_SOCKET_PATH_BYTES {
            let (with, or) = match Path::new(text).is_absolute() {
                true => ("", ""),
                false => (" with run_dir before it", " or run_dir"),
            };
            let problem = format!(
                "is {bytes} bytes long{with}; a socket's path has at most {MAX_SOCKET_PATH_BYTES}, so shorten it{or}"
            );
            table.refuse(&item, &problem);
            return None;
        }
        if self.own_files.contains(&path) {
            table.refuse_as(field, &item, "is a file of the daemon's own, so choose another name");
            return None;
        }
        let words = table.report.quote(item.span.clone());
        let at = (item.path, item.span.start);
        let remedy = "give each attachment a socket of its own";
        self.sockets.claim(table.report, path.clone(), at, (&words, remedy));
        Some(path)
    }
}

/// The socket of an attachment of the document, if it has one and it is a text.
fn socket_of(attachment: &mut Value) -> Option<&mut Value> {
    let kind = attachment.get("kind").map_or(Some(AttachmentKind::default().word()), Value::as_str);
    let kind = AttachmentKind::of(kind?)?;
    let socket = attachment.get_mut("socket").filter(|socket| socket.is_string());
    socket.filter(|_| kind.place_field() == "socket")
}

/// A field of an attachment that is a table, or the whole where it is a text.
fn within<'a>(item: &Item<'a>, name: &str) -> Item<'a> {
    let found = match item.value {
        DeValue::Table(table) => table.get(name),
        _ => None,
    };
    let (value, span) =
        found.map_or((item.value, item.span.clone()), |value| (value.get_ref(), value.span()));
    Item { value, span, path: format!("{}.{name}", item.path) }
}

/// Tells what is wrong with an attachment, at its place in the file.
fn tell(report: &Report<'_>, item: &Item<'_>, problem: &Problem) {
    let below = problem.field.strip_prefix(&item.path).and_then(|rest| rest.strip_prefix('.'));
    let place = match item.value {
        DeValue::Table(table) => below.and_then(|field| locate(table, field)),
        _ => None,
    };
    let at = match place {
        Some(Place { name_at: Some(at), .. }) if problem.value.is_empty() => at,
        Some(Place { at, .. }) => at,
        None => item.span.start,
    };
    report.error(at, problem.field.clone(), told(problem, &problem.error));
}

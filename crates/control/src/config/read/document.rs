//! The state that a file describes: its NICs, and the tables that are written as in the state document.
//!
//! Those tables become JSON and go through the state's own rules together with what the NICs become there. What these
//! say of a field is told at the field's place in the file; a VF's adapter is called by its `[[nic.vf]]`.

use std::ops::Range;

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::super::desired;
use super::super::error::Report;
use super::super::model::Nic;
use super::super::place::{Place, locate};
use super::super::table::Table;
use super::super::value::{Item, text_of};
use super::Reader;
use crate::state::{AttachmentKind, Problem, State, VERSION};

impl Reader {
    /// The state, or `None` where something was wrong; it is in the report. Without the NICs (`None`) there is no
    /// telling what the tables mean, only whether they are tables.
    pub(super) fn state(
        &mut self,
        root: &Table<'_>,
        nics: Option<&[Nic]>,
        tree: &DeTable<'_>,
    ) -> Option<State> {
        let report = root.report;
        let errors = report.errors();
        let [switches, adapters, vpfs] =
            ["switch", "adapter", "vpf"].map(|name| root.plain_tables(name));
        let [switch_values, adapter_values, vpf_values] =
            [&switches, &adapters, &vpfs].map(|tables| values(report, tables));
        if report.errors() > errors {
            return None;
        }
        let nics = nics?;
        let of_vfs = desired::adapters(nics);
        let names = Names { tree, vfs: of_vfs.iter().map(|(at, _)| at.clone()).collect() };
        for (table, item) in &adapters {
            let claimed = of_vfs.iter().map(|(at, adapter)| (at.as_str(), adapter.name.as_str()));
            names.keep_apart(report, claimed, (table, item));
            self.adapter_socket(root, (table, item));
        }
        let of_vfs = of_vfs.into_iter().map(|(_, adapter)| json!(adapter));
        let adapters: Vec<Value> = of_vfs.chain(adapter_values).collect();
        let nics = self.nic_values(root, nics);
        if report.errors() > errors {
            return None;
        }
        let document = json!({
            "version": VERSION, "nic": nics, "switch": switch_values, "adapter": adapters,
            "vpf": vpf_values,
        });
        match State::parse(&document) {
            Ok(state) => Some(state),
            Err(problems) => {
                problems.problems.iter().for_each(|problem| names.tell(report, problem));
                report.not_shown(problems.more);
                None
            }
        }
    }

    /// The NICs, with those of their tables that are written as in the state document.
    fn nic_values(&mut self, root: &Table<'_>, nics: &[Nic]) -> Vec<Value> {
        let mut values: Vec<Value> =
            desired::nics(nics).into_iter().map(|nic| json!(nic)).collect();
        for (table, value) in root.tables("nic").iter().zip(&mut values) {
            for name in ["representor", "rule"] {
                let tables = table.plain_tables(name);
                value[name] = self::values(root.report, &tables).into();
                for (fields, item) in &tables {
                    self.adapter_socket(root, (fields, item));
                }
            }
        }
        values
    }

    /// The state's rules keep adapters' sockets apart; only this knows what else the daemon has in its directory, and
    /// that one path can be written in several ways.
    fn adapter_socket(&mut self, root: &Table<'_>, (table, item): (&DeTable<'_>, &Item<'_>)) {
        let Some(attachment) = table.get("attachment") else {
            return;
        };
        let (text, span) = match attachment.get_ref() {
            DeValue::Table(fields) => match fields.get("socket") {
                Some(socket) => (text_of(socket.get_ref()), socket.span()),
                None => return,
            },
            DeValue::String(short) => {
                let kind = short.split_once(':').and_then(|(kind, place)| {
                    let kind = AttachmentKind::of(kind)?;
                    (kind.place_field() == "socket").then_some(place)
                });
                (kind, attachment.span())
            }
            _ => return,
        };
        let Some(text) = text else {
            return;
        };
        let (path, field) = (text.into(), format!("{}.attachment.socket", item.path));
        let words = root.report.quote(span.clone());
        let at = span.start;
        if self.own_files.contains(&path) {
            let message = format!("{words} is a file of the daemon's own, so choose another name");
            root.report.error(at, field, message);
            return;
        }
        let remedy = "give each attachment a socket of its own";
        self.sockets.claim(root.report, path, (field, at), (&words, remedy));
    }
}

/// What the state's document calls things, and what they are called in the file.
struct Names<'a> {
    tree: &'a DeTable<'a>,
    /// The `[[nic.vf]]` of the first adapters; those of the file come after them.
    vfs: Vec<String>,
}

impl Names<'_> {
    /// Refuses an adapter's name that is also that of a VF's adapter, which the file does not show.
    fn keep_apart<'n>(
        &self,
        report: &Report<'_>,
        mut of_vfs: impl Iterator<Item = (&'n str, &'n str)>,
        (table, item): (&DeTable<'_>, &Item<'_>),
    ) {
        let Some(value) = table.get("name") else {
            return;
        };
        let name = text_of(value.get_ref());
        if let Some((vf, name)) = of_vfs.find(|(_, taken)| Some(*taken) == name) {
            let line = locate(self.tree, vf).map_or(0, |place| report.line(place.at));
            let message =
                format!("\"{name}\" is the adapter of {vf} (line {line}) already; choose another");
            report.error(value.span().start, format!("{}.name", item.path), message);
        }
    }

    /// Tells a problem of the document in the file's words, at the place that it is about.
    fn tell(&self, report: &Report<'_>, problem: &Problem) {
        let field = self.as_field(&self.in_file(&problem.field));
        let message = told(problem, &self.in_file(&problem.error));
        match locate(self.tree, &field) {
            Some(Place { name_at: Some(at), .. }) if problem.value.is_empty() => {
                report.error(at, field, message);
            }
            Some(Place { at, .. }) => report.error(at, field, message),
            None => report.error_of_file(&field, message),
        }
    }

    /// The fields of `[[nic]]` and below it have names of their own in the file.
    fn as_field(&self, path: &str) -> String {
        if !path.starts_with("nic[") {
            return path.to_owned();
        }
        let path = path.strip_suffix("].vf").map_or(path.to_owned(), |vf| format!("{vf}].index"));
        let (function, attachment) = path.split_once(".attachment").unwrap_or((&path, ""));
        let is_written = locate(self.tree, &format!("{function}.attachment"))
            .is_some_and(|place| place.name_at.is_some());
        let path = match is_written {
            true => path,
            false => format!("{function}{attachment}"),
        };
        let names = [
            (".trunks", ".trunk"),
            (".tx_weight", ".weight"),
            (".storm_limit_pps", ".storm_limit"),
        ];
        names.iter().fold(path, |path, (theirs, ours)| path.replace(theirs, ours))
    }

    /// The text with every `adapter[N]` as the file has it.
    fn in_file(&self, text: &str) -> String {
        const START: &str = "adapter[";
        let mut parts = text.split(START);
        let mut told = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let number = part.split_once(']').and_then(|(n, rest)| Some((n.parse().ok()?, rest)));
            match number {
                Some((n, rest)) => {
                    let n: usize = n;
                    match self.vfs.get(n) {
                        Some(vf) => told += vf,
                        None => told += &format!("{START}{}]", n - self.vfs.len()),
                    }
                    told += rest;
                }
                None => told = told + START + part,
            }
        }
        told
    }
}

/// A problem of the document, of which `error` is said, in a file's words.
pub(super) fn told(problem: &Problem, error: &str) -> String {
    let value = if problem.value.is_empty() { "" } else { " " };
    let message = format!("{}{value}{error}; {}", problem.value, problem.allowed);
    message.replace("write an object", "write a table")
}

/// Tables as JSON.
fn values(report: &Report<'_>, tables: &[(&DeTable<'_>, Item<'_>)]) -> Vec<Value> {
    tables.iter().map(|(table, item)| object(report, table, &item.path)).collect()
}

fn object(report: &Report<'_>, table: &DeTable<'_>, path: &str) -> Value {
    let fields = table.iter().map(|(key, value)| {
        let name = key.get_ref().to_string();
        let value = json(report, (value.get_ref(), value.span()), &format!("{path}.{name}"));
        (name, value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// A value as JSON. What JSON lacks is no value of any field, and told here.
/// A value that stands at `span`, as JSON.
pub(super) fn json(
    report: &Report<'_>,
    (value, span): (&DeValue<'_>, Range<usize>),
    path: &str,
) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(integer) => number(integer),
        DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(_) => {
            let words = report.quote(span.clone());
            let message = format!("{words} is a date or a time; write a text in quotes");
            report.error(span.start, path.to_owned(), message);
            Value::Null
        }
        DeValue::Array(items) => {
            let items = items.iter().enumerate();
            let json = |(i, item): (usize, &Spanned<DeValue<'_>>)| {
                json(report, (item.get_ref(), item.span()), &format!("{path}[{i}]"))
            };
            items.map(json).collect()
        }
        DeValue::Table(table) => object(report, table, path),
    }
}

/// Numbers beyond what JSON's readers hold are beyond every range, and stay so.
fn number(integer: &DeInteger<'_>) -> Value {
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
    match (u64::try_from(number), i64::try_from(number)) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) => Value::from(number),
        _ => Value::from(number as f64),
    }
}

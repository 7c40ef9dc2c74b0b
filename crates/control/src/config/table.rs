//! One TOML table under examination: typed access to its fields, every mistake noted on the way.
//!
//! Whatever is wrong is reported here and the caller goes on with a stand-in, so that one run finds everything. A
//! stand-in never reaches a [`Config`](super::Config), because a report with errors gives none.

use model::suggest;
use toml::de::{DeTable, DeValue};

use super::error::Report;
use super::fields::{Default, Field, Kind, SECTIONS, Section};
use super::value::{Given, Item, items_of, text_of, type_of};

/// A table with the section it stands for.
pub(super) struct Table<'a> {
    pub(super) report: &'a Report<'a>,
    section: &'static Section,
    table: &'a DeTable<'a>,
    /// Where its header is; the place of errors about what is missing.
    pub(super) at: usize,
    path: String,
}

impl<'a> Table<'a> {
    /// The top of the file.
    pub(super) fn root(
        report: &'a Report<'a>,
        section: &'static Section,
        table: &'a DeTable<'a>,
    ) -> Self {
        Self::new(report, section, table, 0, String::new())
    }

    fn new(
        report: &'a Report<'a>,
        section: &'static Section,
        table: &'a DeTable<'a>,
        at: usize,
        path: String,
    ) -> Self {
        let table = Table { report, section, table, at, path };
        table.refuse_unknown();
        table
    }

    /// The path of a field of this table.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Reports a mistake of `item`: its value as written, then `problem`.
    pub(super) fn refuse(&self, item: &Item<'a>, problem: &str) {
        let message = format!("{} {problem}", self.report.quote(item.span.clone()));
        self.report.error(item.span.start, item.path.clone(), message);
    }

    /// As [`refuse`](Self::refuse), with what the field allows as the remedy.
    pub(super) fn refuse_as(&self, field: &Field, item: &Item<'a>, problem: &str) {
        self.refuse(item, &format!("{problem}; write {}", field.kind));
    }

    /// Whether this kind of table has such a field.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.section.field(name).is_some()
    }

    /// The field's row in the table of fields.
    pub(super) fn field(&self, name: &str) -> &'static Field {
        match self.section.field(name) {
            Some(field) => field,
            None => unreachable!("no field {name} {}", self.section.place()),
        }
    }

    /// The field's value; a missing one that is required is reported.
    pub(super) fn item(&self, name: &str) -> Given<Item<'a>> {
        let field = self.field(name);
        if let Some(value) = self.table.get(name) {
            let path = self.path_of(name);
            return Given::Value(Item { value: value.get_ref(), span: value.span(), path });
        }
        if !matches!(field.default, Default::Required) {
            return Given::Absent;
        }
        let message = format!("is missing; write {}", field.kind);
        if self.path.is_empty() {
            self.report.error_of_file(name, message);
        } else {
            self.report.error(self.at, self.path_of(name), message);
        }
        Given::Bad
    }

    /// A text, unchecked.
    pub(super) fn text(&self, name: &str) -> Given<(&'a str, Item<'a>)> {
        match self.item(name) {
            Given::Value(item) => match text_of(item.value) {
                Some(text) => Given::Value((text, item)),
                None => self.wrong_type(self.field(name), &item),
            },
            Given::Absent => Given::Absent,
            Given::Bad => Given::Bad,
        }
    }

    /// A whole number in the field's range, with its place; of a field whose default is worked out.
    pub(super) fn given_int(&self, name: &str) -> Given<(u64, Item<'a>)> {
        match self.item(name) {
            Given::Value(item) => match self.int_in(self.field(name), &item) {
                Some(number) => Given::Value((number, item)),
                None => Given::Bad,
            },
            Given::Absent => Given::Absent,
            Given::Bad => Given::Bad,
        }
    }

    /// A whole number in the field's range, or the field's default.
    pub(super) fn int<T: TryFrom<u64>>(&self, name: &str) -> T {
        let number = match (self.given_int(name), &self.field(name).default) {
            (Given::Value((number, _)), _) => number,
            (_, Default::Int(number)) => *number,
            _ => unreachable!("{name} has no default that is a number"),
        };
        match T::try_from(number) {
            Ok(number) => number,
            Err(_) => unreachable!("{name} allows {number}, which its type cannot hold"),
        }
    }

    /// true or false, or the field's default.
    pub(super) fn bool(&self, name: &str) -> bool {
        let field = self.field(name);
        if let Given::Value(item) = self.item(name) {
            match item.value {
                DeValue::Boolean(value) => return *value,
                _ => self.wrong_type::<bool>(field, &item),
            };
        }
        match field.default {
            Default::Bool(value) => value,
            _ => unreachable!("{name} has no default that is true or false"),
        }
    }

    /// One of the field's words, or its default; `None` if it is required and not given, or wrong.
    pub(super) fn choice(&self, name: &str) -> Option<&'static str> {
        let field = self.field(name);
        let words = field.kind.words();
        match (self.text(name), &field.default) {
            (Given::Value((text, item)), _) => {
                let found = words.iter().copied().find(|word| *word == text);
                if found.is_none() {
                    let near = suggest::nearest(text, words.iter().copied());
                    match near.filter(|_| words.len() > 1) {
                        Some(near) => {
                            let question = format!("is not known; did you mean \"{near}\"?");
                            self.refuse(&item, &format!("{question} Write {}", field.kind));
                        }
                        None => self.refuse_as(field, &item, "is not known"),
                    }
                }
                found
            }
            (Given::Absent, Default::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The items of a list of at most `max`; empty if there is none.
    pub(super) fn list(&self, name: &str, max: usize) -> Given<(Vec<Item<'a>>, Item<'a>)> {
        let item = match self.item(name) {
            Given::Value(item) => item,
            Given::Absent => return Given::Absent,
            Given::Bad => return Given::Bad,
        };
        let DeValue::Array(array) = item.value else {
            return self.wrong_type(self.field(name), &item);
        };
        if array.len() > max {
            self.refuse_as(self.field(name), &item, &format!("has {} entries", array.len()));
            return Given::Bad;
        }
        Given::Value((items_of(array, &item.path), item))
    }

    /// A table within this one.
    pub(super) fn table(&self, name: &str) -> Option<Table<'a>> {
        let field = self.field(name);
        let Kind::Table(section) = field.kind else { unreachable!("{name} is no table") };
        let item = self.item(name).value()?;
        match item.value {
            DeValue::Table(table) => Some(self.within(section, table, item.span.start, item.path)),
            _ => self.wrong_type(field, &item).value(),
        }
    }

    /// The tables of a name within this one.
    pub(super) fn tables(&self, name: &str) -> Vec<Table<'a>> {
        let Kind::Tables(section) = self.field(name).kind else {
            unreachable!("{name} is no list of tables")
        };
        let within = |(table, item): (&'a DeTable<'a>, Item<'a>)| {
            self.within(section, table, item.span.start, item.path)
        };
        self.plain_tables(name).into_iter().map(within).collect()
    }

    /// The tables of a name as they are, for fields that are not in the table of fields.
    pub(super) fn plain_tables(&self, name: &str) -> Vec<(&'a DeTable<'a>, Item<'a>)> {
        let field = self.field(name);
        let Some(item) = self.item(name).value() else {
            return Vec::new();
        };
        let DeValue::Array(array) = item.value else {
            self.wrong_type::<()>(field, &item);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items_of(array, &item.path) {
            match item.value {
                DeValue::Table(table) => tables.push((table, item)),
                _ => drop(self.wrong_type::<()>(field, &item)),
            }
        }
        tables
    }

    /// A whole number in the range of a field; one that no integer type holds is out of every range.
    pub(super) fn int_in(&self, field: &Field, item: &Item<'a>) -> Option<u64> {
        let Kind::Int(min, max, _) = field.kind else {
            unreachable!("{} is no number", field.name)
        };
        let DeValue::Integer(integer) = item.value else {
            return self.wrong_type(field, item).value();
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let in_range = number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (min..=max).contains(number));
        if in_range.is_none() {
            self.refuse_as(field, item, "is out of range");
        }
        in_range
    }

    /// Reports a value of another type than the field's.
    pub(super) fn wrong_type<T>(&self, field: &Field, item: &Item<'a>) -> Given<T> {
        self.refuse_as(field, item, &format!("is {}", type_of(item.value)));
        Given::Bad
    }

    fn within(
        &self,
        section: &'static Section,
        table: &'a DeTable<'a>,
        at: usize,
        path: String,
    ) -> Table<'a> {
        Table::new(self.report, section, table, at, path)
    }

    fn refuse_unknown(&self) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if self.section.field(name).is_some() {
                continue;
            }
            let known: Vec<&str> = self.section.fields().map(|field| field.name).collect();
            let nearest = || suggest::nearest(name, known.iter().copied());
            let hint = elsewhere(name)
                .or_else(|| nearest().map(|meant| format!("did you mean {meant}? Allowed")))
                .unwrap_or_else(|| "allowed".to_owned());
            let place = self.section.place();
            let message = format!("unknown field {place}; {hint} are {}", known.join(", "));
            self.report.error(key.span().start, self.path_of(name), message);
        }
    }
}

/// A field that is known, but in other tables: the header above it is missing or another one.
fn elsewhere(name: &str) -> Option<String> {
    let places: Vec<String> = SECTIONS
        .iter()
        .filter(|section| section.field(name).is_some())
        .map(|section| section.place())
        .collect();
    (!places.is_empty()).then(|| format!("it belongs {}. Allowed", places.join(" or ")))
}

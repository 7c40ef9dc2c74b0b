//! A file as a document: TOML or JSON, read into the same value, with the position of every field.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::field_position::{FieldPosition, locate};
use super::old_names;
use super::position::{Position, of_file, of_lines};
use super::{parts, syntax};
use crate::json;
use crate::state::{AttachmentKind, Problem, Problems, Remedy, VERSION, schema};

/// Largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// A file: its name for errors, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    name: String,
    text: String,
}

impl SourceFile {
    /// A file from its text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> SourceFile {
        SourceFile { name: name.into(), text: text.into() }
    }

    /// Reads the file at `path`, which the user gives with `option`; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is not UTF-8.
    pub fn read(path: &Path, option: &str) -> Result<SourceFile, Problems> {
        let name = path.display().to_string();
        let bytes = read_limited(path).map_err(|error| cannot_read(path, option, &error))?;
        if bytes.len() > MAX_FILE_BYTES {
            let error = format!("is larger than {MAX_FILE_BYTES} bytes, the most allowed");
            return Err(of_file(&name, error, "make it smaller"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(SourceFile { name, text }),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
                let error = format!("line {line} is not UTF-8");
                Err(of_file(&name, error, "save the file as UTF-8"))
            }
        }
    }

    /// Name for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The state document of the file, unchecked, without the daemon's own settings. A document
    /// without a version gets the current one if it names an object; otherwise it may be a file of
    /// another kind. Relative sockets are in `run_dir`, unless the file names another.
    ///
    /// # Errors
    /// It is neither TOML nor JSON, has names of an older version, or is empty.
    pub fn document(&self, run_dir: &Path) -> Result<Value, Problems> {
        if self.text.trim().is_empty() {
            let remedy = "check the program that writes it";
            return Err(of_file(&self.name, "is empty", remedy));
        }
        let (value, renamed) = self.value(run_dir)?;
        renamed.or(()).map_err(|problems| self.tell(problems.named(&value)))?;
        let mut document = parts(value).1;
        let names_objects =
            ["nic", "switch", "adapter", "vpf"].iter().any(|name| document.get(name).is_some());
        if names_objects && document.get("version").is_none() {
            document["version"] = VERSION.into();
        }
        Ok(document)
    }

    /// Names of the daemon's own settings in the file, such as `lanes`; none if it has mistakes.
    pub fn settings(&self) -> Vec<String> {
        let Ok((value, _)) = self.value(Path::new("/")) else { return Vec::new() };
        let settings = parts(value).0;
        settings.as_object().into_iter().flat_map(Map::keys).cloned().collect()
    }

    /// The value with current names and absolute socket paths, and the problems of its old names.
    /// Relative sockets are in the file's `run_dir`, or in the given one.
    pub(super) fn value(&self, default: &Path) -> Result<(Value, Problems), Problems> {
        let mut value = match self.is_json() {
            true => self.json()?,
            false => self.toml()?,
        };
        let renamed = old_names::rename(&mut value);
        let run_dir = value.get("run_dir").and_then(Value::as_str).map(PathBuf::from);
        let run_dir = run_dir.filter(|dir| dir.is_absolute()).unwrap_or_else(|| default.into());
        visit_sockets(&mut value, "", &mut |_, socket| {
            // A path without a file name is left as it is, for the check to reject.
            if !["", ".", ".."].contains(&socket.rsplit('/').next().unwrap_or_default()) {
                let path: PathBuf = run_dir.join(&*socket).components().collect();
                *socket = path.to_string_lossy().into_owned();
            }
        });
        Ok((value, renamed))
    }

    /// Problems of the document, with their positions in the file.
    pub fn tell(&self, Problems { problems, more }: Problems) -> Problems {
        let told = match self.is_json() {
            true => problems.into_iter().map(|problem| (None, problem)).collect(),
            false => {
                let (tree, _) = DeTable::parse_recoverable(&self.text);
                let tell = |problem| self.told(tree.get_ref(), problem);
                problems.into_iter().map(tell).collect()
            }
        };
        of_lines(&self.name, told, more)
    }

    /// A problem in terms of TOML, with its position.
    fn told(&self, tree: &DeTable<'_>, mut problem: Problem) -> (Option<Position>, Problem) {
        let Problem { path, value, message, allowed, remedy, .. } = &mut problem;
        let list = || format!("write tables, each with the header [[{}]]", header(path));
        *message = message.replace("is an object", "is a table");
        *remedy = match remedy.as_str() {
            "write a list of objects" => list(),
            "write an object with its fields" if path.ends_with(']') => list(),
            other => other.replace("write an object", "write a table"),
        };
        *allowed = allowed.replace("an object", "a table").replace("of objects", "of tables");
        let at = locate(tree, path).map(|FieldPosition { at, name_at }| match name_at {
            // A problem without a value points to the field's name.
            Some(name_at) if value.is_empty() => name_at,
            _ => at,
        });
        (at.map(|at| Position::of(&self.text, at)), problem)
    }

    /// Problems that name objects of the file's `document`, as another process reports them, with
    /// their positions in the file.
    pub fn tell_named(&self, mut problems: Problems, document: &Value) -> Problems {
        for problem in &mut problems.problems {
            problem.find_path(document);
        }
        self.tell(problems)
    }

    fn is_json(&self) -> bool {
        self.text.trim_start().starts_with('{')
    }

    fn json(&self) -> Result<Value, Problems> {
        json::parse(self.text.as_bytes())
            .map_err(|error| Problems::from(error.problem("")).in_file(&self.name))
    }

    fn toml(&self) -> Result<Value, Problems> {
        let (tree, mistakes) = DeTable::parse_recoverable(&self.text);
        let mut problems = syntax::problems(&self.text, tree.get_ref(), &mistakes);
        let mut reader = Reader { text: &self.text, problems: Vec::new() };
        let value = reader.table(tree.get_ref(), "");
        // After a syntax error the content is unreliable.
        if problems.is_empty() {
            problems = reader.problems;
        }
        if problems.is_empty() {
            return Ok(value);
        }
        let told = problems.into_iter();
        let told = told.map(|(at, problem)| (Some(Position::of(&self.text, at)), problem));
        Err(of_lines(&self.name, told.collect(), 0).named(&value))
    }
}

/// Name in a table's header: its path without indices.
fn header(path: &str) -> String {
    path.split('.').filter_map(|part| part.split('[').next()).collect::<Vec<_>>().join(".")
}

/// Converts TOML to JSON.
struct Reader<'t> {
    text: &'t str,
    /// Values that JSON lacks, with their offsets.
    problems: Vec<(usize, Problem)>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str) -> Value {
        let fields = table.iter().map(|(key, value)| {
            let name = key.get_ref().to_string();
            let value = self.value(value, &schema::join(path, &name));
            (name, value)
        });
        Value::Object(fields.collect::<Map<_, _>>())
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Integer(integer) => number(integer),
            DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
            DeValue::Boolean(value) => Value::from(*value),
            DeValue::Datetime(_) => {
                let words = self.text.get(value.span()).unwrap_or_default();
                let error = format!("{words} is a date or a time");
                let allowed = schema::allowed_at("Configuration", path);
                let problem = Problem::new(path, (), error, allowed);
                self.problems.push((value.span().start, problem));
                Value::Null
            }
            DeValue::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(i, item)| self.value(item, &format!("{path}[{i}]"))).collect()
            }
            DeValue::Table(table) => self.table(table, path),
        }
    }
}

fn number(integer: &DeInteger<'_>) -> Value {
    // No field takes more than 64 bits.
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
    match u64::try_from(number) {
        Ok(number) => number.into(),
        Err(_) if number > 0 => u64::MAX.into(),
        Err(_) => i64::try_from(number).unwrap_or(i64::MIN).into(),
    }
}

/// The sockets in a document, each with its field.
pub(super) fn sockets(document: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    visit_sockets(&mut document.clone(), "", &mut |field, socket| {
        all.push((field.to_owned(), socket.clone()));
    });
    all
}

/// Calls `each` with every socket path: fields `socket`, and short forms of attachments.
fn visit_sockets(value: &mut Value, path: &str, each: &mut impl FnMut(&str, &mut String)) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                visit_sockets(item, &format!("{path}[{i}]"), each);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = schema::join(path, name);
                match (name.as_str(), value) {
                    ("socket", Value::String(socket)) => each(&path, socket),
                    ("attachment" | "uplink", Value::String(short)) => {
                        if let Some((kind, place)) = short.split_once(':')
                            && AttachmentKind::of(kind)
                                .is_some_and(|it| it.place_field() == "socket")
                        {
                            let mut place = place.to_owned();
                            each(&path, &mut place);
                            *short = format!("{kind}:{place}");
                        }
                    }
                    (_, value) => visit_sockets(value, &path, each),
                }
            }
        }
        _ => {}
    }
}

/// Reads one byte more than allowed, so that reading a device or a huge file ends too.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    match path == Path::new("-") {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes)?,
        false => File::open(path)?.take(most).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// The problem of a file that cannot be read, and that the user gives with `option`.
pub fn cannot_read(path: &Path, option: &str, error: &io::Error) -> Problem {
    let allowed = "the path of a file that this user can read";
    let another = || format!("give {allowed}");
    let (message, remedy) = match error.kind() {
        io::ErrorKind::NotFound => ("does not exist".to_owned(), another()),
        io::ErrorKind::PermissionDenied => (
            "is not readable for this user".to_owned(),
            "make the file and its directories readable for this user".to_owned(),
        ),
        io::ErrorKind::IsADirectory => ("is a directory".to_owned(), another()),
        _ => (format!("cannot be read: {error}"), another()),
    };
    Problem::of_path(option, path, message, Remedy::choose(remedy, allowed))
}

//! A JSON parser that rejects repeated keys.
//!
//! RFC 8259 does not define the meaning of a repeated key, and `serde_json` takes the last one. A
//! second `"nic": []` would silently remove all NICs. TOML rejects repeated keys too.

use std::cell::RefCell;
use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::state::{Problem, of_path};

/// Error of [`parse`].
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("is not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// An object has a key twice.
    #[error("has {field}{} twice, the second time at line {line} column {column}", of(.object))]
    Repeated {
        /// Object with the key, such as `VF 1 of NIC nic0`; empty for the whole document.
        object: String,
        /// The key, such as `mac`.
        field: String,
        /// Line of the second one, from 1.
        line: usize,
        /// End of the key in that line.
        column: usize,
    },
}

fn of(object: &str) -> String {
    if object.is_empty() { String::new() } else { format!(" of {object}") }
}

impl JsonError {
    /// The problem; `whole` names the document, such as `the body`.
    pub fn problem(&self, whole: &str) -> Problem {
        match self {
            JsonError::Syntax(_) => Problem::new("", (), format!("{whole}{self}"), "correct it"),
            JsonError::Repeated { object, field, line, column } => {
                let message =
                    format!("is there twice, the second time at line {line} column {column}");
                Problem::new(field, (), message, "keep one of them").of(object)
            }
        }
    }
}

/// Reads one value.
///
/// # Errors
/// The bytes are not JSON, or an object has a key twice.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let place = JsonPath::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = At(&place).deserialize(&mut reader);
    match (value, place.repeated.into_inner()) {
        (Err(error), Some(path)) => {
            // The names of objects may follow the repeated key.
            let document = serde_json::from_slice(bytes).unwrap_or_default();
            let (object, field) = of_path(&document, &path);
            let (line, column) = (error.line(), error.column());
            Err(JsonError::Repeated { object, field, line, column })
        }
        (value, _) => {
            let value = value?;
            reader.end()?;
            Ok(value)
        }
    }
}

/// Position in the document.
#[derive(Default)]
struct JsonPath {
    steps: RefCell<Vec<PathStep>>,
    /// Path of a repeated key.
    repeated: RefCell<Option<String>>,
}

enum PathStep {
    Key(String),
    Index(usize),
}

impl JsonPath {
    /// Path such as `nic[0].vf[1].mac`, with escaped control characters.
    fn shown(&self, last: &str) -> String {
        let mut text = String::new();
        for step in self.steps.borrow().iter() {
            let _ = match step {
                PathStep::Key(key) => write!(text, "{}.", key.escape_debug()),
                PathStep::Index(index) => {
                    let end = text.trim_end_matches('.').len();
                    text.truncate(end);
                    write!(text, "[{index}].")
                }
            }; // a String takes all
        }
        text + &last.escape_debug().to_string()
    }

    /// Runs `read` for a value one step below.
    fn within<T>(&self, step: PathStep, read: impl FnOnce() -> T) -> T {
        self.steps.borrow_mut().push(step);
        let read = read();
        self.steps.borrow_mut().pop();
        read
    }
}

/// Builds a value and tracks the position.
#[derive(Clone, Copy)]
struct At<'a>(&'a JsonPath);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = {
            let step = PathStep::Index(list.len());
            self.0.within(step, || items.next_element_seed(self))
        }? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if map.contains_key(&key) {
                *self.0.repeated.borrow_mut() = Some(self.0.shown(&key));
                return Err(A::Error::custom("duplicate key"));
            }
            let value = {
                let step = PathStep::Key(key.clone());
                self.0.within(step, || fields.next_value_seed(self))
            }?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_key_twice_is_read_as_serde_json_reads_it() {
        for text in [
            "null",
            "[]",
            "{}",
            "-1",
            "18446744073709551615",
            "1e400",
            "1.5e3",
            "123456789012345678901234567890",
            r#""A\n\"""#,
            r#"{"a": [1, -2, 3.5, true, null, {"a": {"a": "a"}}], "b": {"a": [[]]}}"#,
            "",
            "{",
            "[1,]",
            "{} {}",
            r#"{"a" 1}"#,
        ] {
            let ours = parse(text.as_bytes());
            match serde_json::from_str::<Value>(text) {
                Ok(theirs) => assert_eq!(ours.unwrap(), theirs, "{text}"),
                Err(error) => {
                    assert_eq!(ours.unwrap_err().to_string(), format!("is not JSON: {error}"));
                }
            }
        }
        let deep = "[".repeat(100_000);
        assert!(matches!(parse(deep.as_bytes()), Err(JsonError::Syntax(_))), "it has an end");
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_with_its_place_at_every_depth() {
        for (text, told) in [
            (r#"{"nic": [], "nic": []}"#, "has nic twice, the second time at line 1 column 17"),
            ("{\"a\": 1,\n \"a\": 1}", "has a twice, the second time at line 2 column 4"),
            (r#"{"a": 1, "\u0061": 1}"#, "has a twice,"),
            (
                r#"{"nic": [{}, {"vf": [{"mac": 1, "mac": 2}]}]}"#,
                "has mac of VF 0 of NIC without name twice,",
            ),
            (r#"{"nic": [{"mode": 1, "mode": 2, "name": "a"}]}"#, "has mode of NIC a twice,"),
            (r#"[[{"a": {"b": 1, "b": 1}}]]"#, "has a.b twice,"),
            (r#"{"\u001b[2J": 1, "\u001b[2J": 1}"#, "has \\u{1b} twice,"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }
}

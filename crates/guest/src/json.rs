//! The part of JSON (RFC 8259) that the channel uses.
//!
//! Limits: 32 levels of nesting; numbers are doubles.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// Deepest nesting of values.
const DEPTH_MAX: u32 = 32;

/// A value; fields keep their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads exactly one value; `None` on any error.
    pub(crate) fn read(text: &str) -> Option<Json> {
        let mut chars = text.chars().peekable();
        let value = value(&mut chars, DEPTH_MAX)?;
        blanks(&mut chars);
        chars.next().is_none().then_some(value)
    }

    /// A field of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, it)| it),
            _ => None,
        }
    }

    /// Sets a field of an object.
    pub(crate) fn put(&mut self, name: &str, value: Json) {
        if let Json::Object(fields) = self {
            fields.retain(|(key, _)| key != name);
            fields.push((name.to_owned(), value));
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Json::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            _ => &[],
        }
    }
}

impl fmt::Display for Json {
    /// Written on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => write_text(f, text),
            Json::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Object(fields) => {
                f.write_str("{")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    write_text(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

type CharStream<'a> = Peekable<Chars<'a>>;

fn blanks(chars: &mut CharStream<'_>) {
    while chars.next_if(|c| matches!(c, ' ' | '\t' | '\n' | '\r')).is_some() {}
}

fn value(chars: &mut CharStream<'_>, depth: u32) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    blanks(chars);
    match chars.peek()? {
        '{' => object(chars, depth),
        '[' => list(chars, depth),
        '"' => text(chars).map(Json::Text),
        't' => word(chars, "true").then_some(Json::Bool(true)),
        'f' => word(chars, "false").then_some(Json::Bool(false)),
        'n' => word(chars, "null").then_some(Json::Null),
        _ => number(chars),
    }
}

fn word(chars: &mut CharStream<'_>, word: &str) -> bool {
    word.chars().all(|c| chars.next() == Some(c))
}

fn number(chars: &mut CharStream<'_>) -> Option<Json> {
    let mut digits = String::new();
    while let Some(c) = chars.next_if(|c| c.is_ascii_digit() || "+-.eE".contains(*c)) {
        digits.push(c);
    }
    let number: f64 = digits.parse().ok()?;
    number.is_finite().then_some(Json::Number(number))
}

fn text(chars: &mut CharStream<'_>) -> Option<String> {
    let mut out = String::new();
    chars.next(); // the quotation mark
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => out.push(match chars.next()? {
                c @ ('"' | '\\' | '/') => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => unicode(chars)?,
                _ => return None,
            }),
            c if c < ' ' => return None,
            c => out.push(c),
        }
    }
}

/// After `\u`: one unit of UTF-16, or two.
fn unicode(chars: &mut CharStream<'_>) -> Option<char> {
    let unit = |chars: &mut CharStream<'_>| {
        (0..4).try_fold(0, |unit: u32, _| Some(unit * 16 + chars.next()?.to_digit(16)?))
    };
    let first = unit(chars)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    let second = word(chars, "\\u").then(|| unit(chars))??;
    let second = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second)
}

fn list(chars: &mut CharStream<'_>, depth: u32) -> Option<Json> {
    let mut items = Vec::new();
    chars.next();
    blanks(chars);
    if chars.next_if_eq(&']').is_some() {
        return Some(Json::List(items));
    }
    loop {
        items.push(value(chars, depth)?);
        blanks(chars);
        match chars.next()? {
            ',' => {}
            ']' => return Some(Json::List(items)),
            _ => return None,
        }
    }
}

fn object(chars: &mut CharStream<'_>, depth: u32) -> Option<Json> {
    let mut fields = Vec::new();
    chars.next();
    blanks(chars);
    if chars.next_if_eq(&'}').is_some() {
        return Some(Json::Object(fields));
    }
    loop {
        blanks(chars);
        let name = (chars.peek() == Some(&'"')).then(|| text(chars))??;
        blanks(chars);
        if chars.next()? != ':' {
            return None;
        }
        fields.push((name, value(chars, depth)?));
        blanks(chars);
        match chars.next()? {
            ',' => {}
            '}' => return Some(Json::Object(fields)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written() {
        for text in [
            "null",
            "{}",
            "[]",
            r#"{"a":[1,-2.5,true,false,null,"x"],"b":{"c":{}}}"#,
            r#""\"\\\u0007ü😀""#,
        ] {
            assert_eq!(Json::read(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Json::read(" [ 1 , \"\\ud83d\\ude00\\n\" ] ").unwrap().to_string(),
            "[1,\"😀\\u000a\"]"
        );
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in [
            "",
            "{",
            "[1,",
            "[1 2]",
            "{\"a\"}",
            "{a:1}",
            "tru",
            "1x",
            "\"",
            "\"\n\"",
            "[]]",
            "-",
            "1e999",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
        ] {
            assert_eq!(Json::read(text), None, "{text}");
        }
        assert_eq!(Json::read(&"[".repeat(100_000)), None, "depth is bounded");
    }
}

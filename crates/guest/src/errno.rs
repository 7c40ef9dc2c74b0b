//! Errors that the host returns, shown like the kernel's.

use std::fmt;

use crate::json::Json;

/// Error that the host returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostError {
    errno: i32,
    name: String,
    text: String,
}

/// `strerror` texts of the numbers in the protocol.
const WORDS: [(i32, &str); 8] = [
    (1, "Operation not permitted"),
    (5, "Input/output error"),
    (22, "Invalid argument"),
    (71, "Protocol error"),
    (90, "Message too long"),
    (93, "Protocol not supported"),
    (95, "Operation not supported"),
    (98, "Address already in use"),
];

impl HostError {
    /// Reads an answer's `error`.
    pub(crate) fn of(error: &Json) -> HostError {
        let text = |name: &str| error.get(name).and_then(Json::text).unwrap_or_default().to_owned();
        let errno = error.get("errno").and_then(Json::number).unwrap_or(0.0);
        HostError { errno: errno as i32, name: text("name"), text: text("text") }
    }

    /// One line of JSON.
    pub(crate) fn to_json(&self) -> Json {
        let mut error = Json::Object(Vec::new());
        error.put("errno", Json::Number(self.errno.into()));
        error.put("name", Json::Text(self.name.clone()));
        error.put("text", Json::Text(self.text.clone()));
        let mut whole = Json::Object(Vec::new());
        whole.put("error", error);
        whole
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = WORDS.iter().find(|(errno, _)| *errno == self.errno);
        let words = words.map_or("the host refused", |(_, words)| words);
        // The text goes to a terminal.
        let plain: String = self.text.chars().filter(|c| !c.is_control()).collect();
        write!(f, "{words}: {plain}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_kernels_words_and_the_hosts() {
        let error = Json::read(r#"{"errno":1,"name":"EPERM","text":"the host says\u001b no"}"#);
        let error = HostError::of(&error.unwrap());
        assert_eq!(error.to_string(), "Operation not permitted: the host says no");
        let json = r#"{"error":{"errno":1,"name":"EPERM","text":"the host says\u001b no"}}"#;
        assert_eq!(error.to_json().to_string(), json);
        assert_eq!(HostError::of(&Json::Null).to_string(), "the host refused: ");
    }
}

//! Errors as a container runtime reads them (CNI specification 1.1, section "Error").

use std::fmt::Display;

use api::ClientError;
use model::state::Problems;
use serde_json::{Value, json};

/// Numbers of errors; those from 100 on are the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The version of the configuration is unknown.
    Version = 1,
    /// A variable of the environment is missing or invalid.
    Environment = 4,
    /// A file cannot be read or written.
    Io = 5,
    /// The configuration is no JSON of a network.
    Decoding = 6,
    /// The configuration has an invalid value.
    Config = 7,
    /// Try again later: the daemon does not answer.
    Later = 11,
    /// The plugin is not available: no container can be added.
    Unavailable = 50,
    /// The network of a container is not as it was added.
    Changed = 100,
    /// The daemon refuses, or cannot do what it is asked for.
    Daemon = 101,
    /// A delegated plugin failed without an error of its own.
    Delegate = 102,
}

/// An error of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    code: u64,
    message: String,
    details: String,
}

impl CniError {
    /// An error with a remedy.
    pub fn new(code: Code, message: impl Display, remedy: impl Display) -> CniError {
        CniError { code: code as u64, message: message.to_string(), details: remedy.to_string() }
    }

    /// The error that a delegated plugin has printed; `None` if it printed something else.
    pub fn printed(text: &[u8]) -> Option<CniError> {
        let error: Value = serde_json::from_slice(text).ok()?;
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        Some(CniError {
            code: error["code"].as_u64()?,
            message: text("msg"),
            details: text("details"),
        })
    }

    /// As it is printed.
    pub fn json(&self, version: &str) -> Value {
        json!({
            "cniVersion": version, "code": self.code, "msg": self.message, "details": self.details,
        })
    }

    /// As a line for a log.
    pub fn line(&self) -> String {
        format!("{}; {}", self.message, self.details)
    }

    /// Its number.
    pub fn code(&self) -> u64 {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<ClientError> for CniError {
    fn from(error: ClientError) -> CniError {
        let code = match &error {
            error if error.is_mistake() => Code::Config,
            ClientError::Refused(_) => Code::Daemon,
            ClientError::NotOwner(_) => Code::Io,
            ClientError::NoDaemon(_) | ClientError::NotReached(_) => Code::Later,
            ClientError::Silent(_) | ClientError::Broken(_) => Code::Later,
        };
        let problems = error.problems();
        CniError::new(code, &problems, remedies(&problems))
    }
}

/// Remedies of all problems.
fn remedies(problems: &Problems) -> String {
    let each = |problem: &model::state::Problem| match problem.remedy.as_str() {
        "" => problem.allowed.clone(),
        remedy => remedy.to_owned(),
    };
    let all: Vec<String> = problems.problems.iter().map(each).collect();
    all.join("; ")
}

//! Content of the store's files: JSON with a version and a checksum.

use model::state::State;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Owners, StoreError};

/// Version of the files that this program writes, and the newest that it reads.
pub const VERSION: u64 = 1;

/// The stored state, and the owners of its VFs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Incremented by every change of the state; 0 before the first.
    pub generation: u64,
    /// `true` while the state is that of a configuration file, unchanged since.
    pub from_file: bool,
    /// The state.
    pub state: State,
    /// The owners of its VFs.
    pub owners: Owners,
}

/// Serialised form of [`Record`]. Reading checks the state like every document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<O, S> {
    generation: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    from_file: bool,
    owners: O,
    state: S,
}

/// An apply that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Journal {
    /// Generation of the record once the apply is complete.
    pub(super) generation: u64,
    /// Target state.
    pub(super) to: State,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJournal<S> {
    generation: u64,
    to: S,
}

impl Record {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Record { generation, from_file, state, owners } = self;
        seal(&Written { generation: *generation, from_file: *from_file, owners, state })
    }

    pub(super) fn from_bytes(file: &str, bytes: &[u8]) -> Result<Record, StoreError> {
        let Written::<Owners, Value> { generation, from_file, owners, state } = open(file, bytes)?;
        Ok(Record { generation, from_file, owners, state: parse(file, &state)? })
    }
}

impl Journal {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        seal(&WrittenJournal { generation: self.generation, to: &self.to })
    }

    pub(super) fn from_bytes(file: &str, bytes: &[u8]) -> Result<Journal, StoreError> {
        let WrittenJournal::<Value> { generation, to } = open(file, bytes)?;
        Ok(Journal { generation, to: parse(file, &to)? })
    }
}

fn parse(file: &str, document: &Value) -> Result<State, StoreError> {
    State::parse(document)
        .map_err(|problems| damaged(file, format!("its state is wrong: {problems}")))
}

fn damaged(file: &str, why: String) -> StoreError {
    StoreError::Damaged { file: file.to_owned(), why }
}

/// Envelope around the content.
#[derive(Deserialize)]
struct Envelope<'a> {
    checksum: String,
    /// Serialised, as the checksum covers it.
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Version {
    version: Option<u64>,
}

/// Serialises content with its envelope.
pub(super) fn seal(content: &impl Serialize) -> Vec<u8> {
    let content = serde_json::to_string(content).expect("a record is JSON");
    let checksum = checksum(content.as_bytes());
    format!("{{\"version\":{VERSION},\"checksum\":\"{checksum:016x}\",\"content\":{content}}}\n")
        .into_bytes()
}

/// Reads content from its envelope; `file` is for messages.
pub(super) fn open<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, StoreError> {
    let not_json = |error: serde_json::Error| damaged(file, format!("it is not JSON: {error}"));
    match serde_json::from_slice(bytes).map_err(not_json)? {
        Version { version: Some(VERSION) } => {}
        Version { version: Some(version) } => {
            return Err(StoreError::Version { file: file.to_owned(), version });
        }
        Version { version: None } => return Err(damaged(file, "it has no version".into())),
    }
    let not_it =
        |error: serde_json::Error| damaged(file, format!("it has an unexpected form: {error}"));
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(not_it)?;
    let content = envelope.content.get();
    if envelope.checksum != format!("{:016x}", checksum(content.as_bytes())) {
        return Err(damaged(file, "its checksum does not match".into()));
    }
    serde_json::from_str(content).map_err(not_it)
}

/// FNV-1a: detects errors of a disk or an editor. No defence against forgery: a forger has write
/// access anyway.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

//! What the files hold: JSON with a version and a checksum.

use model::state::State;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Owners, StoreError};

/// The version of the files that this program writes, and the newest it reads.
pub const VERSION: u64 = 1;

/// The state in force, and who has its VFs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Grows with every change of the state; 0 before the first.
    pub generation: u64,
    /// The state.
    pub state: State,
    /// The owners of its VFs.
    pub owners: Owners,
}

/// [`Record`] as it is written, and as it is read: the state is checked then, as every document is.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<O, S> {
    generation: u64,
    owners: O,
    state: S,
}

/// An apply that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Journal {
    /// The generation that the record has if the apply was finished.
    pub(super) generation: u64,
    /// What it was to reach.
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
        let Record { generation, state, owners } = self;
        seal(&Written { generation: *generation, owners, state })
    }

    pub(super) fn from_bytes(file: &str, bytes: &[u8]) -> Result<Record, StoreError> {
        let Written::<Owners, Value> { generation, owners, state } = open(file, bytes)?;
        Ok(Record { generation, owners, state: parse(file, &state)? })
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

/// What stands around content.
#[derive(Deserialize)]
struct Envelope<'a> {
    checksum: String,
    /// As it is written, which is what the checksum is of.
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Version {
    version: Option<u64>,
}

/// Writes content in its envelope.
pub(super) fn seal(content: &impl Serialize) -> Vec<u8> {
    let content = serde_json::to_string(content).expect("a record is JSON");
    let checksum = checksum(content.as_bytes());
    format!("{{\"version\":{VERSION},\"checksum\":\"{checksum:016x}\",\"content\":{content}}}\n")
        .into_bytes()
}

/// Reads it from there; `file` is for messages.
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
        |error: serde_json::Error| damaged(file, format!("it is not what it should be: {error}"));
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(not_it)?;
    let content = envelope.content.get();
    if envelope.checksum != format!("{:016x}", checksum(content.as_bytes())) {
        return Err(damaged(file, "its checksum does not match".into()));
    }
    serde_json::from_str(content).map_err(not_it)
}

/// FNV-1a: finds slips of a disk or an editor; it is no defence against a forger, who may write the
/// file anyway.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

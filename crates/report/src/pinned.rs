//! CPUs of a measurement's threads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPUs of pinned threads; empty for unpinned ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pinned {
    /// The switch's lanes.
    pub switch: Vec<usize>,
    /// The guests.
    pub guests: Vec<usize>,
    /// The generator.
    #[serde(default)]
    pub generator: Vec<usize>,
}

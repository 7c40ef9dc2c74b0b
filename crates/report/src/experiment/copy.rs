//! A file that guests copy from a server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, check_numbers, check_times};

/// Most MiB that a file can have; the server keeps it in memory.
const FILE_MIB_MAX: u32 = 4096;

/// A file of each of these sizes, copied in every setup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopySweep {
    /// MiB of the file, which is kept in memory: 1 to 4096.
    pub file_mib: Vec<u32>,
    /// Measurements of each setup, the paths in the order A B B A; medians count.
    pub rounds: usize,
}

impl Sweep for CopySweep {
    fn check(&self) -> Result<(), String> {
        check_numbers("file_mib", &self.file_mib, [1, FILE_MIB_MAX])?;
        check_times(self.rounds, &[])
    }
}

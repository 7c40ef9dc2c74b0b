//! Sweep of file copies from a server.

use model::state::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, check_numbers, check_times};

/// Maximum file size in MiB; the server keeps the file in memory.
const FILE_MIB_MAX: u32 = 4096;

/// File copies in every setup, for each of these sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopySweep {
    /// MiB of the file: 1 to 4096.
    pub file_mib: Vec<u32>,
    /// Measurements of each setup, with the paths in the order A B B A; results are medians.
    pub rounds: usize,
}

impl Sweep for CopySweep {
    fn check(&self) -> Result<(), Problems> {
        check_numbers("file_mib", &self.file_mib, [1, FILE_MIB_MAX])?;
        check_times(self.rounds, &[])
    }
}

//! Sweep of forwarded frames.

use model::state::{Problem, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, check_list, check_numbers, check_times};
use crate::{GeneratorLoad, PathKind, Pattern, RingKind};

/// Forwarding at every combination of pattern, guests and frame size. Each combination measures its
/// paths in order and then in reverse (A B B A), so that drift affects all alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardSweep {
    /// Traffic patterns.
    pub patterns: Vec<Pattern>,
    /// Paths, in the order of measurement.
    pub paths: Vec<PathKind>,
    /// Guests: 1 to 8. A chain (east-west) needs two and skips one guest.
    pub guests: Vec<usize>,
    /// Frame sizes with FCS, bytes: 64 to 1518.
    pub frame_bytes: Vec<u32>,
    /// Load of the generator.
    pub load: GeneratorLoad,
    /// Rings of the guests.
    pub ring: RingKind,
    /// Measurements in each direction, for each combination.
    pub rounds: usize,
    /// Seconds before each measurement.
    pub warmup_s: f64,
    /// Seconds of each measurement.
    pub seconds: f64,
}

impl Sweep for ForwardSweep {
    fn check(&self) -> Result<(), Problems> {
        check_list("patterns", &self.patterns)?;
        check_list("paths", &self.paths)?;
        check_numbers("guests", &self.guests, [1, 8])?;
        check_numbers("frame_bytes", &self.frame_bytes, [64, 1518])?;
        if self.patterns == [Pattern::EastWest] && self.guests == [1] {
            return Err(Problem::out_of_range("guests", 1, 2, 8).into());
        }
        check_times(self.rounds, &[("warmup_s", self.warmup_s), ("seconds", self.seconds)])
    }
}

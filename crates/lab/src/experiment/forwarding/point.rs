//! A point of forwarding, and the switch that it measures.

use std::path::Path;

use model::state::{Problem, Problems};
use report::{GeneratorLoad, PathKind, Pattern, RingKind};
use wire::Mac;

/// MAC address of the generator, beyond the uplink.
pub(in crate::experiment) const OUTSIDE: Mac = Mac([0x02, 0x5b, 0xff, 0xff, 0, 1]);

/// A point to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointSpec {
    /// Traffic pattern.
    pub pattern: Pattern,
    /// Path.
    pub path: PathKind,
    /// Guests: 1 to 8, and at least 2 in a chain.
    pub vms: usize,
    /// Bytes of a frame with FCS: 64 to 1518.
    pub frame_bytes: u32,
    /// Seconds before the measurement.
    pub warmup_s: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Rings of the guests, if any.
    pub ring: RingKind,
    /// Load of the generator.
    pub load: GeneratorLoad,
}

impl PointSpec {
    /// Validates the point.
    ///
    /// # Errors
    /// An option, its value and the allowed range.
    pub fn check(&self) -> Result<(), Problems> {
        let least = if self.pattern == Pattern::EastWest { 2 } else { 1 };
        if !(least..=8).contains(&self.vms) {
            let message = format!("is out of range for {}", self.pattern);
            let remedy = format!("write a number, {least} to 8");
            return Err(Problem::new("--vms", self.vms, message, remedy).into());
        }
        if !(64..=1518).contains(&self.frame_bytes) {
            return Err(Problem::out_of_range("--frame", self.frame_bytes, 64, 1518).into());
        }
        if !(self.seconds >= 0.1 && self.seconds <= 3600.0) {
            return Err(Problem::out_of_range("--seconds", self.seconds, 0.1, 3600).into());
        }
        Ok(())
    }
}

/// Device under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SwitchProgram<'a> {
    /// A daemon, or the kernel on the path virtio.
    Shunt {
        /// Program of the daemon.
        daemon: &'a Path,
        /// The shunt binary, which runs the guests.
        program: &'a Path,
    },
    /// The bare copying loop between the generator and one guest.
    Bare {
        /// The shunt binary.
        program: &'a Path,
        /// Time-stamp cycles to spin for each frame.
        delay_cycles: u64,
    },
}

impl<'a> SwitchProgram<'a> {
    /// This program as daemon and as guests.
    pub fn shunt(program: &'a Path) -> SwitchProgram<'a> {
        SwitchProgram::Shunt { daemon: program, program }
    }

    /// Program of the guests.
    pub(super) fn program(&self) -> &Path {
        match self {
            SwitchProgram::Shunt { program, .. } | SwitchProgram::Bare { program, .. } => program,
        }
    }
}

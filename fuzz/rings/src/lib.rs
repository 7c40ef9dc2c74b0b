//! Bodies of the fuzz targets, as plain functions, so that stable Rust also runs them.
//!
//! # Model
//! The input is a sequence of acts, of both sides of a ring in turn. The hostile side's are mostly
//! nearly right, so that they get past the first checks; how rarely they are wrong is the input's
//! choice too, so that some inputs get deep and others are rough. The honest side is the code under
//! test, and after each of its acts its promises are asserted:
//! - [`device_ring`]: a hostile driver against [`virtq::DeviceQueue`];
//! - [`driver_ring`]: a hostile device against [`virtq::DriverQueue`];
//! - [`port_rings`]: two hostile guests, one sending to the other through the ports;
//! - [`logged_rings`]: the same while both are moved: whatever changes in their memory is logged.
//!
//! Each says what its input reached ([`Seen`]), so that a test can tell whether its inputs are any
//! good.
//!
//! # Limits
//! One thread: the hostile side acts between two acts of ours, never during one.

mod device;
mod driver;
mod guest;
mod input;
mod log;
mod ports;

pub use device::device_ring;
pub use driver::driver_ring;
pub use log::logged_rings;
pub use ports::port_rings;

/// Coverage of one input, or several.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Buffers that were staged, posted or polled.
    pub buffers: u64,
    /// Of these, of more than one slice or descriptor.
    pub in_pieces: u64,
    /// Buffers used or reaped, frames delivered.
    pub done: u64,
    /// Frames dropped, or used entries skipped.
    pub refused: u64,
    /// Pages that changed and were found in a log.
    pub logged: u64,
    /// Rings that each fault stopped, by [`virtq::Fault`] as a number.
    pub faults: [u64; virtq::Fault::ALL.len()],
}

impl Seen {
    /// Adds what another input reached.
    pub fn add(&mut self, other: &Seen) {
        self.buffers += other.buffers;
        self.in_pieces += other.in_pieces;
        self.done += other.done;
        self.refused += other.refused;
        self.logged += other.logged;
        for (sum, more) in self.faults.iter_mut().zip(other.faults) {
            *sum += more;
        }
    }
}

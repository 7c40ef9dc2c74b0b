//! A device that delays frames by known times: distributions, and the queue of held frames.
//!
//! [`Distribution`] determines the delay of each frame, and [`DelayLine`] the order of release.
//! Neither reads a clock nor touches a ring; `bench::delay` serves them to a guest.

mod distribution;
mod line;

pub use distribution::{DELAY_US_MAX, Distribution};
pub use line::{DelayLine, HeldFrame};

//! A device that delays frames by known times: the distributions, and the line of held frames.
//!
//! [`Distribution`] says how long each frame is held, and [`DelayLine`] in which order frames are
//! released. Neither reads a clock nor touches a ring; `bench::delay` serves them to a guest.

mod distribution;
mod line;

pub use distribution::{DELAY_US_MAX, Distribution};
pub use line::{DelayLine, Held};

//! The description of a system in documents and commands.
//!
//! [`state`] is the document: NICs, switches, adapters, their form and meaning, and the steps from
//! one state to another. [`config`] reads it from files, with the daemon's own settings.
//! [`profile`] has the card profiles, and [`suggest`] finds the word behind a typing error.
//! Everything except reading files is pure: no I/O, no clock.

pub mod config;
pub mod json;
pub mod profile;
pub mod state;
pub mod suggest;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

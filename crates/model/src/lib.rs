//! The description of a system, as documents and commands write it.
//!
//! [`state`] is the document: NICs, switches, adapters, their form, their meaning, and the steps
//! from one to another. [`config`] reads it from files, with the daemon's own settings. [`profile`]
//! has the cards, and [`suggest`] finds the word that a mistyped one stood for. All but the reading
//! of files is pure: no I/O, no clock.

pub mod config;
pub mod json;
pub mod profile;
pub mod state;
pub mod suggest;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

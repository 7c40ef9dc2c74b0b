//! The description of a system, as documents and commands write it.
//!
//! Card profiles are in [`profile`]; [`suggest`] finds the word that a mistyped one stood for.

pub mod profile;
pub mod suggest;

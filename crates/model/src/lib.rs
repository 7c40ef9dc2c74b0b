//! The description of a system, as documents and commands write it.
//!
//! Card profiles are here: [`profile`].

pub mod profile;

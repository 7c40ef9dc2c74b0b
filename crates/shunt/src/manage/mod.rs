//! Commands that manage a running daemon: clients of its API.
//!
//! Model: the flags of a command become a merge patch, the daemon validates and applies it, and its
//! answer is shown unchanged. The daemon alone knows ranges and rules; this module knows only their
//! command-line syntax.

mod acl;
pub(crate) mod adapter;
pub(crate) mod apply;
pub(crate) mod capture;
mod cells;
mod client;
pub(crate) mod events;
mod fdb;
pub(crate) mod nic;
mod patch;
pub(crate) mod pci;
mod rules;
pub(crate) mod switch;
pub(crate) mod trace;
mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod vf;
pub(crate) mod vm;
pub(crate) mod vpf;

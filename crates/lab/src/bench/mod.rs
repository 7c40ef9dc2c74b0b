//! A test bed: a daemon and guest processes, over real vhost-user sockets in a temporary directory.
//!
//! Everything is this same program, started anew: `shunt up` for the daemon, a hidden subcommand
//! for guests. All of it ends with the bench, whatever happens. [`peers`] are programs of others.

pub mod bare;
mod carrier;
mod cpus;
mod daemon;
pub mod delay;
mod guests;
pub mod interrupt;
pub mod peers;
mod switched;

pub use carrier::{Between, Carrier};
pub use cpus::{Placement, plan};
pub use daemon::{Bench, NicPlan, VfPlan, mac_text};
pub use guests::GuestProcess;
pub use switched::{AdapterPlan, Attached, SwitchedBench, SwitchedPlan};

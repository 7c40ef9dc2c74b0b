//! Test bed: a daemon and guest processes, over real vhost-user sockets in a temporary directory.
//!
//! All processes run this same program: `shunt up` for the daemon, a hidden subcommand for guests.
//! All of them end with the bench. [`peers`] are programs of other projects.

pub mod bare;
mod carrier;
mod cpus;
mod daemon;
pub mod delay;
mod guests;
pub mod interrupt;
pub mod peers;
mod size;
mod switched;

pub use carrier::{Carrier, CarrierSpec};
pub use cpus::{Placement, plan};
pub use daemon::{Bench, NicPlan, VfPlan, lane_under_load, mac_text};
pub use guests::GuestProcess;
pub use size::ProcessSize;
pub use switched::{AdapterPlan, BenchAttachment, SwitchedBench, SwitchedPlan};

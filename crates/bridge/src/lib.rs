//! The decisions of the data plane: which port a frame goes to, and why it is dropped.
//!
//! [`nic`] is the bridge of an SR-IOV NIC (PF, VFs, receive queues), [`switch`] the learning switch
//! behind its PF, [`matching`] the matches that ACLs of the switch and rules of the NIC share. Both
//! bridges answer for a burst of frame headers with [`Verdict`]s; a drop has one of the
//! [`DropReason`]s. Rates are kept by [`rate`].
//!
//! Limits: no I/O, no clock (the time is an argument), no allocation after a table is built, except
//! for an [`Explanation`]; nothing here can panic on a frame's bytes.

mod explanation;
pub mod matching;
pub mod nic;
mod port_id;
pub mod rate;
mod reason;
pub mod switch;
mod verdict;

pub use explanation::{Explanation, PortNames, Step, StepResult};
pub use port_id::PortId;
pub use reason::DropReason;
pub use verdict::{Action, BURST, Flood, Summary, Verdict, Verdicts};
pub use wire::VlanEdit;

//! Lanes: poll, burst, classify, one copy, complete, sleep; and counters in shared memory.
//!
//! # Model
//! A [`Fabric`] holds soft NICs; a [`SoftNic`] holds a classifier table, which may be replaced
//! while frames flow, and ports. A [`Lane`] is one thread that polls the transmit rings of its
//! ports in turn, as the NIC's schedule says (shares of bytes by weight, minima and maxima),
//! and carries each burst through the NIC to the receive rings. [`counters`] are a file that
//! another process maps read-only.
//!
//! # Locks
//! Each half of a queue pair has a lock of its own. A lane holds the lock of the transmit ring it
//! works on, and under it takes receive rings' locks one at a time; whoever changes a port (the
//! vhost-user session) takes a lock for the change only. So the order is always transmit before
//! receive, never two of a kind, and a half that was taken out under its lock is no lane's any
//! more: that is all the quiescence there is to wait for.

pub mod counters;
mod fabric;
mod forward;
mod lane;

pub use fabric::{Fabric, NicSpec, Port, SoftNic, StartError};
pub use lane::{IdlePolicy, Lane, LaneSpec};

#[cfg(test)]
mod tests;

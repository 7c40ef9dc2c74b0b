//! Lanes: poll, burst, classify, one copy, complete, sleep; and counters in shared memory.
//!
//! # Model
//! A [`Fabric`] holds soft NICs; a [`SoftNic`] holds ports and a [`ForwardingSnapshot`]. The
//! snapshot has the location of each port, in the NIC itself or in the switch on its PF, and the
//! tables of both. Snapshots are replaced, and ports come and go, while frames flow. A [`Lane`] is
//! one thread that polls the transmit rings of its ports by its schedule: byte shares by weight,
//! minima and maxima. It carries each burst through NIC and switch to the receive rings.
//! [`counters`] are in a file that other processes map read-only.
//!
//! # Locks
//! Each half of a queue pair has a lock of its own. A lane holds the lock of the transmit ring it
//! works on, and under it takes receive rings' locks one at a time. A vhost-user session that
//! changes a port takes a lock for the change only. So the order is always transmit before receive,
//! never two of a kind. A ring that was taken out under its lock is used by no lane any more.
//! Taking each transmit half's lock once is a grace period: it outlasts every burst that was in
//! progress.
//!
//! # After a kill
//! A turn publishes a burst to its receivers before it gives the buffers back to the sender. A
//! daemon that is killed in between leaves frames that were delivered and are sent again by the
//! next daemon: at most one burst a lane. The other order would lose them. Every frame arrives at
//! least once, in order, and every buffer comes back once.

pub mod capture;
pub mod counters;
pub mod drops;
mod fabric;
mod forward;
mod inject;
mod lane;
pub mod limits;
mod port;
mod quarantine;
mod queue_pair;
mod slow;
mod snapshot;
mod soft_nic;
mod start_error;
pub mod trace;
mod traffic;

pub use counters::CounterSnapshot;
pub use fabric::Fabric;
pub use lane::Lane;
pub use lane::spec::{IdlePolicy, LaneSpec};
pub use lane::stages::{SAMPLED_ONE_IN, Stage};
pub use port::Port;
pub use quarantine::QuarantineNews;
pub use queue_pair::Half;
pub use snapshot::{
    AclHits, ForwardingSnapshot, Plug, PortLocation, RuleHits, SnapshotSpec, SwitchSpec,
};
pub use soft_nic::SoftNic;
pub use start_error::StartError;
pub use traffic::PortTraffic;

#[cfg(test)]
mod tests;

//! Lanes: poll, burst, classify, one copy, complete, sleep; and counters in shared memory.
//!
//! # Model
//! A [`Fabric`] holds soft NICs; a [`SoftNic`] holds ports, and a [`ForwardingSnapshot`] that says
//! where each port is plugged in, in the NIC itself or in the switch on its PF, and what becomes of
//! frames there. Scenes are replaced, and ports come and go, while frames flow. A [`Lane`] is one
//! thread that polls the transmit rings of its ports in turn, as its schedule says (shares of bytes
//! by weight, minima and maxima), and carries each burst through NIC and switch to the receive
//! rings. [`counters`] are a file that another process maps read-only.
//!
//! # Locks
//! Each half of a queue pair has a lock of its own. A lane holds the lock of the transmit ring it
//! works on, and under it takes receive rings' locks one at a time; whoever changes a port (the
//! vhost-user session) takes a lock for the change only. So the order is always transmit before
//! receive, never two of a kind, and a half that was taken out under its lock is no lane's any
//! more. Whoever has held each transmit half's lock for a moment has outlasted every burst that was
//! under way: that is all the quiescence there is to wait for.
//!
//! # After a kill
//! A turn shows a burst to its receivers before it gives the buffers back to the sender. A daemon
//! that is killed in between leaves frames that were delivered and are sent again by the next one:
//! at most the burst in hand of each lane. The other order would lose them. Every frame arrives at
//! least once, in order, and every buffer comes back once.

mod clock;
pub mod counters;
mod edit;
mod fabric;
mod forward;
mod groups;
mod inject;
mod lane;
mod lane_counters;
mod lane_spec;
mod pipeline;
mod port;
mod quarantine;
mod queue_list;
mod scratch;
mod snapshot;
mod soft_nic;
mod stage_clock;
mod stages;
mod start_error;
mod traffic;
mod tx_pause;
mod view;
mod wake;
mod worker;

pub use counters::CounterSnapshot;
pub use fabric::Fabric;
pub use lane::Lane;
pub use lane_spec::{IdlePolicy, LaneSpec};
pub use port::Port;
pub use quarantine::QuarantineNews;
pub use snapshot::{
    AclHits, ForwardingSnapshot, Plug, PortLocation, RuleHits, SnapshotSpec, SwitchSpec,
};
pub use soft_nic::SoftNic;
pub use stages::{SAMPLED_ONE_IN, Stage};
pub use start_error::StartError;
pub use traffic::PortTraffic;

#[cfg(test)]
mod tests;

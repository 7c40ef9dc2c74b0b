//! Experiments, and the measurements in them.
//!
//! # Model
//! An [`experiment`] makes a [`bench`]: the daemon and guest processes, all of this same program
//! and pinned, over real vhost-user sockets. Guest processes run the crate `traffic`: generators
//! and forwarders on virtio rings. [`measure`] holds measurements of single parts. Files of
//! experiments, results, their statistics and reports are data, in the crate `report`.

pub mod bench;
pub mod experiment;
pub mod measure;

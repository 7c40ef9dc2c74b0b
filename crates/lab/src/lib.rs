//! Experiments, and the measurements in them.
//!
//! # Model
//! An [`experiment`] makes a [`bench`]: the daemon and guest processes, each this same program
//! started anew and pinned, over real vhost-user sockets. What runs in a guest process, generators
//! and forwarders on virtio rings, is the crate `traffic`. [`measure`] holds measurements of single
//! parts. What an experiment's file can ask for, its results, their statistics and reports are
//! data, and the crate `report`.

pub mod bench;
pub mod experiment;
pub mod measure;

//! Experiments: traffic, guests, measurement, reports.
//!
//! # Model
//! An [`experiment`] makes a [`bench`]: the daemon and guest processes, each this same program
//! started anew and pinned, over real vhost-user sockets. [`guest`] is what runs in a guest
//! process: generators and forwarders on virtio rings. [`measure`] holds measurements of single
//! parts. [`report`] shows results, and knows nothing of how they came about.
//! [`statistics`] searches rates and compares samples.

pub mod bench;
pub mod experiment;
pub mod guest;
pub mod measure;
pub mod report;
pub mod statistics;

//! `shunt-agent`: the node agent of Shunt for Kubernetes, a DRA driver.
//!
//! # Model
//! A device is a VF of a NIC, or a port of a switch; [`inventory`] lists them from the daemon, and
//! [`slices`] publishes them. The scheduler allocates devices to claims. The kubelet has a claim
//! prepared before it starts a pod ([`plugin`]): [`allocation`] makes an adapter of each device,
//! and the [`keeper`] brings it into the daemon's document. The adapter's interface waits without a
//! network namespace until a hook of the container ([`cdi`]) gives it that of the pod: `shunt-cni
//! attach`. A container whose hook fails does not start.
//!
//! The daemon's document says what there is: the owner of an adapter has the UIDs of claim and pod.
//! The [`checkpoint`] says what was promised to the kubelet, for the time when the daemon has
//! forgotten or CDI files are gone. [`reconcile`] releases what no pod has. [`node_config`] gives
//! the daemon its NICs, switches and tunnels.

pub mod agent;
pub mod allocation;
pub mod cdi;
pub mod checkpoint;
pub mod cluster;
pub mod health;
pub mod inventory;
pub mod keeper;
pub mod metadata;
pub mod node_config;
pub mod options;
pub mod parameters;
pub mod plugin;
pub mod proto;
pub mod reconcile;
pub mod registration;
pub mod slices;

use std::io::Write;

/// Writes a line to the log.
fn log(text: &str) {
    // Without a log the agent works on.
    let _ = writeln!(std::io::stderr(), "shunt-agent: {text}");
}

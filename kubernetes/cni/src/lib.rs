//! `shunt-cni`: the CNI plugin of Shunt (CNI specification 1.1).
//!
//! # Model
//! A container's interface is an adapter of the daemon: a tap in the container's network namespace,
//! the interface of a VF, or a vhost-user socket. The plugin keeps no state of its own. The name of
//! the adapter is made of network, container and interface, and its owner's labels have them, so
//! each command finds what ADD made, and GC finds what no container has. Addresses come from an
//! IPAM plugin; the daemon sets them with the interface.
//!
//! The same executable is the hook of containers with adapters of a claim ([`hook`]), and copies
//! itself to a node ([`install`]).
//!
//! Order: an adapter is deleted before its address is released, so no two have it.

pub mod adapter;
pub mod commands;
pub mod config;
pub mod delegate;
pub mod environment;
pub mod error;
pub mod hook;
pub mod install;
pub mod result;

use std::io::Read;

use commands::Call;
use config::{Network, VERSIONS};
use environment::{Command, Environment};
use error::{CniError, Code};
use serde_json::{Value, json};

/// Runs a command with the variables that `get` gives; returns what is to be printed.
///
/// # Errors
/// The error to be printed.
pub fn run(
    get: impl Fn(&str) -> Option<String>,
    mut input: impl Read,
) -> Result<Option<Value>, Value> {
    let newest = VERSIONS[VERSIONS.len() - 1];
    let failed = |error: CniError| error.json(newest);
    let environment = Environment::read(get).map_err(failed)?;
    if environment.command == Command::Version {
        return Ok(Some(json!({"cniVersion": newest, "supportedVersions": VERSIONS})));
    }
    let mut text = Vec::new();
    let read = input.read_to_end(&mut text).map_err(|error| {
        let message = format!("standard input cannot be read: {error}");
        CniError::new(Code::Io, message, "the runtime must write the network's configuration to it")
    });
    read.map_err(failed)?;
    let network = Network::read(&text).map_err(failed)?;
    let call = Call { environment: &environment, network: &network, text: &text };
    call.run().map_err(|error| error.json(&network.version))
}

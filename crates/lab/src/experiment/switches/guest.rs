//! Kinds of guests: one file each, and a line in [`Guest::ALL`].

mod lab;
mod qemu;
mod testpmd;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::side::SideSpec;
use super::switch::Switch;
use crate::bench::peers::Veths;

pub(super) use testpmd::TESTPMD_PAGES;

/// A guest, by its kind.
#[derive(Clone, Copy)]
pub struct Guest(&'static GuestKind);

/// A kind of guest.
pub(super) struct GuestKind {
    /// Name as in the CLI and JSON.
    name: &'static str,
    /// Description for help texts.
    about: &'static str,
    /// Reason that it cannot be started, and the remedy, by the path of this program; `None` if it
    /// can.
    pub(super) missing: fn(&Path) -> Option<String>,
    /// Huge pages of 2 MiB that it needs.
    pub(super) hugepages: u64,
    /// Attaches it to vhost-user sockets, on which it listens.
    pub(super) on_sockets: Attach<[PathBuf; 2]>,
    /// Attaches it to interfaces of the lab's network namespace, if supported.
    pub(super) on_interfaces: Option<Attach<Veths>>,
}

/// Starts a guest on two ports.
type Attach<Ports> = fn(&SideSpec<'_>, &Ports) -> Result<Box<dyn GuestProcess>>;

/// A running guest with two ports, between which it moves frames; ended when dropped.
pub(super) trait GuestProcess: fmt::Debug {
    /// Process id.
    fn pid(&self) -> u32;

    /// Resumes its clock after its process; or stops it before its process is stopped.
    fn set_running(&mut self, _runs: bool) -> Result<()> {
        Ok(())
    }

    /// Waits until both ports are attached, and returns their negotiated virtio features.
    fn wait_ready(&mut self) -> Result<Vec<u64>>;

    /// Injects `bursts` of frames from each port, `frame_bytes` with FCS.
    fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()>;

    /// Frames per second received by both ports since the last call.
    fn received_per_s(&mut self) -> Result<f64>;

    /// Drains all frames from the rings; returns their number.
    fn drain(&mut self) -> Result<u64>;
}

impl Guest {
    /// All guests.
    pub const ALL: [Guest; 3] = [Guest(&testpmd::KIND), Guest(&lab::KIND), Guest(&qemu::KIND)];

    /// Returns `true` if it has ports for a switch.
    pub fn fits(self, switch: Switch) -> bool {
        switch.is_vhost_user() || self.0.on_interfaces.is_some()
    }

    pub(super) fn kind(self) -> &'static GuestKind {
        self.0
    }
}

super::kind::named!(Guest, "guest");

//! Kinds of switches: one file each, and a line in [`SwitchType::ALL`].

mod bare;
mod linux_bridge;
mod ovs_dpdk;
mod ovs_userspace;
mod shunt;
mod testpmd;

use super::launch::{Start, SwitchKind};

/// A switch, by its kind.
#[derive(Clone, Copy)]
pub struct SwitchType(&'static SwitchKind);

impl SwitchType {
    /// All switches.
    pub const ALL: [SwitchType; 10] = [
        SwitchType(&bare::KIND),
        SwitchType(&shunt::VFS),
        SwitchType(&shunt::VFS_BESIDE_SWITCH),
        SwitchType(&shunt::SWITCH),
        SwitchType(&shunt::RULES),
        SwitchType(&ovs_dpdk::FLOWS),
        SwitchType(&ovs_dpdk::RULES),
        SwitchType(&ovs_userspace::KIND),
        SwitchType(&testpmd::KIND),
        SwitchType(&linux_bridge::KIND),
    ];

    /// Returns `true` if its program is installed.
    pub fn is_installed(self) -> bool {
        (self.0.is_installed)()
    }

    /// Returns `true` if its ports are vhost-user sockets; otherwise they are interfaces of the
    /// kernel.
    pub fn is_vhost_user(self) -> bool {
        matches!(self.0.start, Start::Sockets(_))
    }

    /// Meaning of its cycles, unless they are busy cycles of a polling thread.
    pub fn cycles(self) -> Option<&'static str> {
        self.0.cycles
    }

    pub(super) fn kind(self) -> &'static SwitchKind {
        self.0
    }
}

super::kind::named!(SwitchType, "switch");

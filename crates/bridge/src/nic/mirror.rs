//! Copies of a function's frames for a monitor.

use crate::nic::Table;
use crate::nic::function::MirrorTarget;
use crate::{Action, PortId, Verdict, VlanEdit};

/// A copy to make of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorCopy {
    /// The function that is mirrored.
    pub of: PortId,
    /// Target of the copy.
    pub to: MirrorTarget,
    /// Edit of the copy, which shows the frame as the mirrored function sees it.
    pub edit: VlanEdit,
}

impl Table {
    /// Returns `true` if any function is mirrored; otherwise there are no copies.
    #[inline]
    pub const fn is_mirrored(&self) -> bool {
        self.mirrored
    }

    /// Calls `copy` for each mirror copy of a frame with this verdict of
    /// [`classify`](Self::classify).
    ///
    /// Dropped frames are not mirrored; frames without a buffer at the receiver are. Copies are not
    /// mirrored again, and none goes back to the frame's port, or to a port whose link is down.
    pub fn mirror(
        &self,
        from: PortId,
        header: &[u8; 16],
        verdict: Verdict,
        mut copy: impl FnMut(MirrorCopy),
    ) {
        if !self.mirrored || verdict.is_drop() {
            return;
        }
        let reachable = |to: MirrorTarget| match to {
            MirrorTarget::Port(port) => port != from && self.is_up(port),
            MirrorTarget::Capture(_) => true,
        };
        let mut of = |port: PortId, egress: bool, edit: VlanEdit| {
            let mirror = self.port(port).and_then(|port| port.mirror);
            let wanted = mirror.filter(|mirror| match egress {
                true => mirror.way.has_egress(),
                false => mirror.way.has_ingress(),
            });
            if let Some(mirror) = wanted.filter(|mirror| reachable(mirror.to)) {
                copy(MirrorCopy { of: port, to: mirror.to, edit });
            }
        };
        of(from, true, VlanEdit::None);
        match verdict.action() {
            Action::Port(to) => of(to, false, self.edit_of(from, to, header)),
            Action::Flood(_) => self
                .receivers(from, header)
                .for_each(|to| of(to, false, self.edit_of(from, to, header))),
            Action::Drop(_) => (),
        }
    }
}

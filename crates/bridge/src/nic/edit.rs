//! What the VLAN rules do to a frame's tag on its way from one port to another.
//!
//! Within the bridge a frame belongs to a VLAN. It leaves with that VLAN's tag to the uplink, to a
//! switch on the PF and to a trunk that has the VLAN, and without to an access port and to a trunk
//! whose native VLAN it is. A queue is what its settings make of it, access port or trunk. Frames
//! of VLAN 0 keep what they have. A tag that is put on is the sender's: its qos, its protocol.

use wire::{FrameHeader, VlanEdit};

use crate::PortId;
use crate::nic::{Function, Table};

/// What a port does with tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagging {
    /// The VLAN of its untagged frames, 0 for none.
    native: u16,
    /// Whether frames of other VLANs carry tags there.
    trunk: bool,
    /// What is put on its untagged frames.
    tag: [u8; 4],
}

impl Tagging {
    /// A trunk of all VLANs: also the switch's, and that of a port that does not exist.
    pub(crate) const UPLINK: Self = Self { native: 0, trunk: true, tag: [0; 4] };

    pub(crate) fn of(function: &Function) -> Self {
        Self {
            native: function.vid(),
            trunk: !function.trunk.is_empty(),
            tag: function.vlan.map_or([0; 4], |vlan| vlan.tag()),
        }
    }

    /// Whether some of its frames carry the tag of their VLAN though others do not.
    const fn is_mixed(self) -> bool {
        self.trunk && self.native != 0
    }
}

impl Table {
    /// What to do to the tag of every frame that [`classify`](Self::classify) lets pass from one
    /// port to another, if that is the same for all: so one answer serves a whole group. `None` if
    /// it depends on the frame, as from and to a trunk with a native VLAN; then see
    /// [`edit_of`](Self::edit_of).
    ///
    /// To an access port from a trunk or the uplink, a frame is always tagged, since it was found
    /// in a VLAN above 0; from an access port it never is; and between two functions, both are in
    /// the same VLAN.
    #[inline]
    pub fn edit(&self, from: PortId, to: PortId) -> Option<VlanEdit> {
        let (from, to) = (self.tagging(from), self.tagging(to));
        if from.is_mixed() || to.is_mixed() {
            return None;
        }
        Some(match (from.native, to.native) {
            (1.., _) if to.trunk => VlanEdit::Push(from.tag),
            (_, 1..) if from.trunk => VlanEdit::Pop,
            _ => VlanEdit::None,
        })
    }

    /// What to do to the tag of a frame that [`classify`](Self::classify) lets pass from one port
    /// to another.
    #[inline]
    pub fn edit_of(&self, from: PortId, to: PortId, head: &[u8; 16]) -> VlanEdit {
        let tag_bits = FrameHeader(*head).tag_bits();
        let Ok(source) = self.source(from) else { return VlanEdit::None };
        let vid = source.vid_of(tag_bits);
        if vid == 0 {
            return VlanEdit::None;
        }
        let (from, to) = (self.tagging(from), self.tagging(to));
        let wants_tag = to.trunk && to.native != vid;
        match (wants_tag, source.is_in_tag(tag_bits), source.is_priority(tag_bits)) {
            (true, true, _) | (false, false, false) => VlanEdit::None,
            (true, false, false) => VlanEdit::Push(from.tag),
            (true, false, true) => VlanEdit::Retag(from.tag),
            (false, true, _) | (false, false, true) => VlanEdit::Pop,
        }
    }
}

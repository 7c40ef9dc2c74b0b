//! VLAN tag edits between ports.
//!
//! Inside the bridge a frame belongs to a VLAN. It leaves with the VLAN's tag to the uplink, to a
//! switch on the PF, and to a trunk that has the VLAN. It leaves without a tag to an access port,
//! and to a trunk whose native VLAN it is. A queue is an access port or trunk by its settings.
//! Frames of VLAN 0 are unchanged. A pushed tag has the sender's qos and protocol.

use wire::{FrameHeader, VlanEdit};

use crate::PortId;
use crate::nic::{Function, Table};

/// Tag handling of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagging {
    /// The VLAN of its untagged frames, 0 for none.
    native: u16,
    /// Set if frames of other VLANs carry tags at this port.
    trunk: bool,
    /// Tag pushed on its untagged frames.
    tag: [u8; 4],
}

impl Tagging {
    /// A trunk of all VLANs: the uplink, the switch, and a port that does not exist.
    pub(crate) const UPLINK: Self = Self { native: 0, trunk: true, tag: [0; 4] };

    pub(crate) fn of(function: &Function) -> Self {
        Self {
            native: function.vid(),
            trunk: !function.trunk.is_empty(),
            tag: function.vlan.map_or([0; 4], |vlan| vlan.tag()),
        }
    }

    /// Returns `true` if only some of its frames carry their VLAN's tag.
    const fn is_mixed(self) -> bool {
        self.trunk && self.native != 0
    }
}

impl Table {
    /// Edit for all frames that [`classify`](Self::classify) forwards from one port to another, so
    /// that one answer serves a whole group. `None` if the edit depends on the frame, as for a
    /// trunk with a native VLAN; then use [`edit_of`](Self::edit_of).
    ///
    /// From a trunk or the uplink to an access port, a frame is always tagged, because its VLAN is
    /// above 0. From an access port it never is. Between two functions, both are in the same VLAN.
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

    /// Edit for a frame that [`classify`](Self::classify) forwards from one port to another.
    #[inline]
    pub fn edit_of(&self, from: PortId, to: PortId, header: &[u8; 16]) -> VlanEdit {
        let tag_bits = FrameHeader(*header).tag_bits();
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

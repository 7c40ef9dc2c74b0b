//! Sender of a burst, as the classifier sees it.

use wire::FrameHeader;
use wire::vlan::TPID_8021Q;

use crate::nic::{Function, Mode, NicConfig, Vids, VlanProtocol};
use crate::{DropReason, PortId, Verdict};

/// The bits of a VID.
const VID_BITS: u16 = 0xfff;

/// Tags that a function may send in spite of [`Source::forbidden`].
#[derive(Clone, Copy, Debug)]
enum Tags {
    /// None.
    None,
    /// Customer tags, which are payload beneath its own service tag.
    Payload,
    /// Those of the trunk with this number.
    Trunk(u16),
}

/// A port as the origin of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Verdict for the port itself, to recognise a hairpin.
    pub(crate) own: Verdict,
    /// Verdict on unknown unicast in the VLAN `vid`.
    pub(crate) miss: Verdict,
    /// The VLAN of every untagged frame; 0 for none.
    pub(crate) vid: u16,
    /// Bits of [`FrameHeader::tag_bits`] that select the VLAN: the VID from the uplink and from
    /// trunks, else none.
    pub(crate) vid_mask: u16,
    /// Bits of [`FrameHeader::tag_bits`] that must be clear: all on an access port, the VID on an
    /// untagged function, none on the uplink.
    forbidden: u16,
    /// Exceptions from `forbidden`.
    tags: Tags,
    /// The key of the only MAC that a checked function may send from.
    pub(crate) src_key: u64,
    /// All ones if `src_key` is to be compared; 0 if not.
    pub(crate) src_mask: u64,
    /// Set if the source MAC must be looked up, because several are allowed.
    pub(crate) src_lookup: bool,
    /// The bridge's mode.
    pub(crate) mode: Mode,
    /// Set for the PF with the switch; the owners of queues are behind it too.
    pub(crate) is_switch: bool,
    /// Set if the verdict on unknown unicast depends on the VLAN; only for the switch.
    pub(crate) miss_varies: bool,
    /// Set if the mode may change the verdict on a known destination.
    pub(crate) is_indirect: bool,
}

impl Source {
    pub(crate) const fn uplink(mode: Mode) -> Self {
        Self {
            own: Verdict::port(PortId::UPLINK),
            miss: Verdict::drop(DropReason::NoMatch),
            vid: 0,
            vid_mask: VID_BITS,
            forbidden: 0,
            tags: Tags::None,
            src_key: 0,
            src_mask: 0,
            src_lookup: false,
            mode,
            is_switch: false,
            miss_varies: false,
            is_indirect: matches!(mode, Mode::Vepa),
        }
    }

    /// The PF with the switch: a trunk of every VLAN, which may send from any MAC.
    pub(crate) fn switch(config: &NicConfig) -> Self {
        let promiscuous = config.functions().any(|(_, function)| function.promiscuous);
        Self {
            own: Verdict::port(PortId::PF),
            miss: Verdict::port(PortId::UPLINK),
            is_switch: true,
            miss_varies: config.floods_unknown && promiscuous,
            is_indirect: config.mode != Mode::Veb,
            ..Self::uplink(config.mode)
        }
    }

    /// `trunk` is the number of the function's trunk, if it has one.
    pub(crate) fn function(
        port: PortId,
        function: &Function,
        trunk: Option<u16>,
        mode: Mode,
    ) -> Self {
        let single = function.macs().nth(1).is_none();
        let (forbidden, tags) = match (trunk, function.vlan) {
            (Some(number), _) => (VID_BITS, Tags::Trunk(number)),
            (None, None) => (VID_BITS, Tags::None),
            (None, Some(vlan)) => match vlan.protocol {
                VlanProtocol::Ieee8021Q => (FrameHeader::TAGGED | VID_BITS, Tags::None),
                VlanProtocol::Ieee8021Ad => (FrameHeader::TAGGED | VID_BITS, Tags::Payload),
            },
        };
        Self {
            own: Verdict::port(port),
            miss: Verdict::port(PortId::UPLINK),
            vid: function.vid(),
            vid_mask: if trunk.is_some() { VID_BITS } else { 0 },
            forbidden,
            tags,
            src_key: function.mac.key(),
            src_mask: if function.spoof_check && single { u64::MAX } else { 0 },
            src_lookup: function.spoof_check && !single,
            mode,
            is_switch: false,
            miss_varies: false,
            is_indirect: mode != Mode::Veb,
        }
    }

    /// Its port.
    #[inline]
    pub(crate) const fn port(&self) -> PortId {
        PortId(self.own.raw())
    }

    #[inline]
    pub(crate) const fn is_uplink(&self) -> bool {
        self.own.raw() == Verdict::port(PortId::UPLINK).raw()
    }

    /// Returns `true` if another tag follows a frame's priority tag. Receivers remove a priority
    /// tag and classify by the next one, so such a frame enters a VLAN that was not checked.
    ///
    /// `second` tests for the other tag; it is called for priority-tagged frames only.
    #[inline]
    pub(crate) fn hides_vlan(&self, header: FrameHeader, second: impl FnOnce() -> bool) -> bool {
        let is_function = !self.is_uplink() && !self.is_switch;
        header.is_priority_tagged() && is_function && second()
    }

    /// Returns `true` if a frame with this verdict would go back to this port.
    #[inline]
    pub(crate) const fn is_own(&self, verdict: Verdict) -> bool {
        verdict.raw() == self.own.raw() || (self.is_switch && verdict.is_queue())
    }

    /// The VLAN of a frame by its [`FrameHeader::tag_bits`].
    #[inline]
    pub(crate) const fn vid_of(&self, tag_bits: u16) -> u16 {
        let tagged = tag_bits & self.vid_mask;
        if tagged != 0 { tagged } else { self.vid }
    }

    /// Returns `true` if a frame carries its VLAN's tag, by its [`FrameHeader::tag_bits`].
    #[inline]
    pub(crate) const fn is_in_tag(&self, tag_bits: u16) -> bool {
        tag_bits & self.vid_mask != 0
    }

    /// Returns `true` for a priority tag at a port with a VLAN for such frames.
    #[inline]
    pub(crate) const fn is_priority(&self, tag_bits: u16) -> bool {
        let chooses = self.vid_mask != 0 && self.vid != 0;
        chooses && tag_bits & (FrameHeader::TAGGED | VID_BITS) == FrameHeader::TAGGED
    }

    /// Returns `true` if the VLAN rules reject a frame.
    #[inline]
    pub(crate) fn forbids(&self, header: FrameHeader, trunks: &[Vids]) -> bool {
        header.tag_bits() & self.forbidden != 0 && self.forbids_in_full(header, trunks)
    }

    #[cold]
    fn forbids_in_full(&self, header: FrameHeader, trunks: &[Vids]) -> bool {
        match self.tags {
            Tags::None => true,
            Tags::Payload => header.tpid_or_type() != TPID_8021Q,
            Tags::Trunk(number) => {
                let vid = header.tag_bits() & VID_BITS;
                !trunks.get(usize::from(number)).is_some_and(|trunk| trunk.contains(vid))
            }
        }
    }
}

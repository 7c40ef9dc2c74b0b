//! Sender of a burst: its VLANs, tags, limits and checks.

use wire::FrameHeader;
use wire::vlan::vid_of_tci;

use crate::matching::{Layout, PlainMask, Words, place};
use crate::switch::acl::Compiled;
use crate::switch::bins::fresh;
use crate::switch::meter::{Cost, KINDS, Meters};
use crate::switch::{Beyond, Learning, PortConfig, Vlans};
use crate::{DropReason, PortId, Verdict};

/// The bits of a VID.
const VID_BITS: u16 = 0xfff;

// The VID's bits agree with `wire`.
const _: () = assert!(vid_of_tci(u16::MAX) == VID_BITS);

const STORMS: [DropReason; KINDS] =
    [DropReason::StormBroadcast, DropReason::StormMulticast, DropReason::StormUnknown];

/// Index of unknown unicast floods.
pub(crate) const UNKNOWN: usize = 2;

/// Index of a frame's kind of flood, if it is flooded.
pub(crate) fn kind_of(header: FrameHeader) -> usize {
    let dst = header.dst();
    match (dst.is_broadcast(), dst.is_multicast()) {
        (true, _) => 0,
        (_, true) => 1,
        (_, false) => UNKNOWN,
    }
}

/// Guards and ACL of a port.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// The list, by index.
    pub(crate) acl: Option<usize>,
    pub(crate) dhcp_guard: bool,
    pub(crate) router_guard: bool,
    /// Bits of a frame's key that these checks examine.
    pub(crate) mask: Words,
    /// Bits of a plain frame that decide about its key, by layout.
    pub(crate) plain: [PlainMask; Layout::COUNT],
}

impl Screen {
    /// `None` if there is nothing to check: the first 16 bytes of a frame suffice.
    pub(crate) fn new(config: &PortConfig, acls: &[Compiled]) -> Option<Box<Self>> {
        let PortConfig { acl, dhcp_guard, router_guard, .. } = *config;
        if acl.is_none() && !dhcp_guard && !router_guard {
            return None;
        }
        let list = acl.and_then(|acl| acls.get(acl));
        let mut mask = list.map_or([0; 8], Compiled::mask);
        if dhcp_guard || router_guard {
            for (word, shift) in [place::SRC_PORT, place::DST_PORT] {
                mask[word] |= u64::from(u16::MAX) << shift;
            }
            for (word, shift) in [place::PROTOCOL, place::HAS] {
                mask[word] |= u64::from(u8::MAX) << shift;
            }
        }
        let plain = PlainMask::all(&mask);
        Some(Box::new(Self { acl, dhcp_guard, router_guard, mask, plain }))
    }
}

/// Sender of a burst, as the classifier sees it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) port: PortId,
    /// Answer of a look-up for an address of this port that was just seen.
    pub(crate) fresh: u64,
    /// The VLAN of frames without a tag, or with a priority tag.
    pub(crate) native: u16,
    /// Bits of [`FrameHeader::tag_bits`] that must be clear.
    pub(crate) forbidden: u16,
    /// Checks for tags behind a priority tag. Not at the uplink: the NIC checks its functions.
    checks_second: bool,
    /// Bits of [`FrameHeader::tag_bits`] that select the VLAN.
    pub(crate) vid_mask: u16,
    pub(crate) trunk: bool,
    /// The tag of its untagged frames, where they have one.
    pub(crate) tag: [u8; 4],
    /// Set if customer tags are payload here.
    pub(crate) service: bool,
    pub(crate) isolated: bool,
    /// Set if the previous port of an address does not matter, unless it is a static entry.
    pub(crate) careless: bool,
    pub(crate) learning: Learning,
    pub(crate) storm: [Cost; KINDS],
    /// `None` if it has neither guards nor an ACL.
    pub(crate) screen: Option<Box<Screen>>,
}

impl Source {
    pub(crate) fn new(port: PortId, config: &PortConfig, acls: &[Compiled]) -> Self {
        let (trunk, forbidden) = match config.vlans {
            Vlans::Trunk { .. } => (true, 0),
            Vlans::Access(None) => (false, VID_BITS),
            Vlans::Access(Some(_)) => (false, FrameHeader::TAGGED | VID_BITS),
        };
        let PortConfig { learning, storm, .. } = *config;
        Self {
            port,
            fresh: fresh(port),
            native: config.vlans.native(),
            forbidden,
            checks_second: port != PortId::UPLINK,
            vid_mask: if trunk { VID_BITS } else { 0 },
            trunk,
            tag: config.tagging.bytes(config.vlans.native()),
            service: config.tagging.service,
            isolated: config.isolated,
            careless: learning == Learning { limit: 0, beyond: Beyond::Forward },
            learning,
            storm: [storm.broadcast, storm.multicast, storm.unknown].map(Cost::of_rate),
            screen: Screen::new(config, acls),
        }
    }

    /// The VLAN of a frame by its [`FrameHeader::tag_bits`].
    #[inline(always)]
    pub(crate) const fn vid_of(&self, tag_bits: u16) -> u16 {
        let vid = tag_bits & self.vid_mask;
        if vid == 0 { self.native } else { vid }
    }

    /// Returns `true` if another tag follows a frame's priority tag. Receivers remove a priority
    /// tag and classify by the next one, so such a frame enters a VLAN that was not checked.
    ///
    /// `second` tests for the other tag; it is called for priority-tagged frames only.
    #[inline]
    pub(crate) fn hides_vlan(&self, header: FrameHeader, second: impl FnOnce() -> bool) -> bool {
        header.is_priority_tagged() && self.checks_second && second()
    }

    /// Number of floods of a kind that pass storm control, and the drop reason for the others.
    pub(crate) fn storm(
        &self,
        meters: &Meters,
        (header, verdict): (FrameHeader, Verdict),
        frames: usize,
        now_ns: u64,
    ) -> (usize, Verdict) {
        let kind = kind_of(header);
        debug_assert_eq!(kind == UNKNOWN, verdict == Verdict::FLOOD_UNKNOWN);
        let granted = meters.take((self.port, kind), self.storm[kind], frames, now_ns);
        (granted, Verdict::drop(STORMS[kind]))
    }
}

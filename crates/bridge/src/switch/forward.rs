//! The rules for one frame, in full: which VLAN, what is learned, where it goes.

use wire::vlan::{TPID_8021Q, vid_of_tci};
use wire::{FrameHeader, HeaderSnapshot, Mac};

use crate::switch::acl::Compiled;
use crate::switch::bins::{fresh, key};
use crate::switch::fdb::{Fdb, Learned};
use crate::switch::meter::{Cost, KINDS, Meters};
use crate::switch::screen::Screen;
use crate::switch::{Beyond, Learning, PortConfig, State, Table, Vlans};
use crate::{DropReason, Flood, PortId, Verdict};

/// How many addresses a burst may bring, so that a guest that makes addresses up does not hold up
/// the others; the next burst may bring more.
pub const LEARN_MAX: usize = 8;

/// The bits of a VID.
const VID_BITS: u16 = 0xfff;
/// The key of `01:80:c2:00:00:00`, and what of it is compared: all but the last four bits.
const LINK_LOCAL: u64 = Mac([0x01, 0x80, 0xc2, 0, 0, 0]).key();
const LINK_LOCAL_MASK: u64 = Mac([0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]).key();

const STORMS: [DropReason; KINDS] =
    [DropReason::StormBroadcast, DropReason::StormMulticast, DropReason::StormUnknown];

/// Index of floods of unknown addresses.
const UNKNOWN: usize = 2;

/// Index of the kind of flood that a frame is, if it is flooded.
fn kind_of(head: FrameHeader) -> usize {
    let dst = head.dst();
    match (dst.is_broadcast(), dst.is_multicast()) {
        (true, _) => 0,
        (_, true) => 1,
        (_, false) => UNKNOWN,
    }
}

/// What the classifier has to know of the port that a burst comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) port: PortId,
    /// The answer of a look-up for an address of this port that was just seen.
    pub(crate) fresh: u64,
    /// The VLAN of frames without a tag, or with a priority tag.
    pub(crate) native: u16,
    /// The bits of [`FrameHeader::tag_bits`] that must not be set.
    pub(crate) forbidden: u16,
    /// Checks for tags behind a priority tag. Not at the uplink: the NIC checks its functions.
    checks_second: bool,
    /// The bits of [`FrameHeader::tag_bits`] that choose the VLAN.
    pub(crate) vid_mask: u16,
    pub(crate) trunk: bool,
    /// The tag of its untagged frames, where they have one.
    pub(crate) tag: [u8; 4],
    /// Whether customer tags are payload here.
    service: bool,
    pub(crate) isolated: bool,
    /// Whether it makes no difference where an address that is no static entry was seen.
    pub(crate) careless: bool,
    learning: Learning,
    storm: [Cost; KINDS],
    pub(crate) screen: Screen,
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
    pub(crate) fn hides_vlan(&self, head: FrameHeader, second: impl FnOnce() -> bool) -> bool {
        head.is_priority_tagged() && self.checks_second && second()
    }

    /// How many of so many floods of a kind pass storm control, and why the others do not.
    pub(crate) fn storm(
        &self,
        meters: &Meters,
        (head, verdict): (FrameHeader, Verdict),
        frames: usize,
        now_ns: u64,
    ) -> (usize, Verdict) {
        let kind = kind_of(head);
        debug_assert_eq!(kind == UNKNOWN, verdict == Verdict::FLOOD_UNKNOWN);
        let granted = meters.take((self.port, kind), self.storm[kind], frames, now_ns);
        (granted, Verdict::drop(STORMS[kind]))
    }
}

impl Table {
    /// Rules 2 to 5: the VLAN of an admitted frame. A priority-tagged frame needs its snapshot.
    #[inline]
    pub(crate) fn admit(
        &self,
        source: &Source,
        head: FrameHeader,
        deep: Option<&HeaderSnapshot>,
    ) -> Result<u16, DropReason> {
        if head.src_key() & 1 != 0 {
            return Err(DropReason::SourceMulticast);
        }
        let tag = head.tag_bits();
        let vid = source.vid_of(tag);
        let payload = source.service && head.tpid_or_type() == TPID_8021Q;
        let second = || deep.is_none_or(HeaderSnapshot::has_second_tag);
        if (tag & source.forbidden != 0 && !payload)
            || !self.groups.reach[0].has(vid, source.port)
            || source.hides_vlan(head, second)
        {
            return Err(DropReason::VlanForbidden);
        }
        if head.dst_key() & LINK_LOCAL_MASK == LINK_LOCAL {
            return Err(DropReason::LinkLocal);
        }
        match self.fixed(key(head.src_key(), vid)) {
            Some(port) if port != source.port => Err(DropReason::SpoofedMac),
            _ => Ok(vid),
        }
    }

    /// Rule 9: learns the source of a frame that was let in; says whether that changed anything.
    pub(crate) fn learn(
        &self,
        fdb: &Fdb,
        source: &Source,
        (head, vid): (FrameHeader, u16),
        budget: &mut usize,
    ) -> Result<bool, DropReason> {
        let key = key(head.src_key(), vid);
        let Learning { limit, beyond } = source.learning;
        if source.careless || self.fixed(key).is_some() || fdb.seen(key, source.port) {
            return Ok(false);
        }
        let learned = if fdb.at_limit(source.port, limit) {
            Learned::Limit
        } else if *budget == 0 {
            Learned::Unchanged
        } else {
            *budget -= 1;
            fdb.learn(key, source.port, limit)
        };
        match (learned, beyond) {
            (Learned::Limit, Beyond::Drop) => Err(DropReason::MacLimit),
            (learned, _) => Ok(learned == Learned::Changed),
        }
    }

    /// Rules 10 to 13: where a frame goes.
    pub(crate) fn forward(
        &self,
        fdb: &Fdb,
        source: &Source,
        head: FrameHeader,
        vid: u16,
    ) -> Verdict {
        let dst = head.dst_key();
        if dst & 1 != 0 {
            return self.flood(source, vid, Flood::Group);
        }
        let key = key(dst, vid);
        let [members, open] = &self.groups.reach;
        let learned = || fdb.look_up(key).filter(|port| members.has(vid, *port));
        match self.fixed(key).or_else(learned) {
            Some(port) if port == source.port => Verdict::drop(DropReason::Hairpin),
            Some(port) if source.isolated && !open.has(vid, port) => {
                Verdict::drop(DropReason::Isolated)
            }
            Some(port) => Verdict::port(port),
            None => self.flood(source, vid, Flood::Unknown),
        }
    }

    fn flood(&self, source: &Source, vid: u16, flood: Flood) -> Verdict {
        let ports = self.groups.list(source.isolated, vid, flood);
        if ports.iter().all(|port| *port == source.port) {
            return Verdict::drop(DropReason::NoMatch);
        }
        match flood {
            Flood::Group => Verdict::FLOOD,
            Flood::Unknown => Verdict::FLOOD_UNKNOWN,
        }
    }

    /// Charges storm control of a port for the segments of a frame that passed, and for copies to
    /// the peers of a tunnel. The meter may be overdrawn; then no frame passes until it has
    /// recovered.
    pub fn charge_flood(
        &self,
        state: &State,
        from: PortId,
        head: &[u8; 16],
        frames: u32,
        now_ns: u64,
    ) {
        if let Some(source) = self.source(from) {
            let kind = kind_of(FrameHeader(*head));
            state.meters.charge((from, kind), source.storm[kind], frames, now_ns);
        }
    }

    /// Number of frames to unknown addresses that storm control of a port would let pass now;
    /// `u32::MAX` without a limit.
    pub fn unknown_room(&self, state: &State, from: PortId, now_ns: u64) -> u32 {
        self.source(from).map_or(u32::MAX, |source| {
            state.meters.room((from, UNKNOWN), source.storm[UNKNOWN], now_ns)
        })
    }

    /// The port of a static entry.
    #[inline]
    fn fixed(&self, key: u64) -> Option<PortId> {
        let statics = self.statics.as_ref()?;
        statics.bins.find(key).map(|found| found.port())
    }
}

// The VID's bits are what `wire` takes for one.
const _: () = assert!(vid_of_tci(u16::MAX) == VID_BITS);

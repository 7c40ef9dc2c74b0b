//! The rules for one frame, in full: which VLAN, what is learned, where it goes.

use wire::vlan::{TPID_8021Q, vid_of_tci};
use wire::{Head, Mac};

use crate::acl::Compiled;
use crate::bins::{fresh, key};
use crate::fdb::{Fdb, Learned};
use crate::meter::{Cost, KINDS, Meters};
use crate::screen::Screen;
use crate::{Beyond, DropReason, Flood, Learning, PortConfig, PortId, Table, Verdict, Vlans};

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

/// What the classifier has to know of the port that a burst comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) port: PortId,
    /// The answer of a look-up for an address of this port that was just seen.
    pub(crate) fresh: u64,
    /// The VLAN of frames without a tag, or with a priority tag.
    pub(crate) native: u16,
    /// The bits of [`Head::tag_bits`] that must not be set.
    pub(crate) forbidden: u16,
    /// The bits of [`Head::tag_bits`] that choose the VLAN.
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
            Vlans::Access(Some(_)) => (false, Head::TAGGED | VID_BITS),
        };
        let PortConfig { learning, storm, .. } = *config;
        Self {
            port,
            fresh: fresh(port),
            native: config.vlans.native(),
            forbidden,
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

    /// The VLAN of a frame by its [`Head::tag_bits`].
    #[inline(always)]
    pub(crate) const fn vid_of(&self, tag_bits: u16) -> u16 {
        let vid = tag_bits & self.vid_mask;
        if vid == 0 { self.native } else { vid }
    }

    /// How many of so many floods of a kind pass storm control, and why the others do not.
    pub(crate) fn storm(
        &self,
        meters: &Meters,
        (head, verdict): (Head, Verdict),
        frames: usize,
        now_ns: u64,
    ) -> (usize, Verdict) {
        let kind = match (head.dst().is_broadcast(), verdict == Verdict::FLOOD_UNKNOWN) {
            (true, _) => 0,
            (_, false) => 1,
            (_, true) => 2,
        };
        let granted = meters.take((self.port, kind), self.storm[kind], frames, now_ns);
        (granted, Verdict::drop(STORMS[kind]))
    }
}

impl Table {
    /// Rules 2 to 5: the VLAN of a frame that may come in.
    #[inline]
    pub(crate) fn admit(&self, source: &Source, head: Head) -> Result<u16, DropReason> {
        if head.src_key() & 1 != 0 {
            return Err(DropReason::SourceMulticast);
        }
        let tag = head.tag_bits();
        let vid = source.vid_of(tag);
        let payload = source.service && head.tpid_or_type() == TPID_8021Q;
        if (tag & source.forbidden != 0 && !payload) || !self.groups.reach[0].has(vid, source.port)
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
        (head, vid): (Head, u16),
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
    pub(crate) fn forward(&self, fdb: &Fdb, source: &Source, head: Head, vid: u16) -> Verdict {
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

    /// The port of a static entry.
    #[inline]
    fn fixed(&self, key: u64) -> Option<PortId> {
        let statics = self.statics.as_ref()?;
        statics.bins.find(key).map(|found| found.port())
    }
}

// The VID's bits are what `wire` takes for one.
const _: () = assert!(vid_of_tci(u16::MAX) == VID_BITS);

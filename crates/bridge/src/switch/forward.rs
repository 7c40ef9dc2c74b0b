//! Rules for one frame: VLAN, learning, destination.

use wire::vlan::TPID_8021Q;
use wire::{FrameHeader, HeaderSnapshot, Mac};

use crate::switch::bins::key;
use crate::switch::fdb::{Fdb, Learned};
use crate::switch::source::{Source, UNKNOWN, kind_of};
use crate::switch::{Beyond, Learning, State, Table};
use crate::{DropReason, Flood, PortId, Verdict};

/// Maximum number of addresses learned from a burst, so that a guest with made-up addresses does
/// not delay others; the next burst may bring more.
pub const LEARN_MAX: usize = 8;

/// Key of `01:80:c2:00:00:00`; all but the last four bits are compared.
const LINK_LOCAL: u64 = Mac([0x01, 0x80, 0xc2, 0, 0, 0]).key();
const LINK_LOCAL_MASK: u64 = Mac([0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]).key();

impl Table {
    /// Rules 2 to 5: the VLAN of an admitted frame. A priority-tagged frame needs its snapshot.
    #[inline]
    pub(crate) fn admit(
        &self,
        source: &Source,
        header: FrameHeader,
        snapshot: Option<&HeaderSnapshot>,
    ) -> Result<u16, DropReason> {
        if header.src_key() & 1 != 0 {
            return Err(DropReason::SourceMulticast);
        }
        let tag = header.tag_bits();
        let vid = source.vid_of(tag);
        let payload = source.service && header.tpid_or_type() == TPID_8021Q;
        let second = || snapshot.is_none_or(HeaderSnapshot::has_second_tag);
        if (tag & source.forbidden != 0 && !payload)
            || !self.groups.reach[0].has(vid, source.port)
            || source.hides_vlan(header, second)
        {
            return Err(DropReason::VlanForbidden);
        }
        if header.dst_key() & LINK_LOCAL_MASK == LINK_LOCAL {
            return Err(DropReason::LinkLocal);
        }
        match self.fixed(key(header.src_key(), vid)) {
            Some(port) if port != source.port => Err(DropReason::SpoofedMac),
            _ => Ok(vid),
        }
    }

    /// Rule 9: learns the source of an admitted frame; returns `true` if that changed anything.
    pub(crate) fn learn(
        &self,
        fdb: &Fdb,
        source: &Source,
        (header, vid): (FrameHeader, u16),
        budget: &mut usize,
    ) -> Result<bool, DropReason> {
        let key = key(header.src_key(), vid);
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

    /// Rules 10 to 13: destination of a frame.
    pub(crate) fn forward(
        &self,
        fdb: &Fdb,
        source: &Source,
        header: FrameHeader,
        vid: u16,
    ) -> Verdict {
        let dst = header.dst_key();
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
        header: &[u8; 16],
        frames: u32,
        now_ns: u64,
    ) {
        if let Some(source) = self.source(from) {
            let kind = kind_of(FrameHeader(*header));
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
    pub(crate) fn fixed(&self, key: u64) -> Option<PortId> {
        let statics = self.statics.as_ref()?;
        statics.bins.find(key).map(|found| found.port())
    }
}

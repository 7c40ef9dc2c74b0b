//! The classifier: a burst of heads in, verdicts out. Every frame passes through here.
//!
//! Model: three speeds. A burst whose heads are all alike (one flow, the common case at high rates)
//! costs a comparison a frame and one look-up. Any other is judged frame by frame in a loop without
//! a branch that depends on a frame, so that neither mispredictions nor cache misses of one frame
//! hold up the next. That loop knows only good unicast frames whose key is in its first slot; it
//! notes all others in a bit mask, and they are judged afterwards, in full and one by one. Between
//! the two stand bursts of several flows from a function of several MACs, whose verdicts are
//! remembered, see [`Flows`].

use std::hint::select_unpredictable as select;

use wire::{FrameHeader, HeaderSnapshot};

use crate::nic::map::key;
use crate::nic::source::Source;
use crate::nic::table::{Table, VIDS};
use crate::nic::{Flows, Mode};
use crate::{BURST, DropReason, PortId, Summary, Verdict, Verdicts};

const SPOOFED_MAC: Verdict = Verdict::drop(DropReason::SpoofedMac);
const SOURCE_MULTICAST: Verdict = Verdict::drop(DropReason::SourceMulticast);
const HAIRPIN: Verdict = Verdict::drop(DropReason::Hairpin);
const VLAN_FORBIDDEN: Verdict = Verdict::drop(DropReason::VlanForbidden);
const ISOLATED: Verdict = Verdict::drop(DropReason::Isolated);

/// Kinds of port, for which the loop is compiled apart.
const UPLINK: u8 = 0;
const ONE_MAC: u8 = 1;
const SEVERAL_MACS: u8 = 2;
/// The uplink, with unknown MACs that are for promiscuous functions.
const OPEN_UPLINK: u8 = 3;
/// The PF with the switch.
const SWITCH: u8 = 4;

impl Table {
    /// Judges up to [`BURST`] frames that came from one port; those beyond are not looked at.
    ///
    /// The head of a frame is its first 16 bytes, taken once: what is judged here must also be what
    /// the receiver gets. The rules are listed in the documentation of the module. A port without a
    /// function, or that does not exist, has all its frames dropped. Priority-tagged frames of
    /// functions are refused, as 16 bytes do not show a second tag: see [`Verdicts::wants_deep`].
    #[inline]
    pub fn classify(
        &self,
        from: PortId,
        heads: &[[u8; 16]],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) -> Summary {
        self.classify_deep(from, heads, &[], flows, out)
    }

    /// As [`classify`](Self::classify), with longer snapshots: one for each head, or none at all.
    #[inline]
    pub fn classify_deep(
        &self,
        from: PortId,
        heads: &[[u8; 16]],
        deep: &[HeaderSnapshot],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) -> Summary {
        let heads = &heads[..heads.len().min(BURST)];
        out.wants_deep = false;
        let source = match self.source(from) {
            Ok(source) => source,
            Err(reason) => return out.fill(heads.len(), Verdict::drop(reason)),
        };
        if let [first, rest @ ..] = heads
            && FrameHeader(*first).is_like_all(rest)
            // Priority-tagged frames may differ behind the first 16 bytes.
            && !source.hides_vlan(FrameHeader(*first), || true)
        {
            let verdict = self.judge(source, FrameHeader(*first), || false);
            return out.fill(heads.len(), verdict);
        }
        out.len = heads.len();
        let untagged = heads.first().is_some_and(|head| !FrameHeader(*head).is_tagged());
        if source.src_lookup && untagged && flows.begin(self.number, source.own) {
            self.judge_flows(source, heads, deep, flows, out);
        } else {
            self.judge_each(source, heads, deep, out);
        }
        match out.as_slice() {
            [] => Summary::Empty,
            // Frames that differ may still go the same way: many flows to one function.
            [first, rest @ ..] if rest.iter().all(|verdict| verdict == first) => {
                Summary::Uniform(*first)
            }
            _ => Summary::Mixed,
        }
    }

    /// Judges frames of a source of several MACs: by what was said of their flows, if it was.
    fn judge_flows(
        &self,
        source: &Source,
        heads: &[[u8; 16]],
        deep: &[HeaderSnapshot],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) {
        let mut unknown = flows.look_up(heads, &mut out.of);
        let many = unknown.count_ones() as usize > heads.len() / 2;
        if many {
            flows.pause();
            self.judge_each(source, heads, deep, out);
        }
        while unknown != 0 {
            let index = unknown.trailing_zeros() as usize;
            unknown &= unknown - 1;
            if !many {
                self.judge_one(source, heads, deep, index, out);
            }
            if let (Some(head), Some(verdict)) = (heads.get(index), out.of.get(index)) {
                let head = FrameHeader(*head);
                if !head.is_tagged() {
                    flows.learn(head, *verdict);
                }
            }
        }
    }

    /// Judges frames that differ: first all in haste, then those that were not so simple.
    fn judge_each(
        &self,
        source: &Source,
        heads: &[[u8; 16]],
        deep: &[HeaderSnapshot],
        out: &mut Verdicts,
    ) {
        let mut open = if source.is_indirect {
            u64::MAX.checked_shr((BURST - heads.len().min(BURST)) as u32).unwrap_or(0)
        } else if source.is_uplink() && self.unknown.is_some() {
            self.judge_in_haste::<OPEN_UPLINK>(source, heads, &mut out.of)
        } else if source.is_uplink() {
            self.judge_in_haste::<UPLINK>(source, heads, &mut out.of)
        } else if source.src_lookup {
            self.judge_in_haste::<SEVERAL_MACS>(source, heads, &mut out.of)
        } else if source.is_switch {
            self.judge_switched(source, heads, &mut out.of)
        } else {
            self.judge_in_haste::<ONE_MAC>(source, heads, &mut out.of)
        };
        while open != 0 {
            let index = open.trailing_zeros() as usize;
            open &= open - 1;
            self.judge_one(source, heads, deep, index, out);
        }
    }

    /// Judges the frame of this number in full.
    #[inline]
    fn judge_one(
        &self,
        source: &Source,
        heads: &[[u8; 16]],
        deep: &[HeaderSnapshot],
        index: usize,
        out: &mut Verdicts,
    ) {
        let Verdicts { of, wants_deep, .. } = out;
        if let (Some(head), Some(verdict)) = (heads.get(index), of.get_mut(index)) {
            let second = || {
                *wants_deep |= deep.is_empty();
                deep.get(index).is_none_or(HeaderSnapshot::has_second_tag)
            };
            *verdict = self.judge(source, FrameHeader(*head), second);
        }
    }

    /// The loop for the switch, out of the way of the others.
    #[inline(never)]
    fn judge_switched(
        &self,
        source: &Source,
        heads: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        self.judge_in_haste::<SWITCH>(source, heads, verdicts)
    }

    /// Gives every frame the verdict that a good unicast frame gets by one look at the hash table,
    /// and returns the set of those for which that may be wrong, frame 0 in bit 0.
    #[inline]
    fn judge_in_haste<const KIND: u8>(
        &self,
        source: &Source,
        heads: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        // By value, so that it stays in registers.
        let source = *source;
        let macs = self.macs.view();
        let unknown = self.unknown.as_deref();
        let mut open = 0_u64;
        for (head, verdict) in heads.iter().zip(verdicts) {
            let head = FrameHeader(*head);
            let (dst, src) = (head.dst_key(), head.src_key());
            let from_uplink = KIND == UPLINK || KIND == OPEN_UPLINK;
            let vid = if from_uplink || KIND == SWITCH {
                head.tag_bits() & source.vid_mask
            } else {
                source.vid
            };
            let there = macs.first(key(dst, vid));
            let miss = match (KIND, unknown) {
                (OPEN_UPLINK, Some(unknown)) => unknown[usize::from(vid) % VIDS],
                _ => source.miss,
            };
            // The compiler would branch on it, and mispredict for each unknown MAC among known.
            *verdict = select(there.found, there.value, miss);

            // In doubt are groups, tags from functions (priority tags are rare), hairpins, sources
            // that are not the one expected, and keys that may have been displaced; from the switch
            // also what may be for a promiscuous function.
            let mut doubt = ((dst | src) & 1 != 0) | there.taken;
            if KIND == SWITCH {
                let own = (there.value == source.own) | there.value.is_queue();
                doubt |= own | (!there.found & source.miss_varies);
            } else if !from_uplink {
                doubt |= (there.value == source.own) | head.is_tagged();
            }
            if KIND == ONE_MAC {
                doubt |= (src ^ source.src_key) & source.src_mask != 0;
            }
            if KIND == SEVERAL_MACS {
                let there = macs.first(key(src, source.vid));
                doubt |= !there.found | (there.value != source.own);
            }
            // The first frame's bit goes in first, and ends up lowest.
            open = open >> 1 | u64::from(doubt) << 63;
        }
        open.checked_shr((BURST - heads.len()) as u32).unwrap_or(0)
    }

    /// Whether a frame's source is none of the function's, where that is checked.
    #[inline(always)]
    pub(crate) fn is_spoofed(&self, source: &Source, head: FrameHeader) -> bool {
        let src = head.src_key();
        if source.src_lookup {
            self.macs.get(key(src, source.vid)) != Some(source.own)
        } else {
            (src ^ source.src_key) & source.src_mask != 0
        }
    }

    /// Judges a frame in full: the rules of the module's documentation, in their order. `second`
    /// says whether there is a second tag.
    fn judge(&self, source: &Source, head: FrameHeader, second: impl FnOnce() -> bool) -> Verdict {
        let (dst, src) = (head.dst_key(), head.src_key());
        if self.is_spoofed(source, head) {
            return SPOOFED_MAC;
        }
        if src & 1 != 0 {
            return SOURCE_MULTICAST;
        }
        if source.forbids(head, &self.trunks) || source.hides_vlan(head, second) {
            return VLAN_FORBIDDEN;
        }
        let vid = source.vid_of(head.tag_bits());
        if dst & 1 != 0 {
            // To a function's group the uplink listens always; in a VLAN that has members beside
            // the uplink, one of them does, unless there are exceptions.
            let heard = match source.is_uplink() {
                false => self.is_up(PortId::UPLINK),
                true => self.all_hear && self.members(vid).len() > 1,
            };
            return if heard { Verdict::FLOOD } else { self.judge_group(source, head) };
        }
        match self.macs.get(key(dst, vid)) {
            Some(port) if source.is_own(port) => HAIRPIN,
            Some(port) if !source.is_indirect => port,
            Some(port) => self.judge_known(source, head, port),
            // Without promiscuous functions it is the same in every VLAN.
            None if self.unknown.is_none() => source.miss,
            None => self.judge_unknown(source, head, vid),
        }
    }

    /// Judges a frame to a group that perhaps nobody hears.
    #[cold]
    fn judge_group(&self, source: &Source, head: FrameHeader) -> Verdict {
        let from = source.port();
        let heard = self.receivers(from, &head.0).next().is_some();
        if heard { Verdict::FLOOD } else { self.nobody(from) }
    }

    /// Judges a frame to a MAC that another port has, in a mode that may keep it from there.
    #[cold]
    fn judge_known(&self, source: &Source, head: FrameHeader, port: Verdict) -> Verdict {
        let vid = source.vid_of(head.tag_bits());
        match (source.mode, source.is_uplink()) {
            (Mode::Veb, _) | (Mode::Isolated, true) => port,
            (Mode::Isolated, false) => ISOLATED,
            (Mode::Vepa, false) => self.judge_unknown(source, head, vid),
            (Mode::Vepa, true) => {
                let sender = self.sender(head, vid);
                if sender == Some(self.home(port)) && port.as_port().is_some() {
                    HAIRPIN
                } else {
                    port
                }
            }
        }
    }

    /// Judges a frame to a MAC that no port has, or that the bridge takes no notice of.
    #[inline(never)]
    fn judge_unknown(&self, source: &Source, head: FrameHeader, vid: u16) -> Verdict {
        if source.is_uplink() {
            return match &self.unknown {
                None => source.miss,
                Some(_) if source.is_indirect => self.miss(PortId::UPLINK, &head.0),
                Some(unknown) => unknown[usize::from(vid) % VIDS],
            };
        }
        if vid == source.vid { source.miss } else { self.miss(source.port(), &head.0) }
    }
}

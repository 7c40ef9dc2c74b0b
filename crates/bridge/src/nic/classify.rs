//! Classifier: verdicts for a burst of frame headers. Every frame passes here.
//!
//! Model: three paths. A burst of equal headers (one flow, the common case at high rates) costs a
//! comparison a frame and one look-up. Any other burst runs through a loop without a data-dependent
//! branch, so a misprediction or cache miss of one frame does not delay the next. That loop handles
//! only valid unicast frames whose key is in its first slot. It marks all others in a bit mask, and
//! these are classified afterwards, one by one. Bursts of several flows from a function with
//! several MACs use cached verdicts, see [`Flows`].

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

/// Kinds of port; the loop is compiled for each.
const UPLINK: u8 = 0;
const ONE_MAC: u8 = 1;
const SEVERAL_MACS: u8 = 2;
/// The uplink, when unknown unicast goes to promiscuous functions.
const OPEN_UPLINK: u8 = 3;
/// The PF with the switch.
const SWITCH: u8 = 4;

impl Table {
    /// Classifies up to [`BURST`] frames from one port and ignores further ones.
    ///
    /// `headers` are the first 16 bytes of each frame, read once: the receiver must get exactly the
    /// bytes that were classified. [`nic`](crate::nic) lists the rules. All frames from a
    /// port without a function, or an unknown port, are dropped. Priority-tagged frames of
    /// functions are rejected, as 16 bytes do not show a second tag: see
    /// [`Verdicts::wants_snapshots`].
    #[inline]
    pub fn classify(
        &self,
        from: PortId,
        headers: &[[u8; 16]],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) -> Summary {
        self.classify_with_snapshots(from, headers, &[], flows, out)
    }

    /// As [`classify`](Self::classify), with a longer snapshot for each frame, or none at all.
    #[inline]
    pub fn classify_with_snapshots(
        &self,
        from: PortId,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) -> Summary {
        let headers = &headers[..headers.len().min(BURST)];
        out.wants_snapshots = false;
        let source = match self.source(from) {
            Ok(source) => source,
            Err(reason) => return out.fill(headers.len(), Verdict::drop(reason)),
        };
        if let [first, rest @ ..] = headers
            && (rest.is_empty() || FrameHeader(*first).is_like_all(rest))
            // Priority-tagged frames may differ behind the first 16 bytes.
            && !source.hides_vlan(FrameHeader(*first), || true)
        {
            let verdict = self.classify_slow(source, FrameHeader(*first), || false);
            return out.fill(headers.len(), verdict);
        }
        out.len = headers.len();
        let untagged = headers.first().is_some_and(|header| !FrameHeader(*header).is_tagged());
        if source.src_lookup && untagged && flows.begin(self.number, source.own) {
            self.classify_flows(source, headers, snapshots, flows, out);
        } else {
            self.classify_each(source, headers, snapshots, out);
        }
        match out.as_slice() {
            [] => Summary::Empty,
            // Different frames may still have the same verdict, as many flows to one function do.
            // Without an early end, so that the compiler compares several at a time.
            [first, rest @ ..] => {
                let differ = |bits, verdict: &Verdict| bits | (verdict.raw() ^ first.raw());
                match rest.iter().fold(0, differ) {
                    0 => Summary::Uniform(*first),
                    _ => Summary::Mixed,
                }
            }
        }
    }

    /// Classifies frames of a source with several MACs by the cached verdicts of their flows.
    fn classify_flows(
        &self,
        source: &Source,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        flows: &mut Flows,
        out: &mut Verdicts,
    ) {
        let mut unknown = flows.look_up(headers, &mut out.of);
        let many = unknown.count_ones() as usize > headers.len() / 2;
        if many {
            flows.pause();
            self.classify_each(source, headers, snapshots, out);
        }
        while unknown != 0 {
            let index = unknown.trailing_zeros() as usize;
            unknown &= unknown - 1;
            if !many {
                self.classify_one(source, headers, snapshots, index, out);
            }
            if let (Some(header), Some(verdict)) = (headers.get(index), out.of.get(index)) {
                let header = FrameHeader(*header);
                if !header.is_tagged() {
                    flows.learn(header, *verdict);
                }
            }
        }
    }

    /// Classifies different frames: all on the fast path, then the doubtful ones one by one.
    fn classify_each(
        &self,
        source: &Source,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        out: &mut Verdicts,
    ) {
        let mut open = if source.is_indirect {
            u64::MAX.checked_shr((BURST - headers.len().min(BURST)) as u32).unwrap_or(0)
        } else if source.is_uplink() && self.unknown.is_some() {
            self.classify_fast::<OPEN_UPLINK>(source, headers, &mut out.of)
        } else if source.is_uplink() {
            self.classify_fast::<UPLINK>(source, headers, &mut out.of)
        } else if source.src_lookup {
            self.classify_fast::<SEVERAL_MACS>(source, headers, &mut out.of)
        } else if source.is_switch {
            self.classify_switched_fast(source, headers, &mut out.of)
        } else {
            self.classify_fast::<ONE_MAC>(source, headers, &mut out.of)
        };
        while open != 0 {
            let index = open.trailing_zeros() as usize;
            open &= open - 1;
            self.classify_one(source, headers, snapshots, index, out);
        }
    }

    /// Classifies one frame in full.
    #[inline]
    fn classify_one(
        &self,
        source: &Source,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        index: usize,
        out: &mut Verdicts,
    ) {
        let Verdicts { of, wants_snapshots, .. } = out;
        if let (Some(header), Some(verdict)) = (headers.get(index), of.get_mut(index)) {
            let second = || {
                *wants_snapshots |= snapshots.is_empty();
                snapshots.get(index).is_none_or(HeaderSnapshot::has_second_tag)
            };
            *verdict = self.classify_slow(source, FrameHeader(*header), second);
        }
    }

    /// The loop for the switch, kept out of line.
    #[inline(never)]
    fn classify_switched_fast(
        &self,
        source: &Source,
        headers: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        self.classify_fast::<SWITCH>(source, headers, verdicts)
    }

    /// Sets each frame's verdict by a single table look-up, which is right for valid unicast
    /// frames. Returns the set of doubtful frames, frame 0 in bit 0.
    #[inline]
    fn classify_fast<const KIND: u8>(
        &self,
        source: &Source,
        headers: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        // By value, so that it stays in registers.
        let source = *source;
        let macs = self.macs.view();
        let unknown = self.unknown.as_deref();
        let mut open = 0_u64;
        for (header, verdict) in headers.iter().zip(verdicts) {
            let header = FrameHeader(*header);
            let (dst, src) = (header.dst_key(), header.src_key());
            let from_uplink = KIND == UPLINK || KIND == OPEN_UPLINK;
            let vid = if from_uplink || KIND == SWITCH {
                header.tag_bits() & source.vid_mask
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

            // Doubtful: multicast, tags from functions (priority tags are rare), hairpins,
            // unexpected sources, and displaced keys. From the switch also frames that promiscuous
            // functions may receive.
            let mut doubt = ((dst | src) & 1 != 0) | there.taken;
            if KIND == SWITCH {
                let own = (there.value == source.own) | there.value.is_queue();
                doubt |= own | (!there.found & source.miss_varies);
            } else if !from_uplink {
                doubt |= (there.value == source.own) | header.is_tagged();
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
        open.checked_shr((BURST - headers.len()) as u32).unwrap_or(0)
    }

    /// Returns `true` if spoof check rejects a frame's source.
    #[inline(always)]
    pub(crate) fn is_spoofed(&self, source: &Source, header: FrameHeader) -> bool {
        let src = header.src_key();
        if source.src_lookup {
            self.macs.get(key(src, source.vid)) != Some(source.own)
        } else {
            (src ^ source.src_key) & source.src_mask != 0
        }
    }

    /// Classifies a frame by all rules listed in [`crate::nic`], in their order. `second` tests for
    /// a second tag.
    fn classify_slow(
        &self,
        source: &Source,
        header: FrameHeader,
        second: impl FnOnce() -> bool,
    ) -> Verdict {
        let (dst, src) = (header.dst_key(), header.src_key());
        if self.is_spoofed(source, header) {
            return SPOOFED_MAC;
        }
        if src & 1 != 0 {
            return SOURCE_MULTICAST;
        }
        if source.forbids(header, &self.trunks) || source.hides_vlan(header, second) {
            return VLAN_FORBIDDEN;
        }
        let vid = source.vid_of(header.tag_bits());
        if dst & 1 != 0 {
            // The uplink receives all multicast of functions. In a VLAN with other members one of
            // them does too, unless there are exceptions.
            let heard = match source.is_uplink() {
                false => self.is_up(PortId::UPLINK),
                true => self.all_hear && self.members(vid).len() > 1,
            };
            return if heard { Verdict::FLOOD } else { self.classify_group(source, header) };
        }
        match self.macs.get(key(dst, vid)) {
            Some(port) if source.is_own(port) => HAIRPIN,
            Some(port) if !source.is_indirect => port,
            Some(port) => self.classify_known(source, header, port),
            // Without promiscuous functions it is the same in every VLAN.
            None if self.unknown.is_none() => source.miss,
            None => self.classify_unknown(source, header, vid),
        }
    }

    /// Classifies a multicast frame that may have no receiver.
    #[cold]
    fn classify_group(&self, source: &Source, header: FrameHeader) -> Verdict {
        let from = source.port();
        let heard = self.receivers(from, &header.0).next().is_some();
        if heard { Verdict::FLOOD } else { self.no_receiver(from) }
    }

    /// Classifies a frame to a MAC of another port, in a mode that may forbid it.
    #[cold]
    fn classify_known(&self, source: &Source, header: FrameHeader, port: Verdict) -> Verdict {
        let vid = source.vid_of(header.tag_bits());
        match (source.mode, source.is_uplink()) {
            (Mode::Veb, _) | (Mode::Isolated, true) => port,
            (Mode::Isolated, false) => ISOLATED,
            (Mode::Vepa, false) => self.classify_unknown(source, header, vid),
            (Mode::Vepa, true) => {
                let sender = self.sender(header, vid);
                if sender == Some(self.home(port)) && port.as_port().is_some() {
                    HAIRPIN
                } else {
                    port
                }
            }
        }
    }

    /// Classifies unknown unicast, and reserved addresses that the bridge does not forward.
    #[inline(never)]
    fn classify_unknown(&self, source: &Source, header: FrameHeader, vid: u16) -> Verdict {
        if source.is_uplink() {
            return match &self.unknown {
                None => source.miss,
                Some(_) if source.is_indirect => self.miss(PortId::UPLINK, &header.0),
                Some(unknown) => unknown[usize::from(vid) % VIDS],
            };
        }
        if vid == source.vid { source.miss } else { self.miss(source.port(), &header.0) }
    }
}

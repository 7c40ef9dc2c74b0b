//! Classifier: verdicts for a burst of frame headers. Every frame passes here.
//!
//! Model: a burst of equal headers (one flow, the common case at high rates) costs a comparison a
//! frame and is classified once. Any other burst runs through a loop without a data-dependent
//! branch, so a misprediction or cache miss of one frame does not delay the next. That loop handles
//! only valid unicast frames between known addresses. It marks all others in a bit mask, and these
//! are classified afterwards, one by one.

use std::hint::select_unpredictable as select;

use wire::FrameHeader;

use crate::switch::bins::{FOUND, key, port_of};
use crate::switch::source::Source;
use crate::switch::{Flows, HeaderSnapshot, LEARN_MAX, State, SwitchVerdicts, Table};
use crate::{BURST, DropReason, PortId, Summary, Verdict};

/// Up to [`BURST`] frames from one port; further ones are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The port.
    pub from: PortId,
    /// The first 16 bytes of each frame, taken once.
    pub heads: &'a [[u8; 16]],
    /// Longer snapshots, if [`Table::needs_deep`] or [`SwitchVerdicts::wants_deep`] is `true`; they
    /// begin with the bytes of `heads`.
    pub deep: Option<&'a [HeaderSnapshot]>,
    /// Time in ns since any point in the past.
    pub now_ns: u64,
}

impl Burst<'_> {
    /// Longer snapshot of a frame, if one was taken.
    #[inline]
    pub(crate) fn deep_head(&self, index: usize) -> Option<&HeaderSnapshot> {
        self.deep?.get(index)
    }
}

impl Table {
    /// Classifies a burst. The module's documentation lists the rules.
    ///
    /// The receiver must get exactly the bytes that were classified. `flows` belongs to the port
    /// and the lane that polls it. `counters` has an element for each rule, see [`Table::counter`];
    /// rules beyond its end are not counted.
    ///
    /// If a frame is priority-tagged and `deep` is missing, the whole burst is rejected, and
    /// nothing is learned or metered: see [`SwitchVerdicts::wants_deep`].
    pub fn classify(
        &self,
        state: &State,
        burst: &Burst<'_>,
        flows: &mut Flows,
        counters: &mut [u64],
        out: &mut SwitchVerdicts,
    ) -> Summary {
        let heads = &burst.heads[..burst.heads.len().min(BURST)];
        let burst = &Burst { heads, ..*burst };
        out.len = heads.len();
        out.mirrored = false;
        out.wants_deep = false;
        let Some(source) = self.source(burst.from) else {
            return out.fill_all(Verdict::drop(DropReason::NoPort));
        };
        let mut refused = 0;
        if source.screen.is_needed() {
            refused = self.screen(source, burst, flows, counters, out);
        }
        let summary = match heads {
            [first, rest @ ..]
                if refused == 0
                    && FrameHeader(*first).is_like_all(rest)
                    // Priority-tagged frames may differ behind the first 16 bytes.
                    && !source.hides_vlan(FrameHeader(*first), || true) =>
            {
                self.classify_uniform(state, source, burst, FrameHeader(*first), out)
            }
            _ => {
                self.classify_each(state, source, burst, refused, out);
                out.summary()
            }
        };
        if out.wants_deep {
            return out.fill_all(Verdict::drop(DropReason::VlanForbidden));
        }
        self.mirror(source, burst, out);
        summary
    }

    /// Classifies frames of one flow by the first.
    fn classify_uniform(
        &self,
        state: &State,
        source: &Source,
        burst: &Burst<'_>,
        head: FrameHeader,
        out: &mut SwitchVerdicts,
    ) -> Summary {
        let learned = self.admit(source, head, None).and_then(|vid| {
            self.learn(&state.fdb, source, (head, vid), &mut { LEARN_MAX })?;
            Ok(vid)
        });
        let vid = match learned {
            Ok(vid) => vid,
            Err(reason) => return out.fill_all(Verdict::drop(reason)),
        };
        let verdict = self.forward(&state.fdb, source, head, vid);
        if !verdict.is_flood() {
            return out.fill_all(verdict);
        }
        let flood = (head, verdict);
        let (granted, beyond) = source.storm(&state.meters, flood, out.len, burst.now_ns);
        out.split(granted, verdict, beyond)
    }

    /// Classifies different frames, except for a rejected set: all on the fast path, then the
    /// doubtful ones one by one.
    fn classify_each(
        &self,
        state: &State,
        source: &Source,
        burst: &Burst<'_>,
        mut refused: u64,
        out: &mut SwitchVerdicts,
    ) {
        let heads = burst.heads;
        let mut open = self.classify_fast(state, source, heads, &mut out.of) & !refused;
        let hides = |index: usize| source.hides_vlan(FrameHeader(heads[index]), || true);
        if burst.deep.is_none() && bits(open).any(hides) {
            out.wants_deep = true;
            return;
        }
        let mut budget = LEARN_MAX;
        let mut changed = false;
        for index in bits(open) {
            let head = FrameHeader(heads[index]);
            let learned = self
                .admit(source, head, burst.deep_head(index))
                .and_then(|vid| self.learn(&state.fdb, source, (head, vid), &mut budget));
            match learned {
                Ok(news) => changed |= news,
                Err(reason) => {
                    refused |= 1 << index;
                    out.refuse(index, reason);
                }
            }
        }
        if changed {
            // Learning may have changed the verdicts of others.
            open = self.classify_fast(state, source, heads, &mut out.of);
        }
        for index in bits(open & !refused) {
            let head = FrameHeader(heads[index]);
            let vid = source.vid_of(head.tag_bits());
            let mut verdict = self.forward(&state.fdb, source, head, vid);
            if verdict.is_flood() {
                let flood = (head, verdict);
                let (granted, beyond) = source.storm(&state.meters, flood, 1, burst.now_ns);
                verdict = if granted == 0 { beyond } else { verdict };
            }
            out.of[index] = verdict;
        }
        out.take_refused(refused);
    }

    /// Sets each frame's verdict by a single table look-up, which is right for valid unicast
    /// frames. Returns the set of doubtful frames, frame 0 in bit 0.
    fn classify_fast(
        &self,
        state: &State,
        source: &Source,
        heads: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        let loop_for = match (source.trunk, &self.statics) {
            (false, None) => Self::classify_fast_for::<false, false>,
            (true, None) => Self::classify_fast_for::<true, false>,
            (false, Some(_)) => Self::classify_fast_for::<false, true>,
            (true, Some(_)) => Self::classify_fast_for::<true, true>,
        };
        let open = loop_for(self, state, source, heads, verdicts);
        // The first frame's bit went in first, and is the lowest of those that count.
        open.checked_shr((BURST - heads.len()) as u32).unwrap_or(0)
    }

    #[inline]
    fn classify_fast_for<const TRUNK: bool, const STATICS: bool>(
        &self,
        state: &State,
        source: &Source,
        heads: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        // By value, so that it stays in registers.
        let (native, own, fresh) = (source.native, source.port, source.fresh);
        let (forbidden, careless) = (source.forbidden, source.careless);
        let learned = state.fdb.view();
        // Never read without static entries.
        let statics = self.statics.as_ref().map_or(learned, |statics| statics.bins.view());
        let displaced = self.statics.as_ref().is_some_and(|statics| !statics.all_home);
        let members = &self.groups.reach[0];
        let reach = &self.groups.reach[usize::from(source.isolated)];
        let src_seen = |src: u64, vid: u16| {
            let seen = (learned.first(key(src, vid)) == fresh) | careless;
            if !STATICS {
                return seen;
            }
            let fixed = statics.first(key(src, vid));
            (fixed == fresh) | ((fixed >= FOUND) & seen)
        };
        // Most guests have one address and send no tags; then one look-up serves all.
        let first = heads.first().map_or(0, |head| FrameHeader(*head).src_key());
        let one_source = one_source(heads);
        let first_seen = one_source && src_seen(first, native);
        let mut open = 0_u64;
        for (head, verdict) in heads.iter().zip(verdicts) {
            let head = FrameHeader(*head);
            let (dst, src, tag) = (head.dst_key(), head.src_key(), head.tag_bits());
            let tagged_vid = if TRUNK { source.vid_mask & tag } else { 0 };
            let vid = if TRUNK { select(tagged_vid != 0, tagged_vid, native) } else { native };
            let mut there = learned.first(key(dst, vid));
            if STATICS {
                let fixed = statics.first(key(dst, vid));
                there = select(fixed < FOUND, fixed, there);
            }
            let seen = if one_source { first_seen } else { src_seen(src, vid) };
            let to = port_of(there);
            *verdict = Verdict::port(to);

            // Doubtful: multicast, hairpins, forbidden tags, priority tags, and addresses that are
            // unknown, moved, aged or unreachable.
            let mut doubt = ((dst | src) & 1 != 0) | !seen | displaced;
            doubt |= (there >= FOUND) | (to == own) | !reach.has(vid, to);
            doubt |= if TRUNK {
                !members.has(vid, own) | (tag == FrameHeader::TAGGED)
            } else {
                tag & (forbidden | FrameHeader::TAGGED) != 0
            };
            open = open >> 1 | u64::from(doubt) << 63;
        }
        open
    }
}

/// Returns `true` if all headers have the same source and no tag.
#[inline(always)]
fn one_source(heads: &[[u8; 16]]) -> bool {
    let Some((first, rest)) = heads.split_first() else { return false };
    let src = FrameHeader(*first).src_key();
    let tagged = FrameHeader(*first).is_tagged();
    let other =
        |head: &[u8; 16]| (FrameHeader(*head).src_key() != src) | FrameHeader(*head).is_tagged();
    !rest.iter().fold(tagged, |any, head| any | other(head))
}

/// The numbers of the bits that are set, ascending.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (index < BURST).then_some(index)
    })
}

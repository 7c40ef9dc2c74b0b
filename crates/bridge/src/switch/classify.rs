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
    pub headers: &'a [[u8; 16]],
    /// Longer snapshots, if [`Table::needs_snapshots`] or [`SwitchVerdicts::wants_snapshots`] is
    /// `true`; they begin with the bytes of `headers`.
    pub snapshots: Option<&'a [HeaderSnapshot]>,
    /// Time in ns since any point in the past.
    pub now_ns: u64,
}

impl Burst<'_> {
    /// Longer snapshot of a frame, if one was taken.
    #[inline]
    pub(crate) fn snapshot(&self, index: usize) -> Option<&HeaderSnapshot> {
        self.snapshots?.get(index)
    }
}

impl Table {
    /// Classifies a burst. The module's documentation lists the rules.
    ///
    /// The receiver must get exactly the bytes that were classified. `flows` belongs to the port
    /// and the lane that polls it. `counters` has an element for each rule, see [`Table::counter`];
    /// rules beyond its end are not counted.
    ///
    /// If a frame is priority-tagged and `snapshots` is missing, the whole burst is rejected, and
    /// nothing is learned or metered: see [`SwitchVerdicts::wants_snapshots`].
    pub fn classify(
        &self,
        state: &State,
        burst: &Burst<'_>,
        flows: &mut Flows,
        counters: &mut [u64],
        out: &mut SwitchVerdicts,
    ) -> Summary {
        let headers = &burst.headers[..burst.headers.len().min(BURST)];
        let burst = &Burst { headers, ..*burst };
        out.len = headers.len();
        out.mirrored = false;
        out.wants_snapshots = false;
        let Some(source) = self.source(burst.from) else {
            return out.fill_all(Verdict::drop(DropReason::LinkDown));
        };
        let screened = source
            .screen
            .as_deref()
            .map(|screen| self.screen((source, screen), burst, flows, counters, out));
        let refused = screened.map_or(0, |screened| screened.refused);
        let is_uniform = |first: FrameHeader, rest: &[[u8; 16]]| {
            refused == 0
                && screened.map_or_else(|| first.is_like_all(rest), |screened| screened.alike)
                // Priority-tagged frames may differ behind the first 16 bytes.
                && !source.hides_vlan(first, || true)
        };
        let summary = match headers {
            [first, rest @ ..] if is_uniform(FrameHeader(*first), rest) => {
                self.classify_uniform(state, source, burst, FrameHeader(*first), out)
            }
            _ => {
                self.classify_each(state, source, burst, refused, out);
                out.summary()
            }
        };
        if out.wants_snapshots {
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
        header: FrameHeader,
        out: &mut SwitchVerdicts,
    ) -> Summary {
        let learned = self.admit(source, header, None).and_then(|vid| {
            self.learn(&state.fdb, source, (header, vid), &mut { LEARN_MAX })?;
            Ok(vid)
        });
        let vid = match learned {
            Ok(vid) => vid,
            Err(reason) => return out.fill_all(Verdict::drop(reason)),
        };
        let verdict = self.forward(&state.fdb, source, header, vid);
        if !verdict.is_flood() {
            return out.fill_all(verdict);
        }
        let flood = (header, verdict);
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
        let headers = burst.headers;
        let mut open = self.classify_fast(state, source, headers, &mut out.of) & !refused;
        let hides = |index: usize| source.hides_vlan(FrameHeader(headers[index]), || true);
        if burst.snapshots.is_none() && bits(open).any(hides) {
            out.wants_snapshots = true;
            return;
        }
        let mut budget = LEARN_MAX;
        let mut changed = false;
        for index in bits(open) {
            let header = FrameHeader(headers[index]);
            let learned = self
                .admit(source, header, burst.snapshot(index))
                .and_then(|vid| self.learn(&state.fdb, source, (header, vid), &mut budget));
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
            open = self.classify_fast(state, source, headers, &mut out.of);
        }
        for index in bits(open & !refused) {
            let header = FrameHeader(headers[index]);
            let vid = source.vid_of(header.tag_bits());
            let mut verdict = self.forward(&state.fdb, source, header, vid);
            if verdict.is_flood() {
                let flood = (header, verdict);
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
        headers: &[[u8; 16]],
        verdicts: &mut [Verdict; BURST],
    ) -> u64 {
        let loop_for = match (source.trunk, &self.statics) {
            (false, None) => Self::classify_fast_for::<false, false>,
            (true, None) => Self::classify_fast_for::<true, false>,
            (false, Some(_)) => Self::classify_fast_for::<false, true>,
            (true, Some(_)) => Self::classify_fast_for::<true, true>,
        };
        let open = loop_for(self, state, source, headers, verdicts);
        // The first frame's bit went in first, and is the lowest of those that count.
        open.checked_shr((BURST - headers.len()) as u32).unwrap_or(0)
    }

    #[inline]
    fn classify_fast_for<const TRUNK: bool, const STATICS: bool>(
        &self,
        state: &State,
        source: &Source,
        headers: &[[u8; 16]],
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
        let first = headers.first().map_or(0, |header| FrameHeader(*header).src_key());
        let one_source = one_source(headers);
        let first_seen = one_source && src_seen(first, native);
        let mut open = 0_u64;
        for (header, verdict) in headers.iter().zip(verdicts) {
            let header = FrameHeader(*header);
            let (dst, src, tag) = (header.dst_key(), header.src_key(), header.tag_bits());
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
fn one_source(headers: &[[u8; 16]]) -> bool {
    let Some((first, rest)) = headers.split_first() else { return false };
    let src = FrameHeader(*first).src_key();
    let tagged = FrameHeader(*first).is_tagged();
    let other = |header: &[u8; 16]| {
        (FrameHeader(*header).src_key() != src) | FrameHeader(*header).is_tagged()
    };
    !rest.iter().fold(tagged, |any, header| any | other(header))
}

/// The numbers of the bits that are set, ascending.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (index < BURST).then_some(index)
    })
}

//! Guards and ACL: checks on more than a frame's first 16 bytes.

use crate::matching::{ICMP, ICMPV6, Key, UDP, Words, has};
use wire::{FrameHeader, HeaderSnapshot};

use crate::DropReason;
use crate::switch::flows::{Cache, Flows, Outcome};
use crate::switch::run::{LastRun, Run};
use crate::switch::source::{Screen, Source};
use crate::switch::{Burst, SwitchVerdicts, Table};

/// Result of the checks for a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screened {
    /// The rejected frames, frame 0 in bit 0.
    pub(crate) refused: u64,
    /// Set if all headers are alike, see [`FrameHeader::is_like_all`].
    pub(crate) alike: bool,
}

impl Table {
    /// Checks a burst. Frames that the VLAN rules reject are skipped.
    pub(crate) fn screen(
        &self,
        (source, screen): (&Source, &Screen),
        burst: &Burst<'_>,
        flows: &mut Flows,
        counters: &mut [u64],
        out: &mut SwitchVerdicts,
    ) -> Screened {
        flows.begin(self.number, source.port);
        let Flows { cache, last, .. } = flows;
        let Burst { headers, snapshots, .. } = *burst;
        let snapshots = snapshots.unwrap_or_default();
        let snapshots = &snapshots[..snapshots.len().min(headers.len())];
        let mut screened = Screened { refused: 0, alike: true };
        let (mut run, mut first) = (last.run, &last.first);
        let (mut start, mut end) = (0, run.covered(screen, first, snapshots));
        loop {
            count(counters, &run.outcome, end - start);
            if let Some(reason) = run.outcome.reason {
                for index in start..end {
                    screened.refused |= 1 << index;
                    out.refuse(index, reason);
                }
            }
            start = end;
            let Some(header) = headers.get(start) else { break };
            let header = FrameHeader(*header);
            let before = start.checked_sub(1).and_then(|before| headers.get(before));
            let same_header = before.is_some_and(|before| header.is_like_all(&[*before]));
            screened.alike &= same_header | (start == 0);
            // The VLAN rules depend on the header alone, except behind a priority tag.
            let is_known = same_header && !header.is_priority_tagged();
            let vid = run.vid.filter(|_| is_known);
            let snapshot = snapshots.get(start);
            run = self.run((source, screen), (header, snapshot), vid, cache, counters);
            end = start + 1;
            if let Some(snapshot) = snapshot {
                first = snapshot;
                end += run.covered(screen, first, &snapshots[end..]);
            }
        }
        let first = *first;
        *last = LastRun { run, first };
        screened
    }

    /// Result of a frame that the last run does not cover; `vid` is its VLAN if it is known to be
    /// admitted.
    #[inline(always)]
    fn run(
        &self,
        (source, screen): (&Source, &Screen),
        (header, snapshot): (FrameHeader, Option<&HeaderSnapshot>),
        vid: Option<u16>,
        cache: &mut Cache,
        counters: &mut [u64],
    ) -> Run {
        let vid = vid.or_else(|| self.admit(source, header, snapshot).ok());
        let Some(number) = vid else { return Run::NONE };
        // Without a snapshot only 16 bytes are known; too few for IP.
        let short;
        let snapshot = match snapshot {
            Some(snapshot) => snapshot,
            None => {
                short = HeaderSnapshot::of_frame(&header.0);
                &short
            }
        };
        let Some((words, layout)) = Key::words_and_layout(header, snapshot, number) else {
            return Run { layout: None, vid, outcome: Outcome::drop(DropReason::HiddenHeader) };
        };
        let key = std::array::from_fn(|n| words[n] & screen.mask[n]);
        let outcome = cache.look_up(&key, || self.outcome(screen, &key));
        if outcome.counted().is_some() {
            return Run { layout, vid, outcome };
        }
        // More rules count it than are recorded: so each frame for itself.
        self.search(screen, &Key::from_words(&key), |rule| add(counters, rule, 1));
        Run { layout: None, vid, outcome }
    }

    fn outcome(&self, screen: &Screen, key: &Words) -> Outcome {
        let mut outcome = Outcome::pass();
        let key = Key::from_words(key);
        outcome.reason = self.search(screen, &key, |rule| outcome.count(rule));
        outcome
    }

    /// Applies guards, then the ACL; returns the drop reason, if any.
    pub(crate) fn search(
        &self,
        screen: &Screen,
        key: &Key,
        counted: impl FnMut(usize),
    ) -> Option<DropReason> {
        if screen.dhcp_guard && is_dhcp_server(key) {
            return Some(DropReason::DhcpGuard);
        }
        if screen.router_guard && is_router(key) {
            return Some(DropReason::RouterGuard);
        }
        let acl = self.acls.get(screen.acl?)?;
        (!acl.allows(key, counted)).then_some(DropReason::AclDeny)
    }
}

/// Counts so many frames by the rules that are recorded.
#[inline]
fn count(counters: &mut [u64], outcome: &Outcome, frames: usize) {
    for rule in outcome.counted().into_iter().flatten() {
        add(counters, rule, frames);
    }
}

/// Counters beyond the caller's slice are not counted.
#[inline]
fn add(counters: &mut [u64], rule: usize, frames: usize) {
    if let Some(counter) = counters.get_mut(rule) {
        *counter += frames as u64;
    }
}

/// Returns `true` for messages of a DHCP server or relay. Clients check only the destination, so
/// that alone suffices; RFC 2131 section 4.1, RFC 8415 section 7.2.
fn is_dhcp_server(key: &Key) -> bool {
    let (server, client) = if key.has & has::IPV4 != 0 { (67, 68) } else { (547, 546) };
    let udp = key.protocol == UDP && key.has & has::PORTS != 0;
    udp && (key.src_port == server || key.dst_port == client)
}

/// Returns `true` for messages that only routers send: RFC 4861 sections 4.2 and 4.5, RFC 792, RFC
/// 1256.
fn is_router(key: &Key) -> bool {
    let kind = key.dst_port >> 8;
    key.has & has::ICMP != 0
        && match key.protocol {
            ICMPV6 => matches!(kind, 134 | 137),
            ICMP => matches!(kind, 5 | 9),
            _ => false,
        }
}

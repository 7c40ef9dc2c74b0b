//! Guards and ACL: checks on more than a frame's first 16 bytes.

use crate::matching::{ICMP, ICMPV6, Key, UDP, Words, has};
use wire::{FrameHeader, HeaderSnapshot};

use crate::DropReason;
use crate::switch::flows::{Flows, Outcome, same};
use crate::switch::source::{Screen, Source};
use crate::switch::{Burst, SwitchVerdicts, Table};

impl Table {
    /// Checks a burst; returns the set of rejected frames, frame 0 in bit 0. Frames that the VLAN
    /// rules reject are skipped.
    pub(crate) fn screen(
        &self,
        source: &Source,
        burst: &Burst<'_>,
        flows: &mut Flows,
        counters: &mut [u64],
        out: &mut SwitchVerdicts,
    ) -> u64 {
        flows.begin(self.number, source.port);
        let mut refused = 0;
        let screen = &source.screen;
        // Consecutive frames of one flow reuse the last result.
        let (mut last, mut outcome): (Option<Words>, _) = (None, Outcome::pass());
        for (index, header) in burst.headers.iter().enumerate() {
            let header = FrameHeader(*header);
            let snapshot = burst.snapshot(index);
            let Ok(vid) = self.admit(source, header, snapshot) else { continue };
            let short;
            let snapshot = match snapshot {
                Some(snapshot) => snapshot,
                None => {
                    // Without a snapshot only 16 bytes are known; too few for IP.
                    short = HeaderSnapshot::of_frame(&header.0);
                    &short
                }
            };
            let Some(words) = Key::words_of(header, snapshot, vid) else {
                refused |= 1 << index;
                out.refuse(index, DropReason::HiddenHeader);
                continue;
            };
            let masked = std::array::from_fn(|n| words[n] & screen.mask[n]);
            if !last.as_ref().is_some_and(|last| same(last, &masked)) {
                let find = || self.outcome(screen, &Key::from_words(&words));
                outcome = flows.look_up(&masked, find);
                last = Some(masked);
            }
            match outcome.counted() {
                Some(rules) => rules.iter().for_each(|rule| count(counters, usize::from(*rule))),
                None => {
                    let key = Key::from_words(&words);
                    self.search(screen, &key, |rule| count(counters, rule));
                }
            }
            if let Some(reason) = outcome.reason {
                refused |= 1 << index;
                out.refuse(index, reason);
            }
        }
        refused
    }

    fn outcome(&self, screen: &Screen, key: &Key) -> Outcome {
        let mut outcome = Outcome::pass();
        outcome.reason = self.search(screen, key, |rule| outcome.count(rule));
        outcome
    }

    /// Applies guards, then the ACL; returns the drop reason, if any.
    fn search(&self, screen: &Screen, key: &Key, counted: impl FnMut(usize)) -> Option<DropReason> {
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

/// Counters beyond the caller's slice are not counted.
#[inline]
fn count(counters: &mut [u64], rule: usize) {
    if let Some(counter) = counters.get_mut(rule) {
        *counter += 1;
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

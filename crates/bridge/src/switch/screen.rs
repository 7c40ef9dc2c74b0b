//! Guards and ACL: which frames of a burst may go on, by more than their first 16 bytes.

use crate::matching::{ICMP, ICMPV6, Key, UDP, Words, has, place};
use wire::{FrameHeader, HeaderSnapshot};

use crate::switch::acl::Compiled;

use crate::DropReason;
use crate::switch::flows::{Flows, Outcome, same};
use crate::switch::forward::Source;
use crate::switch::{Burst, PortConfig, SwitchVerdicts, Table};

/// What a port's frames are screened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// The list, by index.
    acl: Option<usize>,
    dhcp_guard: bool,
    router_guard: bool,
    /// The bits of a frame's key that anything here looks at.
    mask: Words,
}

impl Screen {
    pub(crate) fn new(config: &PortConfig, acls: &[Compiled]) -> Self {
        let PortConfig { acl, dhcp_guard, router_guard, .. } = *config;
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
        Self { acl, dhcp_guard, router_guard, mask }
    }

    /// Whether a frame's first 16 bytes are not enough.
    pub(crate) const fn is_needed(&self) -> bool {
        self.acl.is_some() || self.dhcp_guard || self.router_guard
    }
}

impl Table {
    /// Screens a burst; returns the set of frames that are refused, frame 0 in bit 0. Those that
    /// the VLAN rules refuse are left to others.
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
        // Frames of one flow come together; the last one's answer is at hand.
        let (mut last, mut outcome): (Option<Words>, _) = (None, Outcome::pass());
        for (index, head) in burst.heads.iter().enumerate() {
            let head = FrameHeader(*head);
            let deep = burst.deep_head(index);
            let Ok(vid) = self.admit(source, head, deep) else { continue };
            let short;
            let deep = match deep {
                Some(deep) => deep,
                None => {
                    // Without a snapshot a frame has 16 bytes; for IP those are too few.
                    short = HeaderSnapshot::of_frame(&head.0);
                    &short
                }
            };
            let Some(words) = Key::words_of(head, deep, vid) else {
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

    /// Guards, then the ACL; says why the frame is dropped, if it is.
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

/// Counters that the caller did not bring are not counted.
#[inline]
fn count(counters: &mut [u64], rule: usize) {
    if let Some(counter) = counters.get_mut(rule) {
        *counter += 1;
    }
}

/// Whether this is what a DHCP server or relay sends. Clients look at the destination only, so that
/// alone is enough; RFC 2131 section 4.1, RFC 8415 section 7.2.
fn is_dhcp_server(key: &Key) -> bool {
    let (server, client) = if key.has & has::IPV4 != 0 { (67, 68) } else { (547, 546) };
    let udp = key.protocol == UDP && key.has & has::PORTS != 0;
    udp && (key.src_port == server || key.dst_port == client)
}

/// Whether this is what only routers send: RFC 4861 sections 4.2 and 4.5, RFC 792, RFC 1256.
fn is_router(key: &Key) -> bool {
    let kind = key.dst_port >> 8;
    key.has & has::ICMP != 0
        && match key.protocol {
            ICMPV6 => matches!(kind, 134 | 137),
            ICMP => matches!(kind, 5 | 9),
            _ => false,
        }
}

//! Reverse ARP announcements for guests that have arrived, and for adapters that return from the
//! wire, so that all switches learn their location.
//!
//! # Model
//! An address is announced untagged and in each VLAN of the adapter's trunk. The first ones are
//! sent at once, the adapter's own address before its others. The rest are paced to avoid a burst
//! of broadcasts.
//!
//! # Limits
//! [`PER_ADAPTER`] announcements, [`AT_ONCE`] each [`PAUSE`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use model::state::{Adapter, Allocation, LinkState, PathInForce, State};
use wire::Mac;
use wire::vlan::{TAG_OFFSET, TPID_8021Q, Tag};

use super::DataPlane;

/// Maximum number of announcements for an adapter.
const PER_ADAPTER: usize = 4096;
/// Announcements sent at once.
const AT_ONCE: usize = 16;
/// Interval between batches.
const PAUSE: Duration = Duration::from_millis(10);

/// Queue of announcements.
#[derive(Debug, Default)]
pub(super) struct AnnouncementQueue {
    waiting: VecDeque<Announcement>,
    /// Due time of the next batch.
    next: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Announcement {
    adapter: String,
    mac: Mac,
    /// VLAN of the tag; `None`: untagged.
    vlan: Option<u16>,
}

impl Announcement {
    fn frame(&self) -> Vec<u8> {
        let mut frame = wire::rarp::announcement(self.mac).to_vec();
        if let Some(vlan) = self.vlan {
            let tag = Tag::from_words(TPID_8021Q, vlan).to_bytes();
            frame.splice(TAG_OFFSET..TAG_OFFSET, tag);
        }
        frame
    }
}

impl AnnouncementQueue {
    /// Time until the next batch; `None` with an empty queue.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.next.filter(|_| !self.waiting.is_empty())?;
        Some(next.saturating_duration_since(now))
    }

    fn take(&mut self) -> Vec<Announcement> {
        self.waiting.drain(..AT_ONCE.min(self.waiting.len())).collect()
    }
}

/// All announcements of an adapter, in order.
fn of(adapter: &Adapter) -> impl Iterator<Item = Announcement> {
    let vlans = adapter.settings.trunks.iter().flat_map(|range| range.first..=range.last).map(Some);
    let vlans: Vec<Option<u16>> = std::iter::once(None).chain(vlans).collect();
    let macs = std::iter::once(&adapter.mac).chain(&adapter.settings.macs);
    macs.flat_map(move |mac| {
        let name = adapter.name.clone();
        let of = move |vlan| Announcement { adapter: name.clone(), mac: mac.0, vlan };
        vlans.clone().into_iter().map(of)
    })
}

/// `true` if frames to an adapter go to the wire: its guest has the card's VF, or another device.
fn is_at_the_wire(state: &State, allocations: &[Allocation], adapter: &Adapter) -> bool {
    let on_vf = |one: &Allocation| one.adapter == adapter.name && one.path == PathInForce::Vf;
    let on_card = state.nic_of(adapter).is_some_and(|nic| nic.is_pci());
    adapter.settings.link_state == LinkState::Disable || on_card && allocations.iter().any(on_vf)
}

impl DataPlane {
    /// Adapters whose frames went to the wire in the state before, and do not in this one.
    pub(super) fn returned(&self, to: &State, allocations: &[Allocation]) -> Vec<String> {
        let was_there = |name: &str| {
            let before = self.state.adapter(name);
            before.is_some_and(|it| is_at_the_wire(&self.state, &self.allocations, it))
        };
        let all = to.adapters.iter().filter(|one| was_there(&one.name));
        let back = all.filter(|one| !is_at_the_wire(to, allocations, one));
        back.map(|one| one.name.clone()).collect()
    }

    /// Announces an adapter; returns the number of ports that received the first batch.
    pub(super) fn announce(&mut self, name: &str) -> usize {
        self.announcements.waiting.retain(|one| one.adapter != name);
        let Some(adapter) = self.state.adapter(name) else { return 0 };
        let mut all: VecDeque<Announcement> = of(adapter).take(PER_ADAPTER + 1).collect();
        if all.len() > PER_ADAPTER {
            tracing::warn!(
                "{name}: too many addresses and VLANs; only {PER_ADAPTER} combinations are announced"
            );
            all.truncate(PER_ADAPTER);
        }
        let later = all.split_off(AT_ONCE.min(all.len()));
        let told = all.iter().map(|one| self.send(one)).sum();
        if self.announcements.waiting.is_empty() {
            self.announcements.next = Some(Instant::now() + PAUSE);
        }
        self.announcements.waiting.extend(later);
        told
    }

    /// Sends the next batch if it is due.
    pub(super) fn send_due_announcements(&mut self, now: Instant) {
        if self.announcements.wait(now).is_some_and(|wait| wait.is_zero()) {
            self.announcements.next = Some(now + PAUSE);
            for one in self.announcements.take() {
                self.send(&one);
            }
        }
    }

    fn send(&self, one: &Announcement) -> usize {
        // The adapter may have moved away again.
        let is_here = self.state.adapter(&one.adapter).is_some_and(|it| !it.is_elsewhere());
        let instance = self
            .instances
            .values()
            .find_map(|instance| Some((instance, instance.adapter(&one.adapter)?)));
        let Some((instance, served)) = instance.filter(|_| is_here) else { return 0 };
        instance.soft.inject(&served.port, &one.frame())
    }
}

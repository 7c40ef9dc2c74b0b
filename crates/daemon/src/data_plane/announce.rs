//! Reverse ARP in the names of adapters whose guests have come, so that all switches learn where
//! they are.
//!
//! # Model
//! An address is announced in each network that its guest may speak in: where frames without a tag
//! go, and in each VLAN of its trunk. The first are sent at once, its own address in all of them
//! before its others; the rest wait their turn, so that nobody is flooded.
//!
//! # Limits
//! [`PER_ADAPTER`] announcements, [`AT_ONCE`] each [`PAUSE`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use model::state::Adapter;
use wire::Mac;
use wire::vlan::{TAG_OFFSET, TPID_8021Q, Tag};

use super::DataPlane;

/// The most announcements for an adapter.
const PER_ADAPTER: usize = 4096;
/// How many are sent at once.
const AT_ONCE: usize = 16;
/// How long it is until the next are.
const PAUSE: Duration = Duration::from_millis(10);

/// Announcements that wait.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    waiting: VecDeque<Announcement>,
    /// When the next are due.
    next: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Announcement {
    adapter: String,
    mac: Mac,
    /// The VLAN of its tag, if it has one.
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

impl Announcing {
    /// How long until the next are due, if any are.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let next = self.next.filter(|_| !self.waiting.is_empty())?;
        Some(next.saturating_duration_since(now))
    }

    fn take(&mut self) -> Vec<Announcement> {
        self.waiting.drain(..AT_ONCE.min(self.waiting.len())).collect()
    }
}

/// All announcements of an adapter, in their order.
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

impl DataPlane {
    /// Announces an adapter: how many ports have heard of it when this returns.
    pub(super) fn announce(&mut self, name: &str) -> usize {
        self.announcing.waiting.retain(|one| one.adapter != name);
        let Some(adapter) = self.state.adapter(name) else { return 0 };
        let mut all: VecDeque<Announcement> = of(adapter).take(PER_ADAPTER + 1).collect();
        if all.len() > PER_ADAPTER {
            tracing::warn!(
                "{name}: only {PER_ADAPTER} of its addresses, each in each VLAN of its trunk, are announced"
            );
            all.truncate(PER_ADAPTER);
        }
        let later = all.split_off(AT_ONCE.min(all.len()));
        let told = all.iter().map(|one| self.send(one)).sum();
        if self.announcing.waiting.is_empty() {
            self.announcing.next = Some(Instant::now() + PAUSE);
        }
        self.announcing.waiting.extend(later);
        told
    }

    /// Sends those that are due.
    pub(super) fn announce_more(&mut self, now: Instant) {
        if self.announcing.wait(now).is_some_and(|wait| wait.is_zero()) {
            self.announcing.next = Some(now + PAUSE);
            for one in self.announcing.take() {
                self.send(&one);
            }
        }
    }

    fn send(&self, one: &Announcement) -> usize {
        // It may have gone again.
        let is_here = self.state.adapter(&one.adapter).is_some_and(|it| !it.is_elsewhere());
        let instance = self
            .instances
            .values()
            .find_map(|instance| Some((instance, instance.adapter(&one.adapter)?)));
        let Some((instance, served)) = instance.filter(|_| is_here) else { return 0 };
        instance.soft.inject(&served.port, &one.frame())
    }
}

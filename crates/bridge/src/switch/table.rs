//! Settings of a switch as an immutable table, shared by lanes.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::{FrameHeader, Vid};

use crate::switch::acl::Compiled;
use crate::switch::bins::{Bins, key};
use crate::switch::groups::Groups;
use crate::switch::mirror::Mirrors;
use crate::switch::source::Source;
use crate::switch::vlan::NOBODYS;
use crate::switch::{ConfigError, StaticEntry, SwitchConfig};
use crate::{Flood, PortId, VlanEdit};

/// Number of the next table; 0 is never used.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
/// Bits of a TCI that are not the VLAN's id.
const PRIORITY: u16 = 0xf000;

/// The switch's tables, built from a [`SwitchConfig`].
#[derive(Debug)]
pub struct Table {
    /// Unique number, by which a cache recognises its table.
    pub(crate) number: u64,
    /// By port; `None` where there is none.
    sources: Vec<Option<Source>>,
    pub(crate) groups: Groups,
    /// The static entries, if there are any.
    pub(crate) statics: Option<Statics>,
    pub(crate) acls: Vec<Compiled>,
    pub(crate) mirrors: Mirrors,
    /// By list: number of its first rule's counter; last, the total.
    first_counters: Vec<usize>,
}

/// The static entries as a table.
#[derive(Debug)]
pub(crate) struct Statics {
    pub(crate) bins: Bins,
    /// Set if every entry is in its first bin.
    pub(crate) all_home: bool,
}

impl Statics {
    /// Seeds tried to put every entry into its first bin. The first nearly always succeeds, at one
    /// entry for 16 words.
    const TRIES: u64 = 32;
    const ROOM: usize = 4;

    /// `None` if there is no entry, or if no seed has room for all.
    fn place(entries: &[StaticEntry], all_home: bool) -> Option<Self> {
        let insert = if all_home { Bins::insert_home } else { Bins::insert };
        let place = |seed| {
            let bins = Bins::new(entries.len() * Self::ROOM, seed);
            let mut keyed = entries
                .iter()
                .map(|entry| (key(entry.mac.key(), entry.vlan.map_or(0, Vid::get)), entry.port));
            keyed.all(|(key, port)| insert(&bins, key, port)).then_some(Self { bins, all_home })
        };
        (0..Self::TRIES).find_map(place)
    }

    fn build(entries: &[StaticEntry]) -> Option<Self> {
        if entries.is_empty() {
            return None;
        }
        Self::place(entries, true).or_else(|| Self::place(entries, false))
    }
}

impl Table {
    /// Builds the tables.
    ///
    /// # Errors
    /// See [`ConfigError`]: location, value, and allowed values.
    pub fn build(config: &SwitchConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let mut first_counters = vec![0];
        let mut acls = Vec::new();
        for acl in &config.acls {
            let first = first_counters.last().copied().unwrap_or(0);
            acls.push(Compiled::build(acl, first));
            first_counters.push(first + acl.rules.len());
        }
        let sources = (0..).map(PortId).zip(&config.ports).map(|(port, settings)| {
            settings.as_ref().map(|settings| Source::new(port, settings, &acls))
        });
        Ok(Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            sources: sources.collect(),
            groups: Groups::build(config),
            statics: Statics::build(&config.statics),
            acls,
            mirrors: Mirrors::build(config),
            first_counters,
        })
    }

    #[inline]
    pub(crate) fn source(&self, port: PortId) -> Option<&Source> {
        self.sources.get(port.index())?.as_ref()
    }

    /// Returns `true` if the port exists.
    pub fn has(&self, port: PortId) -> bool {
        self.source(port).is_some()
    }

    /// Returns `true` if [`classify`](Self::classify) needs
    /// [`HeaderSnapshot`](crate::switch::HeaderSnapshot)s of this port's frames. Without them it
    /// drops all of its IP frames.
    #[inline]
    pub fn needs_snapshots(&self, port: PortId) -> bool {
        self.source(port).is_some_and(|source| source.screen.is_some())
    }

    /// Number of rule counters.
    pub fn counters_len(&self) -> usize {
        self.first_counters.last().copied().unwrap_or(0)
    }

    /// Number of a rule's counter, both by index; ports that share a list share its counters.
    pub fn counter(&self, acl: usize, rule: usize) -> Option<usize> {
        let first = *self.first_counters.get(acl)?;
        let next = *self.first_counters.get(acl + 1)?;
        (rule < next - first).then_some(first + rule)
    }

    /// VLAN of a frame from a port; 0 is "untagged".
    ///
    /// Meaningless for a frame that [`classify`](Self::classify) drops.
    #[inline]
    pub fn vid(&self, from: PortId, header: &[u8; 16]) -> u16 {
        self.source(from).map_or(0, |source| source.vid_of(FrameHeader(*header).tag_bits()))
    }

    /// Receivers of a flooded frame. They may include the sender's port, which the caller must
    /// skip.
    #[inline]
    pub fn flood_ports(&self, from: PortId, vid: u16, flood: Flood) -> &[PortId] {
        let isolated = self.source(from).is_some_and(|source| source.isolated);
        self.groups.list(isolated, vid, flood)
    }

    /// Returns `true` if frames of one VLAN leave this port untagged and those of others tagged.
    pub fn has_native(&self, port: PortId) -> bool {
        self.source(port).is_some_and(|port| port.trunk && (1..NOBODYS).contains(&port.native))
    }

    /// Edit for a frame on its way to a port that is a member of its VLAN.
    ///
    /// From an access port the edit is the same for all frames to one port. From a trunk it is the
    /// same for frames with equal bytes 12 to 15, and for untagged frames.
    #[inline]
    pub fn edit(&self, from: PortId, to: PortId, header: &[u8; 16]) -> VlanEdit {
        let Some(source) = self.source(from) else { return VlanEdit::None };
        let header = FrameHeader(*header);
        let vid = source.vid_of(header.tag_bits());
        if vid == 0 {
            return VlanEdit::None; // a priority tag stays if there is no other to push
        }
        let wants_tag = self.source(to).is_some_and(|port| port.trunk && port.native != vid);
        // A tag from an access port is payload.
        match (header.vid().filter(|_| source.trunk), wants_tag) {
            (None, true) => VlanEdit::Push(source.tag),
            (Some(_), false) => VlanEdit::Pop,
            (Some(0), true) => {
                let [high, low] = (header.tci() & PRIORITY | vid).to_be_bytes();
                VlanEdit::Retag([header.0[12], header.0[13], high, low])
            }
            (None, false) | (Some(_), true) => VlanEdit::None,
        }
    }

    /// Returns `true` if all frames from this port to any one port get the same edit.
    #[inline]
    pub fn edits_alike(&self, from: PortId) -> bool {
        self.source(from).is_some_and(|source| !source.trunk)
    }
}

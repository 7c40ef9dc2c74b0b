//! A NIC's settings as a snapshot that lanes share: made whole, never changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::Head;
use wire::vlan::{TPID_8021Q, Tag};

use crate::config::Field;
use crate::map::{MacMap, key};
use crate::{ConfigError, DropReason, Function, NicConfig, PortId, Verdict};

/// The next table's number; 0 is none's.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
/// VLAN ids, 0 (untagged) included; 4095 has no members ever.
const VIDS: usize = 4096;
/// The bits of a VID.
const VID_BITS: u16 = 0xfff;

/// What the VLAN rules do to a frame on its way from one port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VlanEdit {
    /// The frame stays as it is.
    None,
    /// Its tag is taken off.
    Pop,
    /// An 802.1Q tag with this TCI is put on.
    Push(u16),
}

impl VlanEdit {
    /// The four bytes of the tag to push.
    pub const fn tag_bytes(self) -> Option<[u8; 4]> {
        match self {
            Self::Push(tci) => Some(Tag::from_words(TPID_8021Q, tci).to_bytes()),
            Self::None | Self::Pop => None,
        }
    }
}

/// What the classifier has to know of the port that a burst comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The port as a verdict, to recognise a hairpin by.
    pub(crate) own: Verdict,
    /// What becomes of a frame to an unknown MAC.
    pub(crate) miss: Verdict,
    /// The VLAN of every frame from an access port; else 0.
    pub(crate) vid: u16,
    /// The bits of [`Head::tag_bits`] that choose the VLAN: the VID from the uplink, else none.
    pub(crate) vid_mask: u16,
    /// The bits of [`Head::tag_bits`] that must not be set: from an access port none may be, from
    /// an untagged function those of the VID, from the uplink all may.
    pub(crate) forbidden: u16,
    /// The key of the only MAC that a checked function may send from.
    pub(crate) src_key: u64,
    /// All ones if `src_key` is to be compared; 0 if not.
    pub(crate) src_mask: u64,
    /// Whether the source is to be looked up, as there are several it may be.
    pub(crate) src_lookup: bool,
}

impl Source {
    const fn uplink() -> Self {
        Self {
            own: Verdict::port(PortId::UPLINK),
            miss: Verdict::drop(DropReason::NoMatch),
            vid: 0,
            vid_mask: VID_BITS,
            forbidden: 0,
            src_key: 0,
            src_mask: 0,
            src_lookup: false,
        }
    }

    fn function(port: PortId, function: &Function) -> Self {
        let single = function.extra_macs.is_empty();
        Self {
            own: Verdict::port(port),
            miss: Verdict::port(PortId::UPLINK),
            vid: function.vid(),
            vid_mask: 0,
            forbidden: if function.vlan.is_some() { Head::TAGGED | VID_BITS } else { VID_BITS },
            src_key: function.mac.key(),
            src_mask: if function.spoof_check && single { u64::MAX } else { 0 },
            src_lookup: function.spoof_check && !single,
        }
    }

    #[inline]
    pub(crate) const fn is_uplink(&self) -> bool {
        self.vid_mask != 0
    }

    /// The VLAN of a frame by its [`Head::tag_bits`].
    #[inline]
    pub(crate) const fn vid_of(&self, tag_bits: u16) -> u16 {
        self.vid | (tag_bits & self.vid_mask)
    }

    /// Whether the VLAN rules refuse a frame by its [`Head::tag_bits`].
    #[inline]
    pub(crate) const fn forbids(&self, tag_bits: u16) -> bool {
        tag_bits & self.forbidden != 0
    }
}

/// The bridge's tables, built from a [`NicConfig`].
#[derive(Clone, Debug)]
pub struct Table {
    /// No other table has it: by it a cache knows whether it speaks of this one.
    pub(crate) number: u64,
    pub(crate) macs: MacMap,
    /// By port; `None` without a function.
    sources: Vec<Option<Source>>,
    /// The members of each VLAN in turn, the uplink first.
    members: Vec<PortId>,
    /// By VID: where its members begin and end.
    groups: Box<[(u32, u32)]>,
}

impl Table {
    /// Builds the tables.
    ///
    /// # Errors
    /// What [`ConfigError`] lists; each names function and field.
    pub fn build(config: &NicConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let mut sources = vec![None; 2 + config.vfs.len()];
        sources[PortId::UPLINK.index()] = Some(Source::uplink());
        for (port, function) in config.functions() {
            sources[port.index()] = Some(Source::function(port, function));
        }
        let (members, groups) = groups(config);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, macs: MacMap::build(&entries(config)?), sources, members, groups })
    }

    pub(crate) fn source(&self, port: PortId) -> Option<&Source> {
        self.sources.get(port.index())?.as_ref()
    }

    /// Whether the port is the uplink or has a function.
    pub fn has(&self, port: PortId) -> bool {
        self.source(port).is_some()
    }

    /// The VLAN that a frame from a port belongs to; 0 is "untagged".
    ///
    /// Of a frame that [`classify`](Self::classify) drops, the answer has no meaning.
    #[inline]
    pub fn vid(&self, from: PortId, head: &[u8; 16]) -> u16 {
        self.source(from).map_or(0, |source| source.vid_of(Head(*head).tag_bits()))
    }

    /// The members of a VLAN and the uplink: where a flooded frame goes, but for the port that it
    /// came from, which the caller leaves out. Empty if no function is in the VLAN.
    #[inline]
    pub fn flood_ports(&self, vid: u16) -> &[PortId] {
        let (start, end) = self.groups.get(usize::from(vid)).copied().unwrap_or((0, 0));
        self.members.get(start as usize..end as usize).unwrap_or_default()
    }

    /// What to do to the tag of frames between two ports.
    ///
    /// It is the same for all frames that [`classify`](Self::classify) lets pass from one port to
    /// another, so one answer serves a whole group. To an access port from the uplink, a frame is
    /// always tagged, since it was found in a VLAN above 0; from an access port it never is; and
    /// between two functions, both are in the same VLAN.
    #[inline]
    pub fn edit(&self, from: PortId, to: PortId) -> VlanEdit {
        let vid = |port| self.source(port).map_or(0, |source| source.vid);
        match (vid(from), vid(to)) {
            (tag, _) if tag != 0 && to == PortId::UPLINK => VlanEdit::Push(tag),
            (_, tag) if tag != 0 && from == PortId::UPLINK => VlanEdit::Pop,
            _ => VlanEdit::None,
        }
    }
}

/// Every (MAC, VLAN) with its verdict, each once.
fn entries(config: &NicConfig) -> Result<Vec<(u64, Verdict)>, ConfigError> {
    let mut seen: HashMap<u64, (PortId, Field)> = HashMap::new();
    let mut entries = Vec::new();
    for (port, function) in config.functions() {
        let vid = function.vid();
        for (field, mac) in function.macs() {
            let key = key(mac.key(), vid);
            if let Some((other, other_field)) = seen.insert(key, (port, field)) {
                return Err(ConfigError::DuplicateMac {
                    port,
                    field,
                    mac,
                    vid,
                    other,
                    other_field,
                });
            }
            entries.push((key, Verdict::port(port)));
        }
    }
    Ok(entries)
}

/// The members of every VLAN that has some, and where each VLAN's begin and end.
fn groups(config: &NicConfig) -> (Vec<PortId>, Box<[(u32, u32)]>) {
    let mut by_vid: Vec<(u16, PortId)> =
        config.functions().map(|(port, function)| (function.vid(), port)).collect();
    by_vid.sort_unstable();
    let mut members = Vec::new();
    let mut groups = vec![(0, 0); VIDS].into_boxed_slice();
    for group in by_vid.chunk_by(|a, b| a.0 == b.0) {
        let start = members.len() as u32;
        members.push(PortId::UPLINK);
        members.extend(group.iter().map(|(_, port)| *port));
        groups[usize::from(group[0].0)] = (start, members.len() as u32);
    }
    (members, groups)
}

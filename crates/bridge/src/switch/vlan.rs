//! VLANs of a port, and its tags.

use std::fmt;

use wire::Vid;
use wire::vlan::{TPID_8021AD, TPID_8021Q, Tag};

/// Words of a set of VLAN ids.
const WORDS: usize = 64;

/// A set of VLAN ids.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VidSet(Box<[u64; WORDS]>);

impl VidSet {
    /// No VLAN.
    pub fn new() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// VLANs 1 to 4094.
    pub fn all() -> Self {
        let mut words = [u64::MAX; WORDS];
        words[0] &= !1;
        words[WORDS - 1] &= !(1 << 63);
        Self(Box::new(words))
    }

    /// Adds a VLAN.
    pub fn insert(&mut self, vid: Vid) {
        let vid = usize::from(vid.get());
        self.0[vid / 64] |= 1 << (vid % 64);
    }

    /// Returns `true` if a VLAN is in the set; 0 and 4095 never are.
    pub fn contains(&self, vid: u16) -> bool {
        self.0.get(usize::from(vid / 64)).is_some_and(|word| word >> (vid % 64) & 1 == 1)
    }

    /// The VLANs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (1..=Vid::MAX).filter(|vid| self.contains(*vid))
    }
}

impl Default for VidSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Vid> for VidSet {
    fn from_iter<T: IntoIterator<Item = Vid>>(vids: T) -> Self {
        let mut set = Self::new();
        vids.into_iter().for_each(|vid| set.insert(vid));
        set
    }
}

impl fmt::Debug for VidSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter()).finish()
    }
}

/// VLAN of frames on a trunk without a tag, or with a priority tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Native {
    /// Such frames are rejected.
    Refused,
    /// They belong to the untagged network.
    Untagged,
    /// They belong to this VLAN, whose frames leave over the trunk without a tag.
    Vlan(Vid),
}

/// The VLANs that a port is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vlans {
    /// One VLAN, or the untagged network; frames carry no tag.
    Access(Option<Vid>),
    /// Several, told apart by tags.
    Trunk {
        /// The VLANs whose frames may come and go; that of `native` need not be among them.
        allowed: VidSet,
        /// The VLAN of untagged frames.
        native: Native,
    },
}

/// Native VLAN of a port without one: no port is ever a member of it.
pub(crate) const NOBODYS: u16 = 4095;

impl Vlans {
    /// The VLAN of untagged frames, 0 for the untagged network, [`NOBODYS`] if they are refused.
    pub(crate) fn native(&self) -> u16 {
        match self {
            Self::Access(vlan) => vlan.map_or(0, Vid::get),
            Self::Trunk { native: Native::Refused, .. } => NOBODYS,
            Self::Trunk { native: Native::Untagged, .. } => 0,
            Self::Trunk { native: Native::Vlan(vid), .. } => vid.get(),
        }
    }

    /// Returns `true` if the port is a member of a VLAN; 0 is the untagged network.
    pub fn contains(&self, vid: u16) -> bool {
        let native = vid < NOBODYS && vid == self.native();
        native || matches!(self, Self::Trunk { allowed, .. } if allowed.contains(vid))
    }
}

/// The tag that a port's untagged frames get where they leave with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tagging {
    /// Its priority, 0 to 7.
    pub qos: u8,
    /// Service tag (802.1ad, 0x88a8) instead of a customer tag. Then an access port of a VLAN may
    /// send and receive customer tags (802.1Q), which are payload beneath it; a trunk cannot have
    /// it.
    pub service: bool,
}

impl Tagging {
    /// The four bytes of the tag with a VLAN's id.
    pub(crate) const fn bytes(self, vid: u16) -> [u8; 4] {
        let tpid = if self.service { TPID_8021AD } else { TPID_8021Q };
        Tag { tpid, pcp: self.qos, dei: false, vid }.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vid(n: u16) -> Vid {
        Vid::new(n).unwrap()
    }

    #[test]
    fn sets() {
        assert!(VidSet::all().iter().eq(1..=4094));
        assert!([0, 4095, 4096, u16::MAX].iter().all(|n| !VidSet::all().contains(*n)));
        let set: VidSet = [1, 64, 4094].map(vid).into_iter().collect();
        assert!(set.iter().eq([1, 64, 4094]));
        assert_eq!(format!("{set:?}"), "{1, 64, 4094}");
        assert_eq!(VidSet::new().iter().next(), None);
    }

    #[test]
    fn members() {
        let members =
            |vlans: Vlans| (0..=u16::MAX).filter(|n| vlans.contains(*n)).collect::<Vec<_>>();
        assert_eq!(members(Vlans::Access(None)), [0]);
        assert_eq!(members(Vlans::Access(Some(vid(7)))), [7]);
        let trunk = |native| Vlans::Trunk { allowed: [vid(3)].into_iter().collect(), native };
        assert_eq!(members(trunk(Native::Refused)), [3]);
        assert_eq!(members(trunk(Native::Untagged)), [0, 3]);
        assert_eq!(members(trunk(Native::Vlan(vid(9)))), [3, 9]);
    }
}

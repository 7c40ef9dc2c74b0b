//! Settings of a PF or VF, named as in `ip link set ... vf`.

use wire::vlan::{TPID_8021AD, TPID_8021Q, Tag};
use wire::{Mac, Vid};

use crate::PortId;
use crate::nic::Vids;
use crate::nic::error::Field;

/// The weight of a function of which none was set.
pub const WEIGHT_DEFAULT: u8 = 10;
/// The largest weight.
pub const WEIGHT_MAX: u8 = 100;
/// The largest priority in a tag.
pub const QOS_MAX: u8 = 7;

/// Kind of a VLAN's tag on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VlanProtocol {
    /// A customer tag, 0x8100. The guest may not send tags.
    #[default]
    Ieee8021Q,
    /// A service tag, 0x88a8. The guest's own customer tags are payload beneath it.
    Ieee8021Ad,
}

impl VlanProtocol {
    /// The number before the tag.
    pub const fn tpid(self) -> u16 {
        match self {
            Self::Ieee8021Q => TPID_8021Q,
            Self::Ieee8021Ad => TPID_8021AD,
        }
    }

    /// The name, as `ip link` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ieee8021Q => "802.1Q",
            Self::Ieee8021Ad => "802.1ad",
        }
    }
}

/// The VLAN of which a function is an access port, or the native one of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortVlan {
    /// Its id.
    pub vid: Vid,
    /// The priority of the tag that is put on, 0 to 7.
    pub qos: u8,
    /// The kind of that tag.
    pub protocol: VlanProtocol,
}

impl PortVlan {
    /// The tag that the function's frames get, as on the wire.
    pub(crate) const fn tag(self) -> [u8; 4] {
        let tag =
            Tag { tpid: self.protocol.tpid(), pcp: self.qos, dei: false, vid: self.vid.get() };
        tag.to_bytes()
    }
}

impl From<Vid> for PortVlan {
    /// An 802.1Q VLAN of priority 0.
    fn from(vid: Vid) -> Self {
        Self { vid, qos: 0, protocol: VlanProtocol::Ieee8021Q }
    }
}

/// Administrative link state of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// Follows the uplink.
    #[default]
    Auto,
    /// Up, even if the uplink is down.
    Enable,
    /// Down: frames from and to the function are dropped.
    Disable,
}

impl LinkState {
    /// Effective link state, from this setting and the uplink.
    pub const fn is_up(self, uplink_up: bool) -> bool {
        match self {
            Self::Auto => uplink_up,
            Self::Enable => true,
            Self::Disable => false,
        }
    }

    /// The name, as `ip link` writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// Share of a function in the transmit capacity; see [`Schedule`](crate::nic::Schedule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Share of a lane's time under contention, relative to the others', 1 to 100.
    pub weight: u8,
    /// Guaranteed rate, Mbit/s; 0 for none.
    pub min_mbit: u32,
    /// Maximum rate, Mbit/s; 0 for no limit.
    pub max_mbit: u32,
}

impl Share {
    /// The share of a function of which none was set.
    pub(crate) const DEFAULT: Self = Self { weight: WEIGHT_DEFAULT, min_mbit: 0, max_mbit: 0 };
}

impl Default for Share {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Direction of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MirroredFrames {
    /// Frames to the function.
    Ingress,
    /// Frames from the function that the rules forward.
    Egress,
    /// Both.
    Both,
}

impl MirroredFrames {
    pub(crate) const fn has_ingress(self) -> bool {
        matches!(self, Self::Ingress | Self::Both)
    }

    pub(crate) const fn has_egress(self) -> bool {
        matches!(self, Self::Egress | Self::Both)
    }
}

/// Target of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MirrorTarget {
    /// To another port, whatever its VLAN.
    Port(PortId),
    /// To the capture of this number.
    Capture(u16),
}

/// A function's mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionMirror {
    /// Direction of the mirrored frames.
    pub way: MirroredFrames,
    /// Target of the copies.
    pub to: MirrorTarget,
}

/// The settings of a PF or VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The adapter's MAC, set by the operator.
    pub mac: Mac,
    /// Further MACs, set by the operator.
    pub extra_macs: Vec<Mac>,
    /// MACs requested by its guest, which requires trust.
    pub guest_macs: Vec<Mac>,
    /// VLAN as an access port, or native VLAN of a trunk; `None` for untagged.
    pub vlan: Option<PortVlan>,
    /// VLANs whose tags the guest may send and receive.
    pub trunk: Vids,
    /// Spoof check: drop frames from other MACs than the function's.
    pub spoof_check: bool,
    /// Trust: the guest may set MACs and the two modes below. A PF always may.
    pub trust: bool,
    /// Promiscuous: receives unknown unicast of its VLANs.
    pub promiscuous: bool,
    /// Receives all multicast, whatever `groups` says.
    pub all_multicast: bool,
    /// Groups that its guest has joined; `None` means all, for a guest that cannot join groups.
    /// Broadcasts need no joining.
    pub groups: Option<Vec<Mac>>,
    /// Its link.
    pub link: LinkState,
    /// Share of the transmit capacity.
    pub share: Share,
    /// Broadcasts and multicasts that it may send, in frames a second; 0 for no limit.
    pub storm_limit: u32,
    /// Mirror of its frames.
    pub mirror: Option<FunctionMirror>,
}

impl Function {
    /// An untagged function of one MAC, checked against spoofing, whose link is the uplink's.
    pub fn new(mac: Mac) -> Self {
        Self {
            mac,
            extra_macs: Vec::new(),
            guest_macs: Vec::new(),
            vlan: None,
            trunk: Vids::default(),
            spoof_check: true,
            trust: false,
            promiscuous: false,
            all_multicast: false,
            groups: None,
            link: LinkState::Auto,
            share: Share::default(),
            storm_limit: 0,
            mirror: None,
        }
    }

    /// Setting that prevents a device from placing frames in the guest's memory, if any.
    pub fn placing_obstacle(&self) -> Option<&'static str> {
        let because = [
            (self.vlan.is_some(), "the adapter has a VLAN, whose tag must be removed"),
            (!self.trunk.is_empty(), "the adapter receives tagged frames"),
            (self.mirror.is_some(), "frames to the adapter are mirrored"),
        ];
        because.into_iter().find_map(|(is, why)| is.then_some(why))
    }

    /// All MACs, each with the field it comes from.
    pub(crate) fn macs(&self) -> impl Iterator<Item = (Field, Mac)> + '_ {
        let extra = self.extra_macs.iter().enumerate();
        let guest = self.guest_macs.iter().enumerate();
        std::iter::once((Field::Mac, self.mac))
            .chain(extra.map(|(index, mac)| (Field::ExtraMac(index), *mac)))
            .chain(guest.map(|(index, mac)| (Field::GuestMac(index), *mac)))
    }

    /// The VLAN of its untagged frames as a number, 0 for untagged.
    pub(crate) fn vid(&self) -> u16 {
        self.vlan.map_or(0, |vlan| vlan.vid.get())
    }

    /// Every VLAN that it is a member of, 0 for untagged, each once.
    pub(crate) fn vids(&self) -> impl Iterator<Item = u16> + '_ {
        let native = self.vid();
        let others = self.trunk.iter().map(Vid::get).filter(move |vid| *vid != native);
        std::iter::once(native).chain(others)
    }

    /// Effective link state, from `link_state` and the uplink.
    pub fn is_up(&self, uplink_up: bool) -> bool {
        self.link.is_up(uplink_up)
    }
}

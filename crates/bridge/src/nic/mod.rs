//! The soft NIC: a PF, its VFs, receive queues, and the bridge between them and the uplink.
//!
//! Model: a Virtual Ethernet Bridge (VEB, IEEE 802.1Q-2022 edge virtual bridging). It does not
//! learn: the MACs behind each function are configured, and all others are on the wire. A
//! [`NicConfig`] is built into a [`Table`], which never changes; new settings make a new table.
//! [`Table::classify`] gives the verdicts for a burst of frame headers: a port, a flood, or a drop
//! with its reason.
//!
//! The PF is either a function with settings of its own, or a software switch is attached to it
//! ([`NicConfig::switch`]). Then the PF is always up and a trunk of every VLAN: it may send from
//! any MAC, with any tag or none. It receives all multicast, and unknown unicast as a promiscuous
//! function does; behind it are the addresses of its [`Filter`]s. A receive queue (VMDq, VMQ) is a
//! port that only receives: it takes frames for an adapter on that switch, bypassing the switch. It
//! has the MACs, VLANs and link of a function, and takes unicast frames for them.
//!
//! Rules, in the order of their application:
//! 1. All frames from a port without a function are dropped ([`DropReason::NoFunction`]), and so
//!    are those of one whose link is down ([`DropReason::LinkDown`]). A queue never sends
//!    ([`DropReason::NoFunction`]).
//! 2. With `spoof_check`, the source must be a MAC of the function ([`DropReason::SpoofedMac`]).
//! 3. A multicast source is rejected from any port ([`DropReason::SourceMulticast`]).
//! 4. A function with a VLAN is an access port: its frames carry no tag, not even a priority tag;
//!    under an 802.1ad VLAN they may carry customer tags, which are payload. One with a trunk may
//!    send the tags of its list and priority tags. One with neither may send priority tags (VID 0)
//!    and no others ([`DropReason::VlanForbidden`]). No function may send a priority tag that
//!    another tag follows: receivers remove the first, and the frame would enter the VLAN of the
//!    second. The uplink and the switch may send all tags. This rule holds with and without
//!    `spoof_check`: VLANs are isolated from each other.
//! 5. A frame from the uplink, the switch or a trunk belongs to the VLAN of its tag; others to the
//!    function's VLAN; without either to 0, which means "untagged". The VID alone identifies the
//!    VLAN, whichever kind of tag it is in.
//! 6. A multicast frame is flooded to the other members of the VLAN that have joined the group, and
//!    to the uplink; never to a queue, whose owner receives it through the switch.
//! 7. A MAC known in the VLAN goes to its port, unless it came from there ([`DropReason::Hairpin`])
//!    or the port's link is down ([`DropReason::LinkDown`]). The owner of a queue is on the switch:
//!    a frame from the switch to a queue is a hairpin.
//! 8. Any other goes to the uplink, unless it came from there ([`DropReason::NoMatch`]); and to
//!    promiscuous functions of the VLAN, the switch among them.
//! 9. In the mode [`Mode::Vepa`] functions reach each other through the uplink only: for rules 6 to
//!    8, all destinations of a function's frame are unknown. A frame reflected by the uplink does
//!    not return to the function with its source MAC ([`DropReason::Hairpin`]). With
//!    [`Mode::Isolated`] a frame between two functions is dropped ([`DropReason::Isolated`]). The
//!    switch and queues count as functions here. But a reflected frame from a MAC of the switch or
//!    of a queue returns to neither. A frame from the switch to its own address or to a queue is a
//!    hairpin in every mode.
//!
//! In switchdev mode ([`NicConfig::switchdev`]) none of these rules applies: see [`Table::sort`].
//!
//! A lane drives further objects with its own time: [`Schedule`] selects the next transmit ring and
//! its bytes, [`StormLimit`] limits broadcasts, [`Budget`] models the capacity of a real card.
//!
//! Limits: 255 VFs, 255 queues, [`MAX_MACS`] addresses of functions and queues, [`MAX_ADDRESSES`]
//! pairs of address and VLAN including those behind the PF, bursts of 64. Only the outermost tag is
//! examined, and for priority-tagged frames of functions the presence of a second one. No mirror
//! goes to a queue or to the switch, which would forward the copies. No I/O, no clock, no
//! allocation after the table is built; nothing here can panic on a frame's bytes.

mod budget;
mod classify;
mod config;
mod edit;
mod error;
mod explain;
mod flows;
mod function;
mod map;
mod mirror;
mod port;
mod receivers;
mod schedule;
mod source;
mod switchdev;
mod table;
mod vids;

pub use budget::{Budget, Capacity};
pub use config::{Filter, Mode, NicConfig};
pub use error::{ConfigError, Field, MAX_ADDRESSES, MAX_GROUPS, MAX_MACS};
pub use flows::Flows;
pub use function::{
    Function, FunctionMirror, LinkState, MirrorTarget, MirroredFrames, PortVlan, QOS_MAX, Share,
    VlanProtocol, WEIGHT_DEFAULT, WEIGHT_MAX,
};
pub use mirror::MirrorCopy;
pub use port::{MAX_QUEUES, MAX_VFS, PORTS, PortName};
pub use schedule::Schedule;
pub use switchdev::{MAX_RULES, Rule, RuleTarget, SwitchdevAction, SwitchdevActions};
pub use table::Table;
pub use vids::Vids;

#[cfg(any(test, feature = "testing"))]
#[path = "tests/model.rs"]
pub mod model;
#[cfg(test)]
mod tests;

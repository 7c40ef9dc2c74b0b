//! The soft NIC: a PF, its VFs, receive queues, and the bridge between them and the uplink.
//!
//! Model: a Virtual Ethernet Bridge (VEB, IEEE 802.1Q-2022 edge virtual bridging). It learns
//! nothing: which MAC lives behind which function is configured, so a destination is a function,
//! or it is out on the wire. A [`NicConfig`] is built into a [`Table`], which never changes; a
//! change of settings is a new table. [`Table::classify`] answers for a burst of frame heads: to
//! which port each goes, whether it is flooded, or why it is dropped.
//!
//! The PF is either a function with settings of its own, or it is given to a software switch
//! ([`NicConfig::switch`]). The switch is then up always and a member of every VLAN, as a trunk: it
//! may send from any MAC with any tag or none. It hears every group, and what is unknown as a
//! promiscuous function does; behind it are the addresses of its [`Filter`]s. A receive queue
//! (VMDq, VMQ) is a port that only receives: frames for an adapter on that switch, past the switch.
//! It has the MACs, VLANs and link of a function, and takes unicast frames for them.
//!
//! Rules, in the order in which they are applied to a frame:
//! 1. A port that has no function drops all ([`DropReason::NoFunction`]), and so does one whose
//!    link is down ([`DropReason::LinkDown`]). A queue never sends ([`DropReason::NoFunction`]).
//! 2. With `spoof_check`, the source must be a MAC of the function ([`DropReason::SpoofedMac`]).
//! 3. A source that is a group is refused from any port ([`DropReason::SourceMulticast`]).
//! 4. A function with a VLAN is an access port: its frames carry no tag, not even a priority tag;
//!    under an 802.1ad VLAN they may carry customer tags, which are payload. One with a trunk may
//!    send the tags of its list and priority tags. One with neither may send priority tags (VID 0)
//!    and no others ([`DropReason::VlanForbidden`]). No function may send a priority tag that
//!    another tag follows: receivers remove the first, and the frame would enter the VLAN of the
//!    second. The uplink and the switch carry all. That holds with and without `spoof_check`: a
//!    VLAN is a wall.
//! 5. A frame belongs to the VLAN of its tag, from the uplink, the switch and trunks; else to the
//!    function's VLAN; else to 0, which stands for "untagged". The VID alone names the VLAN,
//!    whichever kind of tag it stands in.
//! 6. A group address is flooded to the other members of the VLAN that hear the group, and to the
//!    uplink; never to a queue, whose owner hears it by the switch.
//! 7. A MAC known in the VLAN goes to its port, unless it came from there
//!    ([`DropReason::Hairpin`]) or the port's link is down ([`DropReason::LinkDown`]). The owner of
//!    a queue is on the switch: what the switch sends to a queue came from there.
//! 8. Any other goes to the uplink, unless it came from there ([`DropReason::NoMatch`]); and to
//!    promiscuous functions of the VLAN, the switch among them.
//! 9. In the mode [`Mode::Vepa`] functions reach each other by way of the uplink only: for rules 6
//!    to 8, a frame from a function is to nobody known. What the uplink sends back does not return
//!    to the function whose MAC it comes from ([`DropReason::Hairpin`]). With [`Mode::Isolated`] a
//!    frame from one function to another is dropped ([`DropReason::Isolated`]). The
//!    switch counts as a function here, and so does a queue. But what the uplink sends back from a
//!    MAC of the switch or of a queue returns to neither, and what the switch sends to an address
//!    of its own or of a queue is a hairpin in every mode.
//!
//! In switchdev mode ([`NicConfig::switchdev`]) all that is otherwise: see [`Table::sort`].
//!
//! Around the classifier, as objects that a lane drives with its own time: [`Schedule`] says which
//! transmit ring is next and how much it may send, [`StormLimit`] how many broadcasts, [`Budget`]
//! what a real card could carry.
//!
//! Limits: 255 VFs, 255 queues, [`MAX_MACS`] addresses of functions and queues,
//! [`MAX_ADDRESSES`] pairs of address and VLAN with those behind the PF, bursts of 64. Only the
//! outermost tag is looked at, and of a function's priority-tagged frames whether a second one
//! follows. No mirror goes to a queue or to the switch, which would send the copies on. No I/O, no
//! clock, no allocation after the table is built; nothing here can panic on a frame's bytes.

mod budget;
mod classify;
mod config;
mod edit;
mod flows;
mod function;
mod map;
mod mirror;
mod mistake;
mod port;
mod receivers;
mod schedule;
mod source;
mod switchdev;
mod table;
mod vids;

pub use budget::{Budget, Capacity};
pub use config::{
    Filter, MAX_ADDRESSES, MAX_GROUPS, MAX_MACS, MAX_QUEUES, MAX_VFS, Mode, NicConfig,
};
pub use flows::Flows;
pub use function::{
    Function, LinkState, Mirror, Monitor, PortVlan, QOS_MAX, Share, VlanProtocol, WEIGHT_DEFAULT,
    WEIGHT_MAX, Way,
};
pub use mirror::MirrorCopy;
pub use mistake::{ConfigError, Field};
pub use port::{PORTS, PortName};
pub use schedule::{Schedule, Turn};
pub use switchdev::{Fate, Fates, MAX_RULES, Rule, Target};
pub use table::Table;
pub use vids::Vids;
pub use wire::VlanEdit;

#[cfg(test)]
mod tests;

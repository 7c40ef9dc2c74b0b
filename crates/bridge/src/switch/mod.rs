//! The software switch: it learns addresses, keeps VLANs apart, and filters what guests send.
//!
//! Model: a [`SwitchConfig`] is built into a [`Table`], which never changes; new settings make a
//! new table, swapped whole. Learned addresses are in a [`State`], which all lanes share and which
//! outlives tables. [`Table::classify`] gives the verdicts for a burst of frame headers from one
//! port: a port, a flood, or a drop with its reason; and the mirrors that get a copy.
//! [`Table::vid`], [`Table::flood_ports`] and [`Table::edit`] give the details.
//!
//! Rules, in the order of their application:
//! 1. All frames from a port that the table does not have are dropped: its link is down
//!    ([`DropReason::LinkDown`]).
//! 2. A multicast source is rejected ([`DropReason::SourceMulticast`]).
//! 3. The frame gets its VLAN. An access port of a VLAN may send no tags, not even priority tags;
//!    under a service tag ([`Tagging`]) it may send customer tags, which are payload. An access
//!    port of the untagged network (VLAN 0 here) may send priority tags (VID 0). On a trunk a tag
//!    selects the VLAN; frames without one or with a priority tag belong to the native VLAN, if
//!    there is one. A VLAN of which the port is not a member is rejected. So is a priority tag that
//!    another tag follows, except from port 0: receivers remove the first, and the frame would
//!    enter the VLAN of the second ([`DropReason::VlanForbidden`]).
//! 4. Groups reserved for one link (`01:80:c2:00:00:00` to `0f`: STP, LACP, LLDP, pause) go no
//!    further ([`DropReason::LinkLocal`]; IEEE 802.1Q-2022, table 8-1).
//! 5. A source that is a static entry of another port is rejected ([`DropReason::SpoofedMac`]).
//! 6. On ports with a guard or an ACL, a frame must show its headers up to ports or ICMP type
//!    within [`HeaderSnapshot::LEN`] bytes ([`DropReason::HiddenHeader`]). See below.
//! 7. The DHCP guard drops messages of DHCP and DHCPv6 servers and relays: UDP from port 67 or to
//!    68 over IPv4, from 547 or to 546 over IPv6 ([`DropReason::DhcpGuard`]). The router guard
//!    drops router advertisements and redirects of ICMPv6, and of ICMP
//!    ([`DropReason::RouterGuard`]).
//! 8. The ACL's rules are tried in order; the first to match that allows or denies decides. Rules
//!    that count only count, and the search goes on. Else the ACL's default decides
//!    ([`DropReason::AclDeny`]).
//! 9. The source is learned, unless it is a static entry: from up to [`LEARN_MAX`] frames of a
//!    burst. An address seen at another port moves there. A port with its maximum number of
//!    addresses gets no more; frames from other addresses pass or not, as configured
//!    ([`DropReason::MacLimit`]). The whole burst is learned before any of it is forwarded.
//! 10. A group is flooded to the other members of the VLAN.
//! 11. A MAC of a static entry, or else a learned one whose port is still a member of the VLAN,
//!     goes to its port: not back to its own port ([`DropReason::Hairpin`]), and not from one
//!     isolated port to another ([`DropReason::Isolated`]).
//! 12. Any other MAC is flooded to those members that receive unknown unicast.
//! 13. A flood skips isolated ports if it came from one. A flood without receivers is dropped
//!     ([`DropReason::NoMatch`]).
//! 14. Storm control limits the frames a second of each kind of flood
//!     ([`DropReason::StormBroadcast`] and so on). Frames dropped by rule 13 are not charged.
//! 15. Each mirror gets at most one copy. Frames of its ingress ports are copied as sent, even if
//!     dropped (but not under rule 1). Frames to its egress ports are copied as the first of them
//!     receives them. The frame's sender and its receivers get no copy.
//!
//! Rules 6 to 8 parse up to two tags and one LLC/SNAP header in any order, since receivers take IP
//! out of them (CERT VU#855201); IPv4 with options, IPv6 with up to eight extension headers. A
//! frame with more is dropped. So is one whose first fragment ends before the ports (RFC 1858, RFC
//! 7112), and a TCP fragment that would overwrite flags (RFC 3128). A later fragment has addresses
//! and a protocol but no ports. Rules that name ports, ICMP types or flags never match it, and
//! others do; a rule can ask for later fragments only. ESP, and the payload of tunnels, is a
//! protocol without ports.
//!
//! The receiver gets the bytes of `snapshots` as they are; classified bytes are not read again.
//!
//! Limits: [`MAX_PORTS`] ports, [`MAX_RULES`] rules, [`MAX_STATICS`] static entries,
//! [`MAX_MIRRORS`] mirrors, bursts of 64. Only the outermost tag selects the VLAN. A guest on a
//! trunk can hide a second tag behind that of another trunk's native VLAN; it appears when the
//! first is popped. So a native VLAN should have no trunks of guests. No I/O, no clock, no
//! allocation after the table is built; nothing here can panic on a frame's bytes.

/// Maximum number of ports of a switch, including the uplink.
pub const MAX_PORTS: usize = 512;

mod acl;
mod bins;
mod classify;
mod config;
mod error;
mod explain;
mod fdb;
mod flows;
mod forward;
mod groups;
mod meter;
mod mirror;
mod run;
mod screen;
mod source;
mod table;
mod verdicts;
mod vlan;

pub use acl::{Acl, MAX_RULES, Rule, RuleAction};
pub use classify::Burst;
pub use config::{
    Beyond, Learning, MAX_MIRRORS, MAX_RATE, MAX_STATICS, PortConfig, StaticEntry, Storm,
    SwitchConfig, SwitchMirror,
};
pub use error::{ConfigError, ErrorLocation};
pub use fdb::{CapacityError, Entry, Fdb, Flush, State};
pub use flows::Flows;
pub use forward::LEARN_MAX;
pub use table::Table;
pub use verdicts::SwitchVerdicts;
pub use vlan::{Native, Tagging, VidSet, Vlans};
pub use wire::HeaderSnapshot;

#[cfg(test)]
mod tests;

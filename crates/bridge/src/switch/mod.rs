//! The software switch: it learns addresses, keeps VLANs apart, and filters what guests send.
//!
//! Model: a [`SwitchConfig`] is built into a [`Table`], which never changes; a change of settings
//! is a new table, swapped whole. What is learned lives in a [`State`], which all lanes share and
//! which outlives tables. [`Table::classify`] answers for a burst of frame heads from one port: to
//! which port each goes, whether it is flooded, or why it is dropped; and which mirrors want a
//! copy. [`Table::vid`], [`Table::flood_ports`] and [`Table::edit`] say the rest.
//!
//! Rules, in the order in which they are applied to a frame:
//! 1. A port that the table does not have drops all ([`DropReason::NoPort`]).
//! 2. A source that is a group is refused ([`DropReason::SourceMulticast`]).
//! 3. The frame finds its VLAN. An access port of a VLAN sends no tags, not even priority tags, but
//!    for customer tags as payload if its own is a service tag ([`Tagging`]); an access port of the
//!    untagged network (VLAN 0 here) may send priority tags (VID 0). On a trunk,
//!    a tag says the VLAN, and frames without one or with a priority tag belong to the native VLAN,
//!    if there is one. A VLAN that the port is no member of is refused, and so is a priority tag
//!    that another tag follows, except from port 0: receivers remove the first, and the frame would
//!    enter the VLAN of the second ([`DropReason::VlanForbidden`]).
//! 4. Groups reserved for one link (`01:80:c2:00:00:00` to `0f`: STP, LACP, LLDP, pause) go no
//!    further ([`DropReason::LinkLocal`]; IEEE 802.1Q-2022, table 8-1).
//! 5. A source that is a static entry of another port is refused ([`DropReason::SpoofedMac`]).
//! 6. On ports with a guard or an ACL, a frame must show its headers up to ports or ICMP type
//!    within [`HeaderSnapshot::LEN`] bytes ([`DropReason::HiddenHeader`]). See below.
//! 7. The DHCP guard drops what DHCP and DHCPv6 servers and relays send: UDP from port 67 or to 68
//!    over IPv4, from 547 or to 546 over IPv6 ([`DropReason::DhcpGuard`]). The router guard drops
//!    router advertisements and redirects of ICMPv6, and of ICMP ([`DropReason::RouterGuard`]).
//! 8. The ACL's rules are tried in order; the first to match that allows or denies decides. Rules
//!    that count only count, and the search goes on. Else the ACL's default decides
//!    ([`DropReason::AclDeny`]).
//! 9. The source is learned, unless it is a static entry: from up to [`LEARN_MAX`] frames of a
//!    burst. An address that comes from another port than before moves there. A port that has as
//!    many addresses as it may gets no more; frames from others pass or not, as configured
//!    ([`DropReason::MacLimit`]). The whole burst is learned from before any of it is forwarded.
//! 10. A group is flooded to the other members of the VLAN.
//! 11. A MAC of a static entry, or else a learned one whose port is still a member of the VLAN,
//!     goes to its port: not back where it came from ([`DropReason::Hairpin`]), and not from one
//!     isolated port to another ([`DropReason::Isolated`]).
//! 12. Any other MAC is flooded to those members that want unknown addresses.
//! 13. A flood skips isolated ports if it came from one. One that reaches nobody is dropped
//!     ([`DropReason::NoMatch`]).
//! 14. Storm control lets so many frames a second of each kind of flood pass
//!     ([`DropReason::StormBroadcast`] and so on). Frames of rule 13 are not charged for.
//! 15. Each mirror gets at most one copy: of what its ingress ports sent, even if it was dropped
//!     (but not under rule 1), as they sent it; and of what its egress ports receive, as the first
//!     of them does. The frame's sender, and who receives the frame anyway, get none.
//!
//! What rules 6 to 8 see: up to two tags and one LLC/SNAP header in any order, since receivers
//! take IP out of them (CERT VU#855201); IPv4 with options, IPv6 with up to eight extension
//! headers. A frame with more is dropped, as is one whose first fragment ends before the ports
//! (RFC 1858, RFC 7112), and a TCP fragment that would overwrite flags (RFC 3128). A later fragment
//! has addresses and a protocol but no ports: rules of an ACL that name ports, ICMP types or flags
//! never match it, and others do; a rule can ask for later fragments only. ESP, and what runs
//! inside tunnels, is a protocol without ports.
//!
//! What `deep` shows must also be what the receiver gets: bytes that were judged are delivered from
//! the snapshot, not read again.
//!
//! Limits: [`MAX_PORTS`] ports, [`MAX_RULES`] rules, [`MAX_STATICS`] static entries,
//! [`MAX_MIRRORS`] mirrors, bursts of 64. VLANs are told by the outermost tag alone: a guest on a
//! trunk can put a second tag behind that of another trunk's native VLAN, where it shows when the
//! first is taken off, so a native VLAN should have no guests' trunks. No I/O, no clock, no
//! allocation after the table is built; nothing here can panic on a frame's bytes.

/// The most ports that a switch can have, the uplink included.
pub const MAX_PORTS: usize = 512;

mod acl;
mod bins;
mod classify;
mod config;
mod error;
mod fdb;
mod flows;
mod forward;
mod groups;
mod meter;
mod mirror;
mod screen;
mod table;
mod verdicts;
mod vlan;

pub use acl::{Acl, Icmp, IpPrefix, MAX_RULES, MacPrefix, Match, Rule, RuleAction, TcpFlags};
pub use classify::Burst;
pub use config::{
    Beyond, Learning, MAX_MIRRORS, MAX_RATE, MAX_STATICS, Mirror, PortConfig, StaticEntry, Storm,
    SwitchConfig,
};
pub use error::{ConfigError, Place};
pub use fdb::{CapacityError, Entry, Fdb, Flush, State};
pub use flows::Flows;
pub use forward::LEARN_MAX;
pub use table::Table;
pub use verdicts::SwitchVerdicts;
pub use vlan::{Native, Tagging, VidSet, Vlans};
pub use wire::HeaderSnapshot;
pub use wire::VlanEdit;

#[cfg(test)]
mod tests;

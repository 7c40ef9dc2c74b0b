//! The soft NIC: a PF, its VFs, and the bridge between them and the uplink.
//!
//! Model: a Virtual Ethernet Bridge (VEB, IEEE 802.1Q-2022 edge virtual bridging). It learns
//! nothing: which MAC lives behind which function is configured, so a destination is a function,
//! or it is out on the wire. A [`NicConfig`] is built into a [`Table`], which never changes; a
//! change of settings is a new table. [`Table::classify`] answers for a burst of frame heads: to
//! which port each goes, whether it is flooded, or why it is dropped.
//!
//! Rules, in the order in which they are applied to a frame:
//! 1. A port that has no function drops all ([`DropReason::NoFunction`]).
//! 2. With `spoof_check`, the source must be a MAC of the function ([`DropReason::SpoofedMac`]).
//! 3. A source that is a group is refused from any port ([`DropReason::SourceMulticast`]).
//! 4. A function with a VLAN is an access port: its frames carry no tag, not even a priority tag.
//!    One without a VLAN may send priority tags (VID 0) and no others
//!    ([`DropReason::VlanForbidden`]). The uplink carries all.
//! 5. A frame belongs to the function's VLAN; from the uplink, to that of its tag; else to 0, which
//!    stands for "untagged".
//! 6. A group address is flooded to the other members of the VLAN and the uplink.
//! 7. A MAC known in the VLAN goes to its port, unless it came from there
//!    ([`DropReason::Hairpin`]).
//! 8. Any other goes to the uplink, unless it came from there ([`DropReason::NoMatch`]).
//!
//! Limits: 255 VFs, [`MAX_MACS`] addresses, bursts of 64. Only the outermost tag is looked at, as
//! the head is 16 bytes: what follows a priority tag is payload here. No I/O, no clock, no
//! allocation after the table is built; nothing here can panic on a frame's bytes.

mod classify;
mod config;
mod flows;
mod map;
mod port;
mod reason;
mod table;
mod verdict;

pub use config::{ConfigError, Field, Function, MAX_MACS, MAX_VFS, NicConfig};
pub use flows::Flows;
pub use port::PortId;
pub use reason::DropReason;
pub use table::{Table, VlanEdit};
pub use verdict::{Action, BURST, Summary, Verdict, Verdicts};

#[cfg(test)]
mod tests;

//! Drop reasons and ring faults: name, counters, meaning, likely cause and remedy of each.
//!
//! The one table of both: the counter file takes the names of drops from here, and so do
//! `shunt stats`, `shunt explain` and `docs/drops.md`. Counters `tx_` are at the sender's port,
//! counters `rx_` at the receiver's; `tx_switch_` are decisions of the switch, other `tx_` those of
//! the NIC and of the ring. A fault stops the ring in which it is found, and has the name of its
//! [`virtq::Fault`].

use bridge::DropReason as Reason;

use virtq::Fault;

use crate::port::counter::{
    RX_DOWN, RX_FAULTS, RX_NO_BUFFER, RX_TOO_SMALL, TX_DISABLED, TX_FAULTS, TX_OFFLOAD,
    TX_OVERSIZE, TX_RUNT, TX_UNPLUGGED, nic_drop as nic, switch_drop as switch,
};

/// A drop reason or ring fault, with text for operators.
#[derive(Debug)]
pub struct ReasonEntry {
    /// Stable name.
    pub name: &'static str,
    /// Names of its counters in `/v1/stats`, with their indices in a port's block.
    pub(crate) counters: &'static [(&'static str, usize)],
    /// Condition under which frames are dropped, or a ring is stopped; a sentence.
    pub meaning: &'static str,
    /// Likely cause; a sentence.
    pub cause: &'static str,
    /// Remedy; a sentence.
    pub remedy: &'static str,
}

impl ReasonEntry {
    /// Names of its counters in `/v1/stats`.
    pub fn counters(&self) -> impl Iterator<Item = &'static str> {
        self.counters.iter().map(|(name, _)| *name)
    }

    /// All drop reasons, and all ring faults.
    pub fn all() -> impl Iterator<Item = &'static ReasonEntry> {
        DROPS.iter().chain(&FAULTS)
    }

    /// The reason with this name, or with a counter of this name.
    pub fn find(name: &str) -> Option<&'static ReasonEntry> {
        Self::all().find(|reason| reason.name == name || reason.counters().any(|it| it == name))
    }
}

/// All drop reasons: of the sender's ring, of the NIC and the switch, of the receiver's ring.
pub static DROPS: [ReasonEntry; 27] = [
    ReasonEntry {
        name: "runt",
        counters: &[("tx_runt", TX_RUNT)],
        meaning: "The frame is shorter than an Ethernet header with its tags.",
        cause: "A faulty driver or a test program in the guest.",
        remedy: "Update the guest's driver; send at least 14 bytes, 18 with a VLAN tag.",
    },
    ReasonEntry {
        name: "oversize",
        counters: &[("tx_oversize", TX_OVERSIZE)],
        meaning: "The frame is longer than the MTU of its port allows.",
        cause: "The guest's interface has a larger MTU than its adapter.",
        remedy: "Set the same MTU in the guest and for the adapter (`--mtu`).",
    },
    ReasonEntry {
        name: "offload",
        counters: &[("tx_offload", TX_OFFLOAD)],
        meaning: "The frame contradicts its virtio header: checksum or segmentation offload.",
        cause: "A faulty driver, or an offload that was not negotiated.",
        remedy: "Update the guest's driver, or switch its offloads off (`ethtool -K`).",
    },
    ReasonEntry {
        name: "disabled",
        counters: &[("tx_disabled", TX_DISABLED)],
        meaning: "The transmit ring is disabled by the guest's device.",
        cause: "The VMM has disabled the queue: link down in QEMU, or fewer queues in use.",
        remedy: "Enable the queue: `set_link` in QEMU, `ethtool -L` in the guest.",
    },
    ReasonEntry {
        name: "unplugged",
        counters: &[("tx_unplugged", TX_UNPLUGGED)],
        meaning: "The port has no place in a NIC or switch.",
        cause: "The port is just being added or removed.",
        remedy: "If the counter keeps growing, look up the adapter's path with `shunt adapter \
                 list`.",
    },
    ReasonEntry {
        name: "no_function",
        counters: &[("tx_no_function", nic(Reason::NoFunction))],
        meaning: "The NIC has no VF or PF configured at the port.",
        cause: "A fault of the daemon: it removes the port of a VF together with the VF.",
        remedy: "Report it, with the output of `shunt export`.",
    },
    ReasonEntry {
        name: "link_down",
        counters: &[("tx_link_down", nic(Reason::LinkDown))],
        meaning: "The link of the sender is down, or that of every receiver on path vf or vmq.",
        cause: "`link_state = \"disable\"`, or `auto` while the uplink is down.",
        remedy: "Set `--link-state enable` or `auto`, and look up the uplink with `shunt nic \
                 show`.",
    },
    ReasonEntry {
        name: "storm",
        counters: &[("tx_storm", nic(Reason::Storm))],
        meaning: "Broadcasts and multicasts exceed the storm limit of the VF.",
        cause: "A loop in the guest, a scan, or a limit that is too low.",
        remedy: "Remove the loop, or raise `storm_limit_pps`.",
    },
    ReasonEntry {
        name: "rule",
        counters: &[("tx_rule", nic(Reason::Rule))],
        meaning: "A rule of the NIC in switchdev mode drops the frame.",
        cause: "A rule with the destination `drop`.",
        remedy: "Find the rule by its counter with `shunt nic rules`, and remove it.",
    },
    ReasonEntry {
        name: "spoofed_mac",
        counters: &[
            ("tx_spoofed_mac", nic(Reason::SpoofedMac)),
            ("tx_switch_spoofed_mac", switch(Reason::SpoofedMac)),
        ],
        meaning: "The source MAC is not the sender's, or belongs to another port of the switch.",
        cause: "Another MAC set in the guest, or a bridge, container or nested VM in it.",
        remedy: "Use the adapter's MAC, allow more with `--macs`, or set `--spoof-check off`.",
    },
    ReasonEntry {
        name: "source_multicast",
        counters: &[
            ("tx_source_multicast", nic(Reason::SourceMulticast)),
            ("tx_switch_source_multicast", switch(Reason::SourceMulticast)),
        ],
        meaning: "The source MAC is a group address.",
        cause: "A faulty driver or a test program in the guest.",
        remedy: "Send from a unicast address.",
    },
    ReasonEntry {
        name: "vlan_forbidden",
        counters: &[
            ("tx_vlan_forbidden", nic(Reason::VlanForbidden)),
            ("tx_switch_vlan_forbidden", switch(Reason::VlanForbidden)),
        ],
        meaning: "The port may not send the frame's tag or VLAN.",
        cause: "The guest sends tags on an access port, or a VLAN outside the trunk.",
        remedy: "Remove the VLAN interface in the guest, or allow the VLAN with `--trunks`.",
    },
    ReasonEntry {
        name: "hairpin",
        counters: &[
            ("tx_hairpin", nic(Reason::Hairpin)),
            ("tx_switch_hairpin", switch(Reason::Hairpin)),
        ],
        meaning: "The destination is behind the port that the frame came from.",
        cause: "A frame that was flooded or reflected outside, or two guests with one MAC.",
        remedy: "None is needed for floods; otherwise look up the address with `shunt switch fdb`.",
    },
    ReasonEntry {
        name: "no_match",
        counters: &[
            ("tx_no_match", nic(Reason::NoMatch)),
            ("tx_switch_no_match", switch(Reason::NoMatch)),
        ],
        meaning: "No port receives the frame.",
        cause: "An unknown address, as behind a link that is down, or a VLAN with one member.",
        remedy: "Compare the MACs and VLANs of both ends with `shunt adapter list`.",
    },
    ReasonEntry {
        name: "isolated",
        counters: &[
            ("tx_isolated", nic(Reason::Isolated)),
            ("tx_switch_isolated", switch(Reason::Isolated)),
        ],
        meaning: "Sender and receiver are isolated from each other.",
        cause: "Both ports are isolated, or the NIC's mode is `isolated`.",
        remedy: "Set `--isolated off` for one of them, or the NIC's mode `veb`.",
    },
    ReasonEntry {
        name: "link_local",
        counters: &[("tx_switch_link_local", switch(Reason::LinkLocal))],
        meaning: "The destination is reserved for a single link (IEEE 802.1Q-2022, table 8-1).",
        cause: "LLDP, STP or LACP in the guest or on the wire.",
        remedy: "None is needed: bridges do not forward these frames.",
    },
    ReasonEntry {
        name: "hidden_header",
        counters: &[("tx_switch_hidden_header", switch(Reason::HiddenHeader))],
        meaning: "An ACL or guard needs headers that are cut off, malformed or too far back.",
        cause: "More than two VLAN tags, long extension headers, or malformed packets.",
        remedy: "Remove the tags or extension headers, or the port's ACL and guards.",
    },
    ReasonEntry {
        name: "dhcp_guard",
        counters: &[("tx_switch_dhcp_guard", switch(Reason::DhcpGuard))],
        meaning: "A DHCP server message from a port with a DHCP guard.",
        cause: "A DHCP server in the guest.",
        remedy: "Stop the server, or set `--dhcp-guard off` for its port.",
    },
    ReasonEntry {
        name: "router_guard",
        counters: &[("tx_switch_router_guard", switch(Reason::RouterGuard))],
        meaning: "A router advertisement or redirect from a port with a router guard.",
        cause: "A router daemon, or IP forwarding, in the guest.",
        remedy: "Stop it, or set `--router-guard off` for its port.",
    },
    ReasonEntry {
        name: "acl_deny",
        counters: &[("tx_switch_acl_deny", switch(Reason::AclDeny))],
        meaning: "The ACL of the sender's port denies the frame.",
        cause: "A rule with the action `deny`, or a list of `allow` rules without a match.",
        remedy: "Find the rule by its counter with `shunt switch acl`.",
    },
    ReasonEntry {
        name: "mac_limit",
        counters: &[("tx_switch_mac_limit", switch(Reason::MacLimit))],
        meaning: "The source MAC is unknown, and the port may not learn another.",
        cause: "Spoof check on a switch port, with another MAC in the guest.",
        remedy: "Use the adapter's MAC, allow more with `--macs`, or set `--spoof-check off`.",
    },
    ReasonEntry {
        name: "storm_broadcast",
        counters: &[("tx_switch_storm_broadcast", switch(Reason::StormBroadcast))],
        meaning: "Broadcasts exceed the storm limit of the port.",
        cause: "A loop in the guest, a scan, or a limit that is too low.",
        remedy: "Remove the loop, or raise `storm_limit_pps`.",
    },
    ReasonEntry {
        name: "storm_multicast",
        counters: &[("tx_switch_storm_multicast", switch(Reason::StormMulticast))],
        meaning: "Multicasts exceed the storm limit of the port.",
        cause: "A multicast stream from the guest, or a limit that is too low.",
        remedy: "Raise `storm_limit_pps`.",
    },
    ReasonEntry {
        name: "storm_unknown",
        counters: &[("tx_switch_storm_unknown", switch(Reason::StormUnknown))],
        meaning: "Frames to unknown addresses exceed the storm limit of the port.",
        cause: "A scan, or a receiver that never sends.",
        remedy: "Add the receiver as a static address, or raise `storm_limit_pps`.",
    },
    ReasonEntry {
        name: "no_buffer",
        counters: &[("rx_no_buffer", RX_NO_BUFFER)],
        meaning: "The receiver's guest has posted no buffer.",
        cause: "The guest is slower than its senders, or stopped.",
        remedy: "Give the guest more CPU time, or a larger ring (`rx_queue_size` in QEMU).",
    },
    ReasonEntry {
        name: "too_small",
        counters: &[("rx_too_small", RX_TOO_SMALL)],
        meaning: "The receiver's buffers are smaller than the frame.",
        cause: "The receiver's MTU is smaller than the sender's.",
        remedy: "Set the same MTU in both guests.",
    },
    ReasonEntry {
        name: "down",
        counters: &[("rx_down", RX_DOWN)],
        meaning: "The receiver has no running receive ring.",
        cause: "The guest is not connected, or its driver has not started.",
        remedy: "Start the guest; `shunt adapter list` shows which guests are there.",
    },
];

/// Cause of a fault that only a guest can make.
const FAULTY: &str = "A faulty or hostile driver in the guest.";
/// Remedy for it.
const RESTART: &str = "Update the guest's driver; a reset of its device starts the ring again.";

/// Counters of a fault.
macro_rules! fault_counters {
    ($name:literal, $fault:ident) => {
        &[
            (concat!("tx_", $name), TX_FAULTS + Fault::$fault as usize),
            (concat!("rx_", $name), RX_FAULTS + Fault::$fault as usize),
        ]
    };
}

/// All ring faults. The counters count the stops of a transmit and of a receive ring.
pub static FAULTS: [ReasonEntry; Fault::ALL.len()] = [
    ReasonEntry {
        name: "index_jump",
        counters: fault_counters!("index_jump", IndexJump),
        meaning: "The guest's index into the ring moved by more than the ring's size.",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "bad_index",
        counters: fault_counters!("bad_index", BadIndex),
        meaning: "A descriptor or a link names an entry outside the descriptor table.",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "chain_too_long",
        counters: fault_counters!("chain_too_long", ChainTooLong),
        meaning: "A descriptor chain has a loop, or more than 256 entries (32 in a receive buffer).",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "chain_too_large",
        counters: fault_counters!("chain_too_large", ChainTooLarge),
        meaning: "A descriptor chain holds more than 1 MiB.",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "outside_memory",
        counters: fault_counters!("outside_memory", OutsideMemory),
        meaning: "A buffer or table is outside the guest's memory, or crosses two of its regions.",
        cause: "A faulty driver, or memory that the VMM does not share, such as hot-plugged \
                memory.",
        remedy: "Share all guest memory (`memory-backend-memfd,share=on`), and restart the guest's \
                 driver.",
    },
    ReasonEntry {
        name: "wrong_direction",
        counters: fault_counters!("wrong_direction", WrongDirection),
        meaning: "A buffer to be sent is marked as writable, or a buffer to receive as readable.",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "bad_indirect",
        counters: fault_counters!("bad_indirect", BadIndirect),
        meaning: "An indirect descriptor table is malformed, or was not negotiated.",
        cause: FAULTY,
        remedy: RESTART,
    },
    ReasonEntry {
        name: "truncated",
        counters: fault_counters!("truncated", Truncated),
        meaning: "The file of the guest's memory became smaller.",
        cause: "The VMM, or another process with the file, has truncated it.",
        remedy: "Restart the guest; let only its VMM write to the memory file.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::port::counter::schema;

    #[test]
    fn every_drop_counter_and_every_reason_of_the_bridge_is_in_the_table_once() {
        let at: Vec<usize> = DROPS.iter().flat_map(|drop| drop.counters).map(|it| it.1).collect();
        let distinct: BTreeSet<usize> = at.iter().copied().collect();
        assert_eq!(distinct.len(), at.len(), "two counters have one place");
        let port = [TX_RUNT, TX_OVERSIZE, TX_OFFLOAD, TX_DISABLED, TX_UNPLUGGED];
        let port = [&port[..], &[RX_NO_BUFFER, RX_TOO_SMALL, RX_DOWN]].concat();
        let nics = Reason::NIC.iter().map(|reason| nic(*reason));
        let all: BTreeSet<usize> =
            nics.chain(Reason::SWITCH.iter().map(|reason| switch(*reason))).chain(port).collect();
        assert_eq!(distinct, all);
        for reason in Reason::ALL {
            let drop =
                ReasonEntry::find(&reason.name().replace('-', "_")).expect("it is in the table");
            let has = |at| drop.counters.iter().any(|(_, place)| *place == at);
            assert!(!Reason::NIC.contains(&reason) || has(nic(reason)), "{reason}");
            assert!(!Reason::SWITCH.contains(&reason) || has(switch(reason)), "{reason}");
        }
    }

    #[test]
    fn every_fault_is_in_the_table_once() {
        let named: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        assert_eq!(named, Fault::ALL.map(Fault::name));
    }

    #[test]
    fn names_of_counters_end_in_the_reason_and_texts_are_sentences() {
        let names = schema();
        let distinct: BTreeSet<&str> = ReasonEntry::all().map(|reason| reason.name).collect();
        assert_eq!(distinct.len(), DROPS.len() + FAULTS.len());
        for reason in ReasonEntry::all() {
            for (counter, at) in reason.counters {
                assert!(counter.ends_with(reason.name), "{counter}");
                let of_file = names[*at].replacen("_drop_", "_", 1).replacen("_fault_", "_", 1);
                assert_eq!(of_file, *counter);
                assert!(std::ptr::eq(ReasonEntry::find(counter).unwrap(), reason));
            }
            for text in [reason.meaning, reason.cause, reason.remedy] {
                assert!(text.ends_with('.') && text.len() < 100, "{}: {text}", reason.name);
            }
        }
    }
}

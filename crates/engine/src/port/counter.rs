//! Counters of a port, by their index in its block.
//!
//! The transmit half and the receive half have different writers, so their counters are on
//! different cache lines.

use bridge::DropReason;
use virtq::Fault;

use crate::drops::DROPS;

pub(crate) const TX_FRAMES: usize = 0;
pub(crate) const TX_BYTES: usize = 1;
pub(crate) const TX_NOTIFIES: usize = 2;
pub(crate) const TX_RUNT: usize = 3;
pub(crate) const TX_OVERSIZE: usize = 4;
pub(crate) const TX_OFFLOAD: usize = 5;
/// The ring is disabled.
pub(crate) const TX_DISABLED: usize = 6;
/// One counter for each drop reason of the NIC, [`DropReason::NIC`].
pub(crate) const TX_DROPS: usize = 7;
/// One counter for each drop reason of the switch, [`DropReason::SWITCH`].
pub(crate) const TX_SWITCH_DROPS: usize = TX_DROPS + DropReason::NIC.len();
/// Copies that went to the uplink, and their bytes.
pub(crate) const TX_UPLINK_FRAMES: usize = TX_SWITCH_DROPS + DropReason::SWITCH.len();
pub(crate) const TX_UPLINK_BYTES: usize = TX_UPLINK_FRAMES + 1;
/// Drops since the port has no location.
pub(crate) const TX_UNPLUGGED: usize = TX_UPLINK_BYTES + 1;
/// One counter for each fault of the transmit ring.
pub(crate) const TX_FAULTS: usize = TX_UNPLUGGED + 1;
/// Cycles of lanes for the bursts that it sent.
pub(crate) const TX_CYCLES: usize = TX_FAULTS + Fault::ALL.len();
/// Bursts with frames, and those of them that left frames waiting in the ring.
pub(crate) const TX_BURSTS: usize = TX_CYCLES + 1;
pub(crate) const TX_BACKLOG_BURSTS: usize = TX_CYCLES + 2;
const TX_END: usize = TX_BACKLOG_BURSTS + 1;
pub(crate) const RX_FRAMES: usize = TX_END.next_multiple_of(16);
pub(crate) const RX_BYTES: usize = RX_FRAMES + 1;
pub(crate) const RX_NOTIFIES: usize = RX_FRAMES + 2;
pub(crate) const RX_NO_BUFFER: usize = RX_FRAMES + 3;
pub(crate) const RX_TOO_SMALL: usize = RX_FRAMES + 4;
pub(crate) const RX_DOWN: usize = RX_FRAMES + 5;
/// Frames that came from the uplink, and their bytes.
pub(crate) const RX_UPLINK_FRAMES: usize = RX_FRAMES + 6;
pub(crate) const RX_UPLINK_BYTES: usize = RX_FRAMES + 7;
pub(crate) const RX_FAULTS: usize = RX_FRAMES + 8;
pub(crate) const ATTACHED: usize = RX_FAULTS + Fault::ALL.len();
/// Times the port was taken off the lanes.
pub(crate) const QUARANTINES: usize = ATTACHED + 1;
/// Times its interrupts were moved off the lanes.
pub(crate) const NOTIFIER: usize = ATTACHED + 2;
pub(crate) const END: usize = ATTACHED + 3;

/// Counter of a drop by the NIC.
pub(crate) const fn nic_drop(reason: DropReason) -> usize {
    TX_DROPS + reason.nic_index()
}

/// Counter of a drop by the switch. A link that is down is one reason on every path.
pub(crate) const fn switch_drop(reason: DropReason) -> usize {
    match reason {
        DropReason::LinkDown => nic_drop(reason),
        _ => TX_SWITCH_DROPS + reason.switch_index(),
    }
}

/// Gauges: not added up.
pub(crate) const GAUGES: &[&str] = &["rings_attached", "-"];

/// Names of a port's counters, in order.
pub(crate) fn schema() -> Vec<String> {
    let mut names: Vec<String> = vec!["-".into(); END];
    let mut name = |at: usize, name: &str| names[at] = name.to_owned();
    name(TX_FRAMES, "tx_frames");
    name(TX_BYTES, "tx_bytes");
    name(TX_NOTIFIES, "tx_notifies");
    name(TX_CYCLES, "tx_cycles");
    name(TX_BURSTS, "tx_bursts");
    name(TX_BACKLOG_BURSTS, "tx_backlog_bursts");
    for (counter, at) in DROPS.iter().flat_map(|drop| drop.counters) {
        let [half, reason] = [&counter[..2], &counter[3..]];
        name(*at, &format!("{half}_drop_{reason}"));
    }
    name(TX_UPLINK_FRAMES, "tx_uplink_frames");
    name(TX_UPLINK_BYTES, "tx_uplink_bytes");
    name(RX_UPLINK_FRAMES, "rx_uplink_frames");
    name(RX_UPLINK_BYTES, "rx_uplink_bytes");
    name(RX_FRAMES, "rx_frames");
    name(RX_BYTES, "rx_bytes");
    name(RX_NOTIFIES, "rx_notifies");
    for (i, fault) in Fault::ALL.iter().enumerate() {
        name(TX_FAULTS + i, &format!("tx_fault_{}", fault.name()));
        name(RX_FAULTS + i, &format!("rx_fault_{}", fault.name()));
    }
    name(ATTACHED, "rings_attached");
    name(QUARANTINES, "quarantines");
    name(NOTIFIER, "notifies_moved");
    names
}

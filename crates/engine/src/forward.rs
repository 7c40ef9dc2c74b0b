//! One burst, from a guest's transmit ring to the receive rings it is for.

use bridge::rate::StormLimit;
use host::stall::BurstMarker;
use port::{Burst, Placed, Polled, Transmit};

use crate::pipeline::{BurstSource, Charges, NicEgress, Pipeline, Storm, SwitchEgress};
use crate::port::{Port, counter};
use crate::queue_list::TxRing;
use crate::scratch::Scratch;
use crate::snapshot::PortLocation;
use crate::stage_clock::StageClock;
use crate::stages::Stage;
use crate::view::BurstView;

/// State of a transmit ring that a lane keeps from burst to burst.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Flow caches of the classifiers.
    nic_flows: bridge::nic::Flows,
    switch_flows: bridge::switch::Flows,
    storm: StormLimit,
    storm_per_second: u32,
    /// The time, ns.
    pub(crate) now_ns: u64,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        let (nic_flows, switch_flows) = (bridge::nic::Flows::new(), bridge::switch::Flows::new());
        let storm = StormLimit::new(0, 0);
        Sender { nic_flows, switch_flows, storm, storm_per_second: 0, now_ns: 0 }
    }

    /// Limits broadcasts and multicasts a second; 0 for no limit.
    pub(crate) fn limit_storms(&mut self, per_second: u32, now_ns: u64) {
        if per_second != self.storm_per_second {
            self.storm_per_second = per_second;
            self.storm = StormLimit::new(per_second, now_ns);
        }
    }
}

/// Takes one burst from `transmit`, a ring of this port, and forwards it to its receivers; returns
/// the result of the poll.
pub(crate) fn forward(
    TxRing { nic, port, pair }: &TxRing,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
    standing: &BurstMarker,
    stages: &StageClock,
) -> Polled {
    transmit.swap(&mut scratch.transmit);
    stages.end(Stage::Poll);
    let mut polled = transmit.poll();
    stages.end(Stage::Descriptors);
    if polled.frames == 0 {
        transmit.swap(&mut scratch.transmit);
        if let Some(placed) = polled.placed {
            count_placed(port, *pair, placed);
        }
        return polled;
    }
    // Loaded after the ring was read: a frame posted after a change is forwarded by it.
    let snapshot = nic.snapshot();
    let source = BurstSource { snapshot: &snapshot, port, pair: *pair, standing, stages };
    polled.surplus_bytes += match source.snapshot.place(source.port) {
        Some(PortLocation::Function(id)) => from_function(source, id, transmit, sender, scratch),
        Some(PortLocation::Switch(id)) => {
            from_switch(source, (id, polled), transmit, sender, scratch)
        }
        Some(PortLocation::Piped(id)) => from_piped(source, id, transmit, sender, scratch),
        Some(PortLocation::Representor(of)) => {
            from_representor(source, of, transmit, sender, scratch)
        }
        None => unplugged(source, polled),
    };
    standing.touch(0); // from here on only the sender's ring
    let notified = stages.complete(transmit);
    transmit.swap(&mut scratch.transmit);
    let block = source.block();
    block.add(counter::TX_FRAMES, u64::from(polled.frames));
    block.add(counter::TX_BYTES, polled.bytes);
    block.add(counter::TX_NOTIFIES, u64::from(notified));
    if polled.malformed() > 0 {
        block.add(counter::TX_RUNT, u64::from(polled.runts));
        block.add(counter::TX_OVERSIZE, u64::from(polled.oversize));
        block.add(counter::TX_OFFLOAD, u64::from(polled.bad_offload));
        block.add(counter::TX_DISABLED, u64::from(polled.disabled));
    }
    polled
}

/// Counts frames that a device placed in the guest's buffers. The caller holds the lock of the
/// transmit half, and no receive ring is attached to such a pair: this is the only writer.
fn count_placed(port: &Port, pair: usize, placed: Placed) {
    if placed.frames > 0 {
        let block = port.block(pair);
        let frames = u64::from(placed.frames);
        block.add(counter::RX_FRAMES, frames);
        block.add(counter::RX_BYTES, placed.bytes);
        block.add(counter::RX_UPLINK_FRAMES, frames);
        block.add(counter::RX_UPLINK_BYTES, placed.bytes);
        block.add(counter::RX_NOTIFIES, u64::from(placed.notified));
    }
}

/// Drops a burst of a port without a location; charges no bytes beyond the burst.
#[cold]
fn unplugged(source: BurstSource<'_>, polled: Polled) -> u64 {
    let frames = polled.frames - polled.malformed(); // malformed frames are counted separately
    source.block().add(counter::TX_UNPLUGGED, u64::from(frames));
    0
}

/// Forwards a burst that enters the NIC. Longer header snapshots are taken only if needed: for
/// frames that may go on into the switch, and for priority-tagged frames. Returns the bytes to
/// charge beyond those of the burst.
fn from_function(
    source: BurstSource<'_>,
    id: bridge::PortId,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let Scratch { nic, switch, view_buffer, receive, .. } = scratch;
    let table = &source.snapshot.table;
    let heads = transmit.burst().headers;
    let flows = &mut sender.nic_flows;
    let mut summary = table.classify(id, heads, flows, &mut nic.verdicts);
    if nic.verdicts.wants_deep() {
        transmit.snapshot_headers();
        let Burst { headers: heads, snapshots: deep, .. } = transmit.burst();
        summary = table.classify_deep(id, heads, deep, flows, &mut nic.verdicts);
    }
    let needs_deep = source.snapshot.switch.as_ref().is_some_and(|switch| switch.uplink_needs_deep);
    if needs_deep && nic.reaches_pf(summary) {
        transmit.snapshot_headers();
    }
    let burst = transmit.burst();
    let charges = Charges::of_function(&mut sender.storm);
    let pipeline =
        Pipeline::new(source, &burst, &charges, sender.now_ns, id == bridge::PortId::UPLINK);
    let mut egress = NicEgress { switch: Some((switch, view_buffer)), receive };
    pipeline.leave_nic(id, &BurstView::of(&burst), summary, nic, &mut egress);
    charges.bytes()
}

/// Forwards a burst that enters the switch; returns the same.
fn from_switch(
    source: BurstSource<'_>,
    (id, polled): (bridge::PortId, Polled),
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let Scratch { nic, switch, view_buffer, receive, .. } = scratch;
    let Some(own) = &source.snapshot.switch else {
        return unplugged(source, polled); // its switch was removed
    };
    if own.needs_deep(id) {
        transmit.snapshot_headers();
    }
    let (now_ns, flows) = (sender.now_ns, &mut sender.switch_flows);
    let view = BurstView::of(&transmit.burst());
    let mut summary = switch.classify(own, id, &view, now_ns, Some(flows));
    if switch.verdicts.wants_deep() {
        transmit.snapshot_headers();
        let view = BurstView::of(&transmit.burst());
        summary = switch.classify(own, id, &view, now_ns, Some(flows));
    }
    let burst = transmit.burst();
    let charges = Charges::new(Storm::Switch(own, id));
    let pipeline = Pipeline::new(source, &burst, &charges, now_ns, false);
    let view = BurstView::of(&burst);
    let mut egress = SwitchEgress { nic: Some((nic, view_buffer)), receive };
    pipeline.leave_switch(own, id, &view, summary, switch, &mut egress);
    charges.bytes()
}

/// Forwards a burst of a function of a NIC in switchdev mode; returns the same.
fn from_piped(
    source: BurstSource<'_>,
    id: bridge::PortId,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let table = &source.snapshot.table;
    if table.needs_deep(id) {
        transmit.snapshot_headers();
    }
    let Burst { headers: heads, snapshots: deep, .. } = transmit.burst();
    table.sort(id, heads, deep, &mut scratch.fates);
    if scratch.fates.wants_deep() {
        transmit.snapshot_headers();
        let Burst { headers: heads, snapshots: deep, .. } = transmit.burst();
        table.sort(id, heads, deep, &mut scratch.fates);
    }
    let burst = transmit.burst();
    let charges = Charges::of_function(&mut sender.storm);
    let pipeline =
        Pipeline::new(source, &burst, &charges, sender.now_ns, id == bridge::PortId::UPLINK);
    pipeline.leave_function(
        id,
        &BurstView::of(&burst),
        scratch.fates.as_slice(),
        &mut scratch.receive,
    );
    charges.bytes()
}

/// Forwards a burst that the host sends to such a function; returns the same.
fn from_representor(
    source: BurstSource<'_>,
    of: bridge::PortId,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let burst = transmit.burst();
    let charges = Charges::new(Storm::None);
    let pipeline = Pipeline::new(source, &burst, &charges, sender.now_ns, false);
    pipeline.leave_representor(of, &BurstView::of(&burst), &mut scratch.receive);
    charges.bytes()
}

//! A burst of a port enters the pipeline, by the location of the port.

use port::{BURST, Burst, Polled, Transmit};

use super::charges::{Charges, Storm};
use super::scratch::Scratch;
use super::view::{BurstView, indices_of};
use super::{BurstSource, NicEgress, Pipeline, SwitchEgress};
use crate::lane::sender::Sender;
use crate::port::counter;
use crate::snapshot::PortLocation;

/// Forwards a burst that is not the usual case; returns the bytes delivered to all receivers.
/// `summary` is the NIC's classification of the burst of a [function](PortLocation::Function).
#[inline(never)]
pub(crate) fn enter(
    source: BurstSource<'_>,
    location: Option<PortLocation>,
    summary: bridge::Summary,
    polled: &Polled,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    match source.snapshot.captures.is_empty() {
        true => dispatch(source, location, summary, polled, transmit, sender, scratch),
        false => captured(source, location, summary, polled, transmit, sender, scratch),
    }
}

/// As [`enter`], and records the burst for captures.
#[cold]
#[inline(never)]
fn captured(
    source: BurstSource<'_>,
    location: Option<PortLocation>,
    summary: bridge::Summary,
    polled: &Polled,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let mut log = std::mem::take(&mut scratch.log);
    let logged = BurstSource { log: Some(&log), ..source };
    let delivered = dispatch(logged, location, summary, polled, transmit, sender, scratch);
    log.record_burst(&source, &transmit.burst(&scratch.transmit), &scratch.transmit);
    scratch.log = log;
    delivered
}

/// As [`enter`], without a record.
fn dispatch(
    source: BurstSource<'_>,
    location: Option<PortLocation>,
    summary: bridge::Summary,
    polled: &Polled,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    if polled.malformed() == polled.frames {
        return 0; // counted by the poll; the switch must not learn from a disabled ring
    }
    match location {
        Some(PortLocation::Function(id)) => {
            from_function(source, id, summary, transmit, sender, scratch)
        }
        Some(PortLocation::Switch(id)) => from_switch(source, id, transmit, sender, scratch),
        Some(PortLocation::Piped(id)) => from_piped(source, id, transmit, sender, scratch),
        Some(PortLocation::Representor(of)) => {
            from_representor(source, of, transmit, sender, scratch)
        }
        None => unplugged(source, &transmit.burst(&scratch.transmit)),
    }
}

/// Drops a burst of a port without a location.
#[cold]
fn unplugged(source: BurstSource<'_>, burst: &Burst<'_>) -> u64 {
    // Malformed frames are counted separately.
    let all = u64::MAX >> (BURST - burst.frames.len());
    let mut indices = [0; BURST];
    let frames = indices_of(all & !burst.malformed, &mut indices);
    source.count_drops(counter::TX_UNPLUGGED, frames.len() as u64, frames);
    0
}

/// Forwards a burst that enters the NIC. Longer header snapshots are taken only if needed: for
/// frames that may go on into the switch, and for priority-tagged frames. Returns the bytes
/// delivered.
fn from_function(
    source: BurstSource<'_>,
    id: bridge::PortId,
    mut summary: bridge::Summary,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let Scratch { nic, switch, view_buffer, transmit: buffers, receive, .. } = scratch;
    let (table, flows) = (&source.snapshot.table, &mut sender.nic_flows);
    let polled = transmit.burst(buffers);
    if nic.verdicts.wants_snapshots() {
        buffers.snapshot_headers(transmit);
        let Burst { headers, snapshots, .. } = transmit.burst(buffers);
        summary = table.classify_with_snapshots(id, headers, snapshots, flows, &mut nic.verdicts);
    } else if polled.is_one_flow {
        // `forward` classified only the first frame.
        nic.verdicts.repeat_first(polled.headers.len());
    }
    let needs_snapshots =
        source.snapshot.switch.as_ref().is_some_and(|switch| switch.uplink_needs_snapshots);
    if needs_snapshots && nic.reaches_pf(summary) {
        buffers.snapshot_headers(transmit);
    }
    let burst = transmit.burst(buffers);
    let charges = Charges::of_function(&mut sender.storm);
    let pipeline =
        Pipeline::new(source, &burst, &charges, sender.now_ns, id == bridge::PortId::UPLINK);
    let mut egress = NicEgress { switch: Some((switch, view_buffer)), receive };
    pipeline.leave_nic(id, &BurstView::of(&burst), summary, nic, &mut egress);
    charges.delivered()
}

/// Forwards a burst that enters the switch; returns the same.
fn from_switch(
    source: BurstSource<'_>,
    id: bridge::PortId,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let Scratch { nic, switch, view_buffer, transmit: buffers, receive, .. } = scratch;
    let Some(own) = &source.snapshot.switch else {
        return unplugged(source, &transmit.burst(buffers)); // its switch was removed
    };
    if own.needs_snapshots(id) {
        buffers.snapshot_headers(transmit);
    }
    let (now_ns, flows) = (sender.now_ns, &mut sender.switch_flows);
    let view = BurstView::of(&transmit.burst(buffers));
    let mut summary = switch.classify(own, id, &view, now_ns, Some(flows));
    if switch.verdicts.wants_snapshots() {
        buffers.snapshot_headers(transmit);
        let view = BurstView::of(&transmit.burst(buffers));
        summary = switch.classify(own, id, &view, now_ns, Some(flows));
    }
    let burst = transmit.burst(buffers);
    let charges = Charges::new(Storm::Switch(own, id));
    let pipeline = Pipeline::new(source, &burst, &charges, now_ns, false);
    let view = BurstView::of(&burst);
    let mut egress = SwitchEgress { nic: Some((nic, view_buffer)), receive };
    pipeline.leave_switch(own, id, &view, summary, switch, &mut egress);
    charges.delivered()
}

/// Forwards a burst of a function of a NIC in switchdev mode; returns the same.
fn from_piped(
    source: BurstSource<'_>,
    id: bridge::PortId,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let Scratch { actions, transmit: buffers, receive, .. } = scratch;
    let table = &source.snapshot.table;
    if table.needs_snapshots(id) {
        buffers.snapshot_headers(transmit);
    }
    let Burst { headers, snapshots, .. } = transmit.burst(buffers);
    table.sort(id, headers, snapshots, actions);
    if actions.wants_snapshots() {
        buffers.snapshot_headers(transmit);
        let Burst { headers, snapshots, .. } = transmit.burst(buffers);
        table.sort(id, headers, snapshots, actions);
    }
    let burst = transmit.burst(buffers);
    let charges = Charges::of_function(&mut sender.storm);
    let pipeline =
        Pipeline::new(source, &burst, &charges, sender.now_ns, id == bridge::PortId::UPLINK);
    pipeline.leave_function(id, &BurstView::of(&burst), actions.as_slice(), receive);
    charges.delivered()
}

/// Forwards a burst that the host sends to such a function; returns the same.
fn from_representor(
    source: BurstSource<'_>,
    of: bridge::PortId,
    transmit: &dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> u64 {
    let burst = transmit.burst(&scratch.transmit);
    let charges = Charges::new(Storm::None);
    let pipeline = Pipeline::new(source, &burst, &charges, sender.now_ns, false);
    pipeline.leave_representor(of, &BurstView::of(&burst), &mut scratch.receive);
    charges.delivered()
}

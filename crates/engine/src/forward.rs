//! One burst, from a guest's transmit ring to the receive ring it is for.
//!
//! # Model
//! [`forward`] is the usual case from top to bottom: poll, classify, lock, deliver, publish,
//! complete, count. It is for a burst that goes from one port of the NIC to one other, unchanged.
//! All else is in [`slow`](crate::slow): several receivers, floods and drops, tag edits, mirrors,
//! the switch, switchdev mode, tunnels, and the budget of an emulated card.

use bridge::{PortId, Summary};
use guestmem::CacheLine;
use host::stall::BurstMarker;
use port::{
    Burst, BurstBuffers, Delivered, GuestRing, Notification, Placed, Polled, Receive, Transmit,
    VlanEdit,
};

use crate::counters::CounterBlock;
use crate::lane::queue_list::TxRing;
use crate::lane::sender::Sender;
use crate::lane::stage_clock::StageClock;
use crate::lane::stages::Stage;
use crate::port::{Port, counter};
use crate::queue_pair::AttachedRing;
use crate::slow::scratch::Scratch;
use crate::slow::view::ALL_INDICES;
use crate::slow::{self, BurstSource};
use crate::snapshot::PortLocation;
use crate::soft_nic::LaneSnapshot;

/// Takes one burst from `transmit`, a ring of this port, and forwards it; returns the result of the
/// poll. The caller holds the lock of the transmit half.
pub(crate) fn forward(
    TxRing { port, pair, .. }: &TxRing,
    snapshot: &mut LaneSnapshot,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
    marker: &BurstMarker,
    stages: &StageClock,
) -> Polled {
    // Poll: read and check each descriptor once, and copy the first 16 bytes of each frame.
    stages.end(Stage::Poll);
    let mut polled = transmit.poll(&mut scratch.transmit);
    stages.end(Stage::Descriptors);
    if polled.frames == 0 {
        if let Some(placed) = polled.placed {
            count_placed(port, *pair, placed);
        }
        return polled;
    }

    // Classify. The snapshot is loaded after the ring was read: a frame posted after a change is
    // forwarded by it.
    let snapshot = &**snapshot.load();
    let source = BurstSource { snapshot, port, pair: *pair, marker, stages, log: None };
    let location = snapshot.location(port);
    let burst = transmit.burst(&scratch.transmit);
    let mut summary = Summary::Empty;
    let mut route = None;
    if let Some(PortLocation::Function(from)) = location {
        let (flows, verdicts) = (&mut sender.nic_flows, &mut scratch.nic.verdicts);
        let headers = if burst.is_one_flow { &burst.headers[..1] } else { burst.headers };
        summary = snapshot.table.classify(from, headers, flows, verdicts);
        let to = summary.port().filter(|_| burst.malformed == 0);
        route = to.and_then(|to| Some((from, to, snapshot.direct(from, to)?)));
    }

    // Lock the receiver's ring, copy each frame once, publish: one lock and one used index.
    let mut is_delivered = false;
    if let Some((from, to, receiver)) = route {
        stages.end(Stage::Classify);
        let (mut half, rx_block) = receiver.receive(*pair);
        if let Some(attached) = half.as_mut()
            && !attached.replicates
        {
            marker.touch(receiver.id);
            let indices = &ALL_INDICES[..burst.frames.len()];
            let burst = (&burst, indices, VlanEdit::None);
            let delivered = attached.deliver(burst, rx_block, &mut scratch.receive, stages);
            let (frames, bytes) = (u64::from(delivered.frames), delivered.bytes);
            if from == PortId::UPLINK {
                rx_block.add(counter::RX_UPLINK_FRAMES, frames);
                rx_block.add(counter::RX_UPLINK_BYTES, bytes);
            }
            if to == PortId::UPLINK {
                source.block().add(counter::TX_UPLINK_FRAMES, frames);
                source.block().add(counter::TX_UPLINK_BYTES, bytes);
            }
            is_delivered = true;
        }
        drop(half);
        stages.end(Stage::Publish);
    }
    if !is_delivered {
        let delivered = slow::enter(source, location, summary, &polled, transmit, sender, scratch);
        let copied = delivered.saturating_sub(polled.bytes);
        polled.surplus_bytes = polled.surplus_bytes.max(copied);
    }

    // Complete: the sender gets its buffers back only after the copy.
    marker.touch(0); // from here on only the sender's ring
    stages.end(Stage::Classify);
    let notified = notified(transmit.complete(), || transmit.guest_ring(), stages);

    // Count.
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

impl AttachedRing<dyn Receive> {
    /// Copies the frames `indices` of a burst into the ring with an edit of their tags, publishes
    /// and counts them. The caller holds the ring's lock.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        (burst, indices, edit): (&Burst<'_>, &[u8], VlanEdit),
        block: &CounterBlock,
        buffers: &mut BurstBuffers,
        stages: &StageClock,
    ) -> Delivered {
        self.fill(block, buffers, stages, |ring, buffers| {
            if stages.is_sampling()
                && let Some(ring) = ring.guest_ring()
            {
                ring.stage(indices.len());
                stages.end(Stage::Descriptors);
            }
            ring.deliver(burst, indices, edit, buffers)
        })
    }

    /// Delivers frames into the ring by `deliver`, publishes and counts them. The caller holds the
    /// ring's lock.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        block: &CounterBlock,
        buffers: &mut BurstBuffers,
        stages: &StageClock,
        deliver: impl FnOnce(&mut dyn Receive, &mut BurstBuffers) -> Delivered,
    ) -> Delivered {
        let mut delivered = deliver(&mut *self.ring, buffers);
        // The stage of the publication ends when the ring's lock is released: the unlock waits for
        // its reads.
        stages.end(Stage::Copy);
        let notified = notified(self.ring.publish(), || self.ring.guest_ring(), stages);
        if let Some(next) = &mut buffers.next {
            next.owner = CacheLine::of(block);
        }
        if buffers.stages_ahead
            && let Some(ring) = self.ring.guest_ring()
        {
            let fault = ring.stage(delivered.frames as usize);
            delivered.fault = delivered.fault.or(fault);
        }
        block.add(counter::RX_FRAMES, u64::from(delivered.frames));
        block.add(counter::RX_BYTES, delivered.bytes);
        block.add(counter::RX_NOTIFIES, u64::from(notified));
        let Delivered { no_buffer, too_small, fault, .. } = delivered;
        if no_buffer + too_small > 0 {
            block.add(counter::RX_NO_BUFFER, u64::from(no_buffer));
            block.add(counter::RX_TOO_SMALL, u64::from(too_small));
        }
        if let Some(fault) = fault
            && !self.fault_seen
        {
            self.fault_seen = true;
            if let Some(ring) = self.ring.guest_ring() {
                ring.events().raise_error();
            }
            block.add(counter::RX_FAULTS + fault as usize, 1);
        }
        delivered
    }
}

/// Notifies the guest of `ring` if it wants that and the ring has not; returns `true` if the guest
/// was notified.
#[inline(always)]
fn notified<'a>(
    notification: Notification,
    ring: impl FnOnce() -> Option<&'a mut dyn GuestRing>,
    stages: &StageClock,
) -> bool {
    match notification {
        Notification::Unneeded => false,
        Notification::Sent => true,
        Notification::Needed => {
            stages.end(Stage::Publish);
            let notified = ring().is_some_and(|ring| ring.events().notify());
            stages.end(Stage::Notify);
            notified
        }
    }
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

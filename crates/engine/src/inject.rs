//! Frames that the daemon sends in a guest's name.

use guestmem::{Buffer, Pages, SharedFile};
use host::stall::BurstMarker;
use port::Burst;

use crate::capture::log::BurstLog;
use crate::lane::stage_clock::StageClock;
use crate::port::Port;
use crate::slow::scratch::Scratch;
use crate::slow::view::BurstView;
use crate::slow::{BurstSource, Charges, NicEgress, Pipeline, Storm, SwitchEgress};
use crate::snapshot::{ForwardingSnapshot, PortLocation};
use crate::soft_nic::SoftNic;

impl SoftNic {
    /// Sends a frame of the daemon as if the guest at `from` had sent it, without its checks, to
    /// all members of its VLAN; returns the number of receivers. Allocates: not for the data path.
    pub fn inject(&self, from: &Port, frame: &[u8]) -> usize {
        inject(&self.snapshot(), from, frame)
    }
}

/// Delivers a frame to all members of the VLAN of port `from`; returns the number of receivers.
pub(crate) fn inject(snapshot: &ForwardingSnapshot, from: &Port, frame: &[u8]) -> usize {
    let Some(location) = snapshot.location(from) else { return 0 };
    let Ok(file) = SharedFile::create("shunt-inject", frame.len() as u64, Pages::Ordinary) else {
        return 0;
    };
    let Some(slice) = file.mapping().slice(0, frame.len()) else {
        return 0;
    };
    slice.write_bytes(frame);
    let mut header = [0; 16];
    slice.read_bytes(&mut header);
    let frames = [Buffer::single(slice, 0)];
    let headers = [header];
    let burst = Burst::plain(&headers, &frames);
    let marker = BurstMarker::default(); // this thread has no watchdog
    let (marker, stages) = (&marker, &StageClock::off());
    let mut log = BurstLog::default();
    let bare = BurstSource { snapshot, port: from, pair: 0, marker, stages, log: None };
    let is_captured = !snapshot.captures.is_empty();
    let source = BurstSource { log: is_captured.then_some(&log), ..bare };
    // Counters of the sender have one writer at a time: the holder of this lock.
    let _guard = from.lock_transmit(0);
    let charges = Charges::new(Storm::None);
    let pipeline = Pipeline::new(source, &burst, &charges, crate::lane::clock::now_ns(), false);
    let view = BurstView::of(&burst);
    let mut scratch = Scratch::new();
    let receivers = match (location, &snapshot.switch) {
        (PortLocation::Function(id), _) => {
            let mut egress = NicEgress {
                switch: Some((&mut scratch.switch, &mut scratch.view_buffer)),
                receive: &mut scratch.receive,
            };
            pipeline.flood_nic(id, &view, 0, &mut egress)
        }
        // A port whose link is down is not in the switch's tables, and in no VLAN.
        (PortLocation::Switch(id), Some(switch)) if switch.table.has(id) => {
            let mut egress = SwitchEgress {
                nic: Some((&mut scratch.nic, &mut scratch.view_buffer)),
                receive: &mut scratch.receive,
            };
            pipeline.flood_switch(switch, id, &view, (0, bridge::Flood::Group), &mut egress)
        }
        (PortLocation::Piped(id), _) => {
            let (headers, snapshots) = (burst.headers, [wire::HeaderSnapshot::of_frame(frame)]);
            snapshot.table.sort(id, headers, &snapshots, &mut scratch.actions);
            let mut actions = scratch.actions.as_slice().to_vec();
            // The source is not checked.
            let spoofed = bridge::nic::SwitchdevAction::Drop(bridge::DropReason::SpoofedMac);
            actions
                .iter_mut()
                .filter(|it| **it == spoofed)
                .for_each(|it| *it = bridge::nic::SwitchdevAction::Slow);
            pipeline.leave_function(id, &view, &actions, &mut scratch.receive)
        }
        (PortLocation::Switch(_) | PortLocation::Representor(_), _) => 0,
    };
    // The guest did not send it, so only its deliveries are recorded.
    log.record(&bare, &burst, false);
    receivers
}

//! Rings of a vDPA device, as halves of a port.

use std::sync::Arc;

use engine::Port;
use guestmem::GuestMemory;
use port::virtio_net::Interrupt;
use vduse::{RingRunner, RingStart, VduseDevice, VduseError};
use vhost_user::{Refused, RingSetup};
use virtq::InflightRecord;
use wire::ethernet::OVERHEAD_MAX;

use super::super::inflight::InflightRecords;
use super::super::ring::RingParameters;

/// Interrupts the kernel's driver for a ring.
#[derive(Debug)]
struct KernelInterrupt(vduse::Interrupt);

impl Interrupt for KernelInterrupt {
    fn raise(&self) -> bool {
        self.0.raise()
    }
}

/// Rings of one device.
#[derive(Debug)]
pub(super) struct VdpaRings {
    port: Arc<Port>,
    mtu: u16,
    /// By ring; empty without a device.
    calls: Vec<Arc<dyn Interrupt>>,
    /// In-flight records.
    records: Option<InflightRecords>,
    /// Positions of the rings that ran.
    positions: [Option<u32>; 2],
    /// Rings must not start now; with `gone` the port has been released for good.
    closed: bool,
    gone: bool,
}

/// Index of the guest's Rx ring.
const RECEIVE: u32 = 0;
/// Index of the guest's Tx ring.
const TRANSMIT: u32 = 1;

impl VdpaRings {
    pub(super) fn new(port: Arc<Port>, mtu: u16) -> VdpaRings {
        VdpaRings {
            port,
            mtu,
            calls: Vec::new(),
            records: None,
            positions: [None; 2],
            closed: true,
            gone: false,
        }
    }

    /// Takes a device, whose rings do not run yet.
    pub(super) fn begin(
        &mut self,
        device: &VduseDevice,
        records: Option<InflightRecords>,
    ) -> Result<(), VduseError> {
        self.records = records;
        let call =
            |ring| Ok(Arc::new(KernelInterrupt(device.interrupt(ring)?)) as Arc<dyn Interrupt>);
        self.calls =
            [RECEIVE, TRANSMIT].into_iter().map(call).collect::<Result<_, VduseError>>()?;
        self.positions = [None; 2];
        self.closed = self.gone;
        Ok(())
    }

    /// Stops the rings. They do not start again before the next device; with `gone` never.
    pub(super) fn end(&mut self, gone: bool) {
        self.stop();
        self.closed = true;
        self.gone |= gone;
        self.calls.clear();
    }

    /// Builds a ring from its start parameters.
    fn ring(&self, start: &RingStart, memory: &Arc<GuestMemory>) -> Result<RingParameters, String> {
        let (index, setup) = (start.index as usize, setup(start)?);
        let records = self.records.as_ref();
        let inflight = records.and_then(|records| records.of(index, setup.size));
        // A restarted driver needs no record.
        inflight.iter().filter(|_| !start.resumes).for_each(InflightRecord::clear);
        let interrupt = self.calls.get(index).cloned();
        let (memory, stalled, budget) = (memory.clone(), Arc::default(), Arc::default());
        Ok(RingParameters { setup, memory, log: None, inflight, stalled, budget, interrupt })
    }
}

/// Describes a ring as a front-end would: its parts use the same addresses as buffers.
fn setup(ring: &RingStart) -> Result<RingSetup, String> {
    let size = u16::try_from(ring.info.size);
    let size = size.map_err(|_| format!("a ring of {} entries is not possible", ring.info.size))?;
    let kick = ring.kick.try_clone().map_err(|error| error.to_string())?;
    Ok(RingSetup {
        size,
        desc: ring.info.desc,
        avail: ring.info.avail,
        used: ring.info.used,
        base: ring.base(),
        kick: Some(Arc::new(kick.into())),
        call: None, // interrupts go by ioctl
        err: None,
        features: ring.features,
        log: None,
        enabled: true,
    })
}

impl RingRunner for VdpaRings {
    fn start(&mut self, rings: &[RingStart], memory: &Arc<GuestMemory>) -> Result<(), String> {
        let find = |index| rings.iter().find(|ring: &&RingStart| ring.index == index);
        let (Some(receive), Some(transmit)) = (find(RECEIVE), find(TRANSMIT)) else {
            return Err("a pair of rings is needed".to_owned());
        };
        if self.closed {
            return Ok(());
        }
        let told = |refused: Refused| refused.to_string();
        let to = self.ring(receive, memory)?.receive().map_err(told)?;
        let longest = u32::from(self.mtu) + OVERHEAD_MAX;
        let from = self.ring(transmit, memory)?;
        let from = from.transmit_at(from.setup.base, longest).map_err(told)?;
        self.positions = [None; 2];
        // Attach transmit last: then a receiver for replies exists.
        self.port.attach_receive(0, Box::new(to));
        self.port.attach_transmit(0, Box::new(from));
        // The previous process may have died between using a buffer and the interrupt.
        self.calls.iter().for_each(|call| {
            call.raise();
        });
        Ok(())
    }

    fn stop(&mut self) {
        if self.closed {
            return; // the port may be in use by another device
        }
        if let Some(mut ring) = self.port.detach_receive(0) {
            self.positions[RECEIVE as usize] = Some(ring.stop());
        }
        if let Some(mut ring) = self.port.detach_transmit(0) {
            self.positions[TRANSMIT as usize] = Some(ring.stop());
        }
    }

    fn position(&mut self, ring: u32) -> Option<u32> {
        // Only the lane knows the position of a running ring, so detach it briefly.
        match ring {
            _ if self.closed => {}
            RECEIVE => {
                if let Some(mut taken) = self.port.detach_receive(0) {
                    self.positions[RECEIVE as usize] = Some(taken.stop());
                    self.port.attach_receive(0, taken);
                }
            }
            TRANSMIT => {
                if let Some(mut taken) = self.port.detach_transmit(0) {
                    self.positions[TRANSMIT as usize] = Some(taken.stop());
                    self.port.attach_transmit(0, taken);
                }
            }
            _ => return None,
        }
        self.positions[ring as usize]
    }
}

//! The rings of a vDPA device, as halves of a port.

use std::sync::Arc;

use engine::Port;
use guestmem::GuestMemory;
use port::virtio_net::Interrupt;
use vduse::{Device, Guest, RingStart, VduseError};
use vhost_user::{Refused, RingSetup};
use virtq::Inflight;
use wire::ethernet::OVERHEAD_MAX;

use super::super::inflight::Records;
use super::super::ring::Ring;

/// Interrupts the kernel's driver for a ring.
#[derive(Debug)]
struct Call(vduse::Interrupt);

impl Interrupt for Call {
    fn raise(&self) -> bool {
        self.0.raise()
    }
}

/// Whose the rings are.
#[derive(Debug)]
pub(super) struct Rings {
    port: Arc<Port>,
    mtu: u16,
    /// By ring; none while there is no device.
    calls: Vec<Arc<dyn Interrupt>>,
    /// How far they have come.
    progress: Option<Records>,
    /// Where the rings are that ran.
    positions: [Option<u32>; 2],
    /// Whether rings are not to be started now, and whether the port is another's for good.
    closed: bool,
    gone: bool,
}

/// The guest's Rx.
const RECEIVE: u32 = 0;
/// The guest's Tx.
const TRANSMIT: u32 = 1;

impl Rings {
    pub(super) fn new(port: Arc<Port>, mtu: u16) -> Rings {
        Rings {
            port,
            mtu,
            calls: Vec::new(),
            progress: None,
            positions: [None; 2],
            closed: true,
            gone: false,
        }
    }

    /// Takes up a device, whose rings do not run yet.
    pub(super) fn begin(
        &mut self,
        device: &Device,
        progress: Option<Records>,
    ) -> Result<(), VduseError> {
        self.progress = progress;
        let call = |ring| Ok(Arc::new(Call(device.interrupt(ring)?)) as Arc<dyn Interrupt>);
        self.calls =
            [RECEIVE, TRANSMIT].into_iter().map(call).collect::<Result<_, VduseError>>()?;
        self.positions = [None; 2];
        self.closed = self.gone;
        Ok(())
    }

    /// Stops the rings, which will not start again before another device was taken up; nor then if
    /// the port is `gone`.
    pub(super) fn end(&mut self, gone: bool) {
        self.stop();
        self.closed = true;
        self.gone |= gone;
        self.calls.clear();
    }

    /// All that a ring is made of.
    fn ring(&self, start: &RingStart, memory: &Arc<GuestMemory>) -> Result<Ring, String> {
        let (index, setup) = (start.index as usize, setup(start)?);
        let progress = self.progress.as_ref();
        let inflight = progress.and_then(|records| records.of(index, setup.size));
        // A driver that begins anew has no past.
        inflight.iter().filter(|_| !start.resumes).for_each(Inflight::clear);
        let interrupt = self.calls.get(index).cloned();
        let (memory, stalled, budget) = (memory.clone(), Arc::default(), Arc::default());
        Ok(Ring { setup, memory, log: None, inflight, stalled, budget, interrupt })
    }
}

/// A ring as a front-end would have described it: its parts are found by the same addresses as
/// buffers.
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
        call: None, // the kernel is asked
        err: None,
        features: ring.features,
        log: None,
        enabled: true,
    })
}

impl Guest for Rings {
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
        // The lane is asked for frames last: there is somebody then who takes the answers.
        self.port.attach_receive(0, Box::new(to));
        self.port.attach_transmit(0, Box::new(from));
        // Whoever served it before may have died between showing a buffer and saying so.
        self.calls.iter().for_each(|call| {
            call.raise();
        });
        Ok(())
    }

    fn stop(&mut self) {
        if self.closed {
            return; // the port may be another's
        }
        if let Some(mut ring) = self.port.detach_receive(0) {
            self.positions[RECEIVE as usize] = Some(ring.stop());
        }
        if let Some(mut ring) = self.port.detach_transmit(0) {
            self.positions[TRANSMIT as usize] = Some(ring.stop());
        }
    }

    fn position(&mut self, ring: u32) -> Option<u32> {
        // Where a ring that runs is only its lane knows. So it is taken out for the moment.
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

//! The rings of a vDPA device, as halves of a port.

use std::sync::Arc;

use engine::Port;
use guestmem::GuestMemory;
use port::virtio_net::{Events, Interrupt, Layout, ReceiveRing, TransmitRing};
use vduse::{Device, Guest, RingStart, VduseError};
use vhost_user::RingSetup;
use virtq::Content;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::{self as net, Accepts, feature};

use super::super::vmq;

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
        Rings { port, mtu, calls: Vec::new(), positions: [None; 2], closed: true, gone: false }
    }

    /// Takes up a device, whose rings do not run yet.
    pub(super) fn begin(&mut self, device: &Device) -> Result<(), VduseError> {
        let call = |ring| Ok(Arc::new(Call(device.interrupt(ring)?)) as Arc<dyn Interrupt>);
        self.calls =
            [RECEIVE, TRANSMIT].into_iter().map(call).collect::<Result<_, VduseError>>()?;
        self.positions = [None; 2];
        self.closed = self.gone;
        Ok(())
    }

    /// Stops the rings, which will not start again before another device was taken up; nor then if the port is `gone`.
    pub(super) fn end(&mut self, gone: bool) {
        self.stop();
        self.closed = true;
        self.gone |= gone;
        self.calls.clear();
    }

    fn events(&self, ring: &RingStart) -> Events {
        let interrupt = self.calls.get(ring.index as usize).cloned();
        Events { kick: Some(ring.kick.clone()), interrupt, ..Events::default() }
    }

    fn transmit(
        &self,
        ring: &RingStart,
        memory: &Arc<GuestMemory>,
    ) -> Result<TransmitRing, String> {
        let leaves = Accepts::of_transmit(ring.features);
        let header = net::header_len(ring.features) as u32;
        let content = Content::Readable { header, keep: !leaves.is_empty() };
        let queue = vmq::queue(&setup(ring)?, memory, content).map_err(|e| e.to_string())?;
        let longest = u32::from(self.mtu) + OVERHEAD_MAX;
        Ok(TransmitRing::new(queue, self.events(ring), longest, leaves))
    }

    fn receive(&self, ring: &RingStart, memory: &Arc<GuestMemory>) -> Result<ReceiveRing, String> {
        let queue = vmq::queue(&setup(ring)?, memory, Content::Writable);
        let queue = queue.map_err(|error| error.to_string())?;
        let mergeable = feature::has(ring.features, feature::VIRTIO_NET_F_MRG_RXBUF);
        let layout = Layout { header: net::header_len(ring.features) as u32, mergeable };
        let takes = Accepts::of_receive(ring.features);
        Ok(ReceiveRing::new(queue, self.events(ring), layout, takes))
    }
}

/// A ring as a front-end would have described it: its parts are found by the same addresses as buffers.
fn setup(ring: &RingStart) -> Result<RingSetup, String> {
    let size = u16::try_from(ring.info.size);
    let size = size.map_err(|_| format!("a ring of {} entries is not possible", ring.info.size))?;
    Ok(RingSetup {
        size,
        desc: ring.info.desc,
        avail: ring.info.avail,
        used: ring.info.used,
        base: ring.base(),
        kick: None, // these two are in the events
        call: None,
        err: None,
        features: ring.features,
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
        let (to, from) = (self.receive(receive, memory)?, self.transmit(transmit, memory)?);
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

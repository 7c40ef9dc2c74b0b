//! A guest that sends given frames and returns the received ones.
//!
//! Its memory and rings outlive a connection, like a virtual machine's when the host's daemon
//! restarts: frames posted meanwhile are still there after the next attachment.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testguest::{HEADER, QueuePair, RX, TX};
use vhost_user::{Frontend, Listener, ProtocolFeatures};
use virtq::Features;
use wire::Mac;
use wire::virtio_net::feature;

use super::subject::GuestConfig;

/// Bytes of a receive buffer, header included.
const BUFFER: u32 = 2048;
/// Time limit for the other side to appear.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A test guest.
#[derive(Debug)]
pub(super) struct TestGuest {
    frontend: Option<Frontend>,
    pair: QueuePair,
}

impl TestGuest {
    /// A guest that is not attached, with all its receive buffers posted.
    ///
    /// # Errors
    /// Out of memory or file descriptors.
    pub(super) fn new() -> Result<TestGuest> {
        let mut pair = QueuePair::new(Features::EVENT_IDX, BUFFER)?;
        pair.refill();
        Ok(TestGuest { frontend: None, pair })
    }

    /// Connects to a socket, which may take a while to appear.
    ///
    /// # Errors
    /// No listener, or missing features.
    pub(super) fn connect(&mut self, socket: &Path) -> Result<()> {
        let shown = || format!("cannot attach to {}", socket.display());
        let frontend = Frontend::connect(socket, CONNECT_TIMEOUT).with_context(shown)?;
        self.start(frontend).with_context(shown)
    }

    /// Waits for the other side to connect.
    ///
    /// # Errors
    /// No connection, or missing features.
    pub(super) fn accept(&mut self, listener: &Listener) -> Result<()> {
        let frontend = Frontend::accept(listener, CONNECT_TIMEOUT)
            .context("no device connected to the guest")?;
        self.start(frontend).context("cannot negotiate with the connected device")
    }

    fn start(&mut self, mut frontend: Frontend) -> Result<()> {
        let wanted = [
            feature::VIRTIO_F_VERSION_1,
            feature::VIRTIO_NET_F_MRG_RXBUF,
            feature::VIRTIO_F_RING_EVENT_IDX,
        ];
        let status = feature::mask(&[feature::VIRTIO_NET_F_STATUS, feature::VIRTIO_NET_F_MAC]);
        let wanted = feature::mask(&wanted);
        let protocol = ProtocolFeatures::REPLY_ACK
            | ProtocolFeatures::MQ
            | ProtocolFeatures::CONFIG
            | ProtocolFeatures::STATUS;
        let agreed = frontend.negotiate(wanted | status, protocol)?.features;
        ensure!(agreed & wanted == wanted, "the device lacks VERSION_1, MRG_RXBUF or EVENT_IDX");
        frontend.set_memory(&[self.pair.region()])?;
        for index in [RX, TX] {
            // A restarted daemon continues from the used index in our memory, not from the base.
            frontend.start_ring(index, &self.pair.ring(index))?;
            frontend.enable_ring(index, true)?;
        }
        self.frontend = Some(frontend);
        Ok(())
    }

    /// Stops the rings, like a driver on unload, and disconnects.
    pub(super) fn leave(&mut self) {
        if let Some(mut frontend) = self.frontend.take() {
            // The daemon may be gone already.
            let _ = frontend.stop_ring(RX).and_then(|_| frontend.stop_ring(TX));
        }
    }

    /// Breaks the connection, as the kernel does for a killed process.
    pub(super) fn die(&mut self) {
        self.frontend = None;
    }

    /// `true` while the connection exists.
    pub(super) fn is_attached(&self) -> bool {
        self.frontend.as_ref().is_some_and(|frontend| !frontend.is_closed())
    }

    /// Configuration of the device, as the guest reads it.
    ///
    /// # Errors
    /// The guest is not attached, or the device does not answer.
    pub(super) fn view(&mut self) -> Result<GuestConfig> {
        let frontend = self.frontend.as_mut().context("the guest is not attached")?;
        let config = frontend.config(0, 8)?;
        let (mac, status) = config.split_first_chunk().context("a short configuration")?;
        let status = u16::from_le_bytes(*status.first_chunk().context("a short configuration")?);
        Ok(GuestConfig { mac: Mac(*mac), link_up: status & 1 != 0 })
    }

    /// Sends a frame, or posts it for the next attachment.
    ///
    /// # Errors
    /// The frame is too long, or too many are in flight.
    pub(super) fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.pair.post([0; HEADER], frame)?;
        self.pair.flush();
        Ok(())
    }

    /// Sent frames whose buffers have not been returned.
    ///
    /// # Errors
    /// The device violated the ring's rules.
    pub(super) fn in_flight(&mut self) -> Result<usize> {
        self.pair.in_flight()
    }

    /// Received frames.
    ///
    /// # Errors
    /// A frame violates the virtio rules.
    pub(super) fn take(&mut self) -> Result<Vec<Vec<u8>>> {
        let received = self.pair.frames()?;
        if self.pair.refill() {
            self.pair.kick();
        }
        Ok(received.into_iter().map(|received| received.frame).collect())
    }
}

//! A back-end behind a socket, in a thread.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vhost_user::checked::CheckedDevice;
use vhost_user::socket::send;
use vhost_user::{
    Backend, BackendConfig, Features, ProtocolError, ProtocolFeatures, Receiver, SocketError,
};

/// Features of the back-end in these tests, without the protocol bit.
pub(crate) const FEATURES: u64 =
    Features::VERSION_1.union(Features::MRG_RXBUF).union(Features::MTU).union(Features::MQ).bits();

pub(crate) fn config() -> BackendConfig {
    BackendConfig {
        features: FEATURES,
        protocol_features: ProtocolFeatures::SUPPORTED,
        queue_pairs_max: 4,
        mem_slots_max: 16,
    }
}

pub(crate) fn device() -> CheckedDevice {
    let bits = Features::PROTOCOL_FEATURES | Features::LOG_ALL;
    let mut device = CheckedDevice::new(8, FEATURES | bits.bits());
    device.state = b"what it leaves behind".to_vec();
    device.served = 5;
    device.config = vec![0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 1, 0, 4, 0, 0xdc, 0x05];
    device
}

/// End of a session.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// The front-end went away.
    Closed,
    /// It broke the protocol.
    Protocol(ProtocolError),
}

/// Serves one session until it ends, and returns the device and the cause of the end.
pub(crate) fn serve(
    stream: UnixStream,
    config: BackendConfig,
) -> JoinHandle<(CheckedDevice, SessionEnd)> {
    thread::spawn(move || {
        let mut backend = Backend::new(config).unwrap();
        let mut device = device();
        let end = session(&stream, &mut backend, &mut device);
        drop(stream);
        backend.disconnect(&mut device);
        assert_eq!(device.rings_running(), 0);
        assert!(device.regions().is_empty());
        (device, end)
    })
}

fn session(stream: &UnixStream, backend: &mut Backend, device: &mut CheckedDevice) -> SessionEnd {
    let mut receiver = Receiver::new();
    loop {
        let deadline = Instant::now() + Duration::from_secs(20);
        let message = match receiver.receive(stream, deadline) {
            Ok(message) => message,
            Err(SocketError::Closed) => return SessionEnd::Closed,
            Err(error) => panic!("the front-end of this test broke the framing: {error}"),
        };
        let handled = backend.handle(message, device);
        device.assert_settled();
        match handled {
            Ok(None) => {}
            Ok(Some(reply)) => send(stream, &reply).expect("the front-end waits for this"),
            Err(error) => return SessionEnd::Protocol(error),
        }
    }
}

//! Data plane shared by two threads: the API's changes it, another serves guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Events;
use api::capture::CaptureError;
use api::fdb::FdbEntry;
use api::plane::{ParkedCounters, Plane, PlaneError, TakenFrames};
use api::trace::{TraceAnswer, TraceError};
use engine::capture::{CaptureSpec, CaptureStream};
use model::state::{Actual, Attachment, SocketMode, State, Stream, VhostUser};

use super::super::port_spec::PortSpec;
use super::{DataPlane, WantedPort, wanted_ports};

/// Data plane shared by the API's thread and the one that serves guests.
#[derive(Debug, Clone)]
pub(in super::super) struct SharedDataPlane(Arc<Mutex<DataPlane>>);

impl SharedDataPlane {
    pub(in super::super) fn new(data_plane: DataPlane) -> SharedDataPlane {
        SharedDataPlane(Arc::new(Mutex::new(data_plane)))
    }

    pub(in super::super) fn lock(&self) -> MutexGuard<'_, DataPlane> {
        // A panic under the lock is a bug; its state is no worse than without the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Paths of all sockets on which a daemon in this state listens.
fn sockets(state: &State) -> BTreeSet<String> {
    let listens = |want: WantedPort| match want.spec {
        PortSpec::Attachment(Attachment::VhostUser(VhostUser { socket, mode, .. }))
        | PortSpec::Attachment(Attachment::Stream(Stream { socket, mode, .. })) => {
            (mode == SocketMode::Server).then_some(socket)
        }
        PortSpec::Attachment(
            Attachment::Tap(_)
            | Attachment::Packet(_)
            | Attachment::Xdp(_)
            | Attachment::Pcap(_)
            | Attachment::Vduse(_)
            | Attachment::VfInterface(_),
        )
        | PortSpec::Tunnel(_) => None,
    };
    let channels = state.vpfs.iter().filter_map(|vpf| Some(vpf.control.as_ref()?.socket.clone()));
    wanted_ports(state).into_iter().filter_map(listens).chain(channels).collect()
}

fn remove_dead<'a>(paths: impl Iterator<Item = &'a String>) {
    for path in paths {
        match vhost_user::remove_stale(path.as_ref()) {
            Ok(true) => tracing::info!("removed {path}, a socket of an interrupted apply"),
            Ok(false) => {}
            Err(error) => {
                tracing::info!("cannot remove a socket of an interrupted apply: {error}")
            }
        }
    }
}

impl Plane for SharedDataPlane {
    fn recall(&mut self, held: BTreeMap<String, u16>) {
        self.lock().vfs_before = held;
    }

    fn record_in(&mut self, events: Events) {
        self.lock().events = events;
    }

    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, PlaneError> {
        let mut data_plane = self.lock();
        let is_first = data_plane.is_empty();
        data_plane.change(to)?;
        if is_first {
            // Sockets of a daemon that was killed during an apply.
            remove_dead(sockets(from).difference(&sockets(to)));
        }
        Ok(data_plane.actual())
    }

    fn retry(&mut self) {
        self.lock().retry_cards();
    }

    fn actual(&self) -> Actual {
        self.lock().actual()
    }

    fn take_parked(&mut self, adapter: &str) -> TakenFrames {
        self.lock().take_parked(adapter)
    }

    fn put_parked(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        self.lock().put_parked(adapter, frames);
    }

    fn parked(&self, adapter: &str) -> ParkedCounters {
        self.lock().parked(adapter)
    }

    fn fdb(&self, switch: &str) -> Vec<FdbEntry> {
        self.lock().fdb(switch)
    }

    fn trace(&self, port: &str, frames: &[Vec<u8>]) -> Result<TraceAnswer, TraceError> {
        // Without the lock: guests are served meanwhile.
        let (nic, port) = self.lock().port_named(port)?;
        let traces = frames.iter().map(|frame| Ok(nic.trace(&port, frame)?.into()));
        let frames = traces.collect::<Result<_, TraceError>>()?;
        Ok(TraceAnswer { port: port.label.clone(), frames })
    }

    fn capture(&self, spec: CaptureSpec) -> Result<CaptureStream, CaptureError> {
        // Without the lock: the buffer takes milliseconds.
        let (nics, spec) = self.lock().captured(spec)?;
        Ok(CaptureStream::begin(nics, spec)?)
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.lock().announce(adapter)
    }
}

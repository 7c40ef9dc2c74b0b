//! All vhost-user sockets of the daemon, by epoll token.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use model::state::{GuestState, VhostUser};
use vhost_user::backend::RingDirection;
use vhost_user::{ListenError, SocketAccess};

use super::attachment::{Attachment, SocketEndpoint};
use super::device::{GuestDevice, Identity};
use super::handover::{OutgoingFds, ReceivedFds, SessionHandover, SocketHandover};
use super::limits::LargestSession;
use super::port_events::PortEvents;
use super::vmq::VmqAssignment;

/// The served sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    epoll: Arc<OwnedFd>,
    served: BTreeMap<u64, Attachment>,
    next: u64,
}

impl Sockets {
    pub(super) fn new(epoll: Arc<OwnedFd>) -> Sockets {
        Sockets { epoll, served: BTreeMap::new(), next: 0 }
    }

    /// Serves a socket; returns its token.
    ///
    /// # Errors
    /// The offer is invalid, or the system is out of memory.
    pub(super) fn add(
        &mut self,
        spec: &VhostUser,
        endpoint: SocketEndpoint,
        device: GuestDevice,
        events: PortEvents,
    ) -> Result<u64> {
        let mut attachment = Attachment::new(spec, endpoint, device, events)?;
        let token = self.next;
        attachment.watch(self.epoll.as_fd(), token)?;
        self.next += 1;
        self.served.insert(token, attachment);
        Ok(token)
    }

    /// Hands over a socket and its session.
    pub(super) fn handover(
        &self,
        token: u64,
        outgoing: &mut OutgoingFds,
        now: Instant,
    ) -> std::io::Result<Option<SocketHandover>> {
        self.served.get(&token).map(|attachment| attachment.handover(outgoing, now)).transpose()
    }

    /// Adopts a session; its rings stay stopped until [`resume`](Self::resume).
    pub(super) fn inherit(
        &mut self,
        token: u64,
        session: (Option<SessionHandover>, Option<u64>),
        received: &mut ReceivedFds,
    ) -> Result<()> {
        let epoll = self.epoll.clone();
        match self.served.get_mut(&token) {
            Some(attachment) => attachment.inherit(epoll.as_fd(), session, received),
            None => Ok(()),
        }
    }

    /// Releases all rings of one half: no lane touches them after this call.
    pub(super) fn suspend(&mut self, half: RingDirection) {
        self.served.values_mut().for_each(|attachment| attachment.suspend(half));
    }

    /// Ends the sessions that could not be resumed; returns their number.
    pub(super) fn end_unresumable(&mut self) -> usize {
        let epoll = self.epoll.as_fd();
        self.served.values_mut().map(|it| usize::from(it.end_unresumable(epoll))).sum()
    }

    /// Positions of a socket's rings.
    pub(super) fn positions(&self, token: u64) -> Option<Vec<u32>> {
        self.served.get(&token).map(Attachment::positions)
    }

    /// Resumes the rings of a socket at these positions.
    pub(super) fn resume(&mut self, token: u64, positions: &[u32]) -> Result<()> {
        match self.served.get_mut(&token) {
            Some(attachment) => attachment.resume(positions),
            None => Ok(()),
        }
    }

    /// Takes ownership of inherited sockets.
    pub(super) fn adopt(&self) {
        self.served.values().for_each(Attachment::adopt);
    }

    /// Ends the session on a socket, and removes it.
    pub(super) fn remove(&mut self, token: u64) {
        if let Some(attachment) = self.served.remove(&token) {
            attachment.close(self.epoll.as_fd());
        }
    }

    /// Changes the users that may connect to a socket on which the daemon listens.
    pub(super) fn set_access(&self, token: u64, access: SocketAccess) -> Result<(), ListenError> {
        match self.served.get(&token).map(Attachment::endpoint) {
            Some(SocketEndpoint::Server(listener)) => listener.set_access(access),
            Some(SocketEndpoint::Client(_)) | None => Ok(()),
        }
    }

    /// Another handle of an open socket.
    pub(super) fn endpoint(&self, token: u64) -> Option<SocketEndpoint> {
        self.served.get(&token).map(Attachment::endpoint)
    }

    /// Changes the addresses of a device.
    pub(super) fn set_identity(&mut self, token: u64, identity: Identity) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.set_identity(identity);
        }
    }

    /// Sets or clears the MTU that follows the representor.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.set_mtu(mtu);
        }
    }

    /// Assigns an uplink queue to a guest's adapter, or takes it away.
    pub(super) fn assign_vmq(&mut self, token: u64, assignment: VmqAssignment) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.vmq().assign(assignment);
        }
    }

    /// Describes how frames of the queue reach a guest; `None` without a queue.
    pub(super) fn describe_vmq(&self, token: u64) -> Option<String> {
        self.served.get(&token)?.device().describe_vmq()
    }

    /// Returns `true` if a guest is attached to the socket.
    pub(super) fn is_attached(&self, token: u64) -> bool {
        self.served.get(&token).is_some_and(Attachment::is_attached)
    }

    /// State of the guest on a socket.
    pub(super) fn guest(&self, token: u64) -> GuestState {
        self.served.get(&token).map_or(GuestState::Absent, Attachment::guest)
    }

    /// Returns `true` if every socket has a guest.
    pub(super) fn are_attached(&self) -> bool {
        self.served.values().all(Attachment::is_attached)
    }

    /// Time until the next attempt to connect or to answer; `None` if none is due.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.served.values().filter_map(|attachment| attachment.wait(now)).min()
    }

    /// Serves pending input of a socket.
    pub(super) fn serve(&mut self, token: u64) {
        let epoll: BorrowedFd<'_> = self.epoll.as_fd();
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.serve(epoll);
        }
    }

    /// Notifies front-ends of changed configurations.
    pub(super) fn notify_config(&mut self) {
        for attachment in self.served.values_mut() {
            attachment.notify_config();
        }
    }

    /// Housekeeping.
    pub(super) fn poll(&mut self, now: Instant) {
        for attachment in self.served.values_mut() {
            attachment.end_if_stalled(self.epoll.as_fd());
            attachment.report_moved_notifies();
            attachment.report_limits();
            attachment.resume_accepting(self.epoll.as_fd());
            attachment.serve_pending(self.epoll.as_fd());
            attachment.report_unlogged();
            attachment.vmq().poll(now);
            attachment.connect_if_due(self.epoll.as_fd(), now);
        }
    }

    /// Use of resources by the session that uses the most of each.
    pub(super) fn largest_session(&self) -> LargestSession {
        let mut largest = LargestSession::default();
        self.served.values().for_each(|attachment| attachment.measure(&mut largest));
        largest
    }

    /// Label of a socket whose device state is being transferred.
    pub(super) fn transferring_label(&mut self, now: Instant) -> Option<String> {
        let mut served = self.served.values_mut();
        served.find_map(|attachment| attachment.transferring_label(now))
    }

    /// Detaches every guest, and removes the sockets.
    pub(super) fn clear(&mut self) {
        self.served.clear();
    }
}

//! All vhost-user sockets of the daemon, by epoll's tokens.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use model::state::{GuestState, VhostUser};
use rustix::process::Resource;
use vhost_user::backend::Half;

use super::attachment::{Attachment, Way};
use super::device::{GuestDevice, Identity};
use super::port_events::PortEvents;
use super::upgrade::{Given, Giving, Session, Socket};
use super::vmq::Wish;

/// The sockets that are served.
#[derive(Debug)]
pub(super) struct Sockets {
    epoll: Arc<OwnedFd>,
    served: BTreeMap<u64, Attachment>,
    next: u64,
    /// Open files that all front-ends together can make this process hold.
    files_max: u64,
}

impl Sockets {
    pub(super) fn new(epoll: Arc<OwnedFd>) -> Sockets {
        Sockets { epoll, served: BTreeMap::new(), next: 0, files_max: 0 }
    }

    /// Serves a socket from now on; returns its token.
    ///
    /// # Errors
    /// The offer is none that the protocol can make, or the system is out of memory.
    pub(super) fn add(
        &mut self,
        spec: &VhostUser,
        way: Way,
        device: GuestDevice,
        events: PortEvents,
    ) -> Result<u64> {
        let mut attachment = Attachment::new(spec, way, device, events)?;
        let token = self.next;
        let before = self.files_max;
        self.files_max += attachment.files_max();
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if before <= limit && self.files_max > limit {
            tracing::warn!(
                "{}: with this socket, front-ends can make the daemon hold {} open files, and it \
                 may have {limit}; raise its limit (ulimit -n, LimitNOFILE=), or one of them can \
                 keep others from attaching",
                attachment.device().label(),
                self.files_max
            );
        }
        attachment.watch(self.epoll.as_fd(), token)?;
        self.next += 1;
        self.served.insert(token, attachment);
        Ok(token)
    }

    /// All that a process needs which takes over a socket.
    pub(super) fn handover(
        &self,
        token: u64,
        giving: &mut Giving,
        now: Instant,
    ) -> std::io::Result<Option<Socket>> {
        self.served.get(&token).map(|attachment| attachment.handover(giving, now)).transpose()
    }

    /// Takes up a session; its rings stand until [`resume`](Self::resume).
    pub(super) fn inherit(
        &mut self,
        token: u64,
        session: (Option<Session>, Option<u64>),
        given: &mut Given,
    ) -> Result<()> {
        let epoll = self.epoll.clone();
        match self.served.get_mut(&token) {
            Some(attachment) => attachment.inherit(epoll.as_fd(), session, given),
            None => Ok(()),
        }
    }

    /// Lets go of all rings of one half: no lane touches them when this returns.
    pub(super) fn suspend(&mut self, half: Half) {
        self.served.values_mut().for_each(|attachment| attachment.suspend(half));
    }

    /// Ends the sessions that could not be gone on with; says how many there were.
    pub(super) fn end_unfit(&mut self) -> usize {
        let epoll = self.epoll.as_fd();
        self.served.values_mut().map(|it| usize::from(it.end_unfit(epoll))).sum()
    }

    /// Where the rings of a socket go on.
    pub(super) fn positions(&self, token: u64) -> Option<Vec<u32>> {
        self.served.get(&token).map(Attachment::positions)
    }

    /// Lets the rings of a socket run from there.
    pub(super) fn resume(&mut self, token: u64, positions: &[u32]) -> Result<()> {
        match self.served.get_mut(&token) {
            Some(attachment) => attachment.resume(positions),
            None => Ok(()),
        }
    }

    /// What was inherited is this process's from now on.
    pub(super) fn adopt(&self) {
        self.served.values().for_each(Attachment::adopt);
    }

    /// Ends the session on a socket, and serves it no more.
    pub(super) fn remove(&mut self, token: u64) {
        if let Some(attachment) = self.served.remove(&token) {
            self.files_max -= attachment.files_max();
            attachment.close(self.epoll.as_fd());
        }
    }

    /// Another hold on an open socket.
    pub(super) fn way(&self, token: u64) -> Option<Way> {
        self.served.get(&token).map(Attachment::way)
    }

    /// Gives a device other addresses.
    pub(super) fn set_identity(&mut self, token: u64, identity: Identity) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.set_identity(identity);
        }
    }

    /// Gives a guest the MTU of its representor, or takes that away.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.set_mtu(mtu);
        }
    }

    /// Gives a guest's adapter a queue of the uplink's interface, or takes it away.
    pub(super) fn set_wish(&mut self, token: u64, wish: Wish) {
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.vmq().set_wish(wish);
        }
    }

    /// How frames of the queue reach a guest, if there could be one.
    pub(super) fn describe_vmq(&self, token: u64) -> Option<String> {
        self.served.get(&token)?.device().describe_vmq()
    }

    /// Whether a guest is on a socket.
    pub(super) fn is_attached(&self, token: u64) -> bool {
        self.served.get(&token).is_some_and(Attachment::is_attached)
    }

    /// How far the guest is on a socket.
    pub(super) fn guest(&self, token: u64) -> GuestState {
        self.served.get(&token).map_or(GuestState::Absent, Attachment::guest)
    }

    /// Whether a guest is on every socket.
    pub(super) fn are_attached(&self) -> bool {
        self.served.values().all(Attachment::is_attached)
    }

    /// How long until the next attempt to connect; `None` if none is to be made.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.served.values().filter_map(|attachment| attachment.wait(now)).min()
    }

    /// Serves what came to a socket.
    pub(super) fn serve(&mut self, token: u64) {
        let epoll: BorrowedFd<'_> = self.epoll.as_fd();
        if let Some(attachment) = self.served.get_mut(&token) {
            attachment.serve(epoll);
        }
    }

    /// Tells front-ends what guests see change.
    pub(super) fn tell_changes(&mut self) {
        for attachment in self.served.values_mut() {
            attachment.tell_changes();
        }
    }

    /// Does what is due by the clock.
    pub(super) fn look(&mut self, now: Instant) {
        for attachment in self.served.values_mut() {
            attachment.end_if_stalled(self.epoll.as_fd());
            attachment.tell_moved_notifies();
            attachment.listen_again(self.epoll.as_fd());
            attachment.serve_held(self.epoll.as_fd());
            attachment.tell_unlogged();
            attachment.vmq().look(now);
            attachment.connect_if_due(self.epoll.as_fd(), now);
        }
    }

    /// The label of a socket whose device's state goes through a pipe just now.
    pub(super) fn moves_state(&mut self, now: Instant) -> Option<String> {
        let mut served = self.served.values_mut();
        served.find_map(|attachment| attachment.moves_state(now))
    }

    /// Lets every guest go, and removes the sockets.
    pub(super) fn clear(&mut self) {
        self.files_max = 0;
        self.served.clear();
    }
}

//! Upgrade requests from the API's thread to the thread that serves guests.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::{Context, Result};
use api::{UpgradeOrder, Upgraded};
use model::state::{Problem, Problems};
use rustix::io::Errno;

/// A request that waits for its answer.
#[derive(Debug)]
pub(in super::super) struct PendingUpgrade {
    pub(in super::super) order: UpgradeOrder,
    answer: Sender<Result<Upgraded, Problems>>,
}

impl PendingUpgrade {
    /// Answers the request.
    pub(in super::super) fn answer(self, answer: Result<Upgraded, Problems>) {
        let _ = self.answer.send(answer); // the client may have disconnected
    }
}

/// Receiving side of upgrade requests.
#[derive(Debug)]
pub(in super::super) struct UpgradeRequests {
    orders: Receiver<PendingUpgrade>,
    wake: UnixStream,
}

/// Sending side of upgrade requests.
#[derive(Debug)]
pub(in super::super) struct UpgradeSender {
    orders: Sender<PendingUpgrade>,
    wake: UnixStream,
}

/// Creates both sides.
pub(in super::super) fn channel() -> Result<(UpgradeRequests, UpgradeSender)> {
    let (wake, hand) = UnixStream::pair().context("no socket for orders to upgrade")?;
    let (sender, receiver) = mpsc::channel();
    Ok((UpgradeRequests { orders: receiver, wake }, UpgradeSender { orders: sender, wake: hand }))
}

impl UpgradeRequests {
    /// Readable when there is a request.
    pub(in super::super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The next request, if there is one.
    pub(in super::super) fn next(&self) -> Option<PendingUpgrade> {
        let read = rustix::net::recv(&self.wake, &mut [0; 1][..], rustix::net::RecvFlags::DONTWAIT);
        match read {
            Err(Errno::AGAIN | Errno::INTR) => None,
            _ => self.orders.try_recv().ok(),
        }
    }
}

impl UpgradeSender {
    /// Sends a request and waits for its result; the upgrade itself has time limits.
    pub(in super::super) fn order(&self, order: UpgradeOrder) -> Result<Upgraded, Problems> {
        let gone = || Problem::new("", (), "the daemon is stopping", "start it again");
        let (answer, answered) = mpsc::channel();
        self.orders.send(PendingUpgrade { order, answer }).map_err(|_| gone())?;
        (&self.wake).write_all(&[0]).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

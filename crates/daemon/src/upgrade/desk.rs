//! Where the API's thread leaves an order to upgrade, and the thread that serves guests finds it.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result};
use api::{UpgradeOrder, Upgraded};
use rustix::io::Errno;

/// An order that waits for its answer.
#[derive(Debug)]
pub(in super::super) struct Waiting {
    pub(in super::super) order: UpgradeOrder,
    answer: Sender<Result<Upgraded, String>>,
}

impl Waiting {
    /// Answers it.
    pub(in super::super) fn answer(self, answer: Result<Upgraded, String>) {
        let _ = self.answer.send(answer); // whoever asked may have given up
    }
}

/// Where orders are found.
#[derive(Debug)]
pub(in super::super) struct Desk {
    orders: Receiver<Waiting>,
    bell: UnixStream,
}

/// Where orders are left.
#[derive(Debug)]
pub(in super::super) struct Counter {
    orders: Sender<Waiting>,
    bell: UnixStream,
}

/// Both sides of a desk.
pub(in super::super) fn desk() -> Result<(Desk, Counter)> {
    let (bell, hand) = UnixStream::pair().context("no socket for orders to upgrade")?;
    let (sender, receiver) = channel();
    Ok((Desk { orders: receiver, bell }, Counter { orders: sender, bell: hand }))
}

impl Desk {
    /// Readable when there is an order.
    pub(in super::super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next order, if there is one.
    pub(in super::super) fn next(&self) -> Option<Waiting> {
        let read = rustix::net::recv(&self.bell, &mut [0; 1][..], rustix::net::RecvFlags::DONTWAIT);
        match read {
            Err(Errno::AGAIN | Errno::INTR) => None,
            _ => self.orders.try_recv().ok(),
        }
    }
}

impl Counter {
    /// Leaves an order, and waits until it is carried out or refused, which has limits of its own.
    pub(in super::super) fn order(&self, order: UpgradeOrder) -> Result<Upgraded, String> {
        const GONE: &str = "the daemon is about to end";
        let (answer, answered) = channel();
        self.orders.send(Waiting { order, answer }).map_err(|_| GONE)?;
        (&self.bell).write_all(&[0]).map_err(|_| GONE)?;
        answered.recv().map_err(|_| GONE)?
    }
}

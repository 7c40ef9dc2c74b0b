//! The socket behind the rings: wake-ups of the kernel, and its counters.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use crate::umem::Umem;

/// The socket behind the rings. Dropping it frees the queue and unpins the memory.
#[derive(Debug)]
pub struct SocketHandle {
    pub(crate) fd: OwnedFd,
    pub(crate) umem: Umem,
    pub(crate) zero_copy: bool,
    pub(crate) fragments: bool,
}

/// Result of a wake-up call to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeResult {
    /// The kernel has done, or continues, its work.
    Done,
    /// It stopped early, for a full queue or its own limit: call again.
    Again,
}

/// The kernel's counters (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames dropped for reasons other than those below: too long for a chunk, out of memory.
    pub rx_dropped: u64,
    /// Frames dropped because the fill ring had an invalid chunk.
    pub rx_invalid: u64,
    /// Frames not sent because the transmit ring had an invalid address.
    pub tx_invalid: u64,
    /// Frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Number of times that the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Number of times that the transmit ring was empty.
    pub tx_ring_empty: u64,
}

impl SocketHandle {
    /// The memory.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Returns `true` if the device accesses the memory itself; else the kernel copies.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns `true` if frames longer than a chunk use several descriptors.
    pub fn has_fragments(&self) -> bool {
        self.fragments
    }

    /// Makes the kernel send the frames in the transmit ring. In copy mode this call sends them.
    /// `ENETDOWN` if the interface is down, `ENXIO` if it is gone.
    #[inline]
    pub fn wake_tx(&self) -> Result<WakeResult, Errno> {
        wake_result(send(&self.fd, &[], SendFlags::DONTWAIT).map(drop))
    }

    /// Makes the kernel receive, if it waits for a call; errors as for [`SocketHandle::wake_tx`].
    /// With busy polling, this call receives.
    #[inline]
    pub fn wake_rx(&self) -> Result<WakeResult, Errno> {
        wake_result(recv(&self.fd, &mut [0u8; 0], RecvFlags::DONTWAIT).map(drop))
    }

    /// The kernel's counters since the socket was bound.
    pub fn statistics(&self) -> Result<Statistics, Errno> {
        let counted = sockopt::xdp_statistics(&self.fd)?;
        Ok(Statistics {
            rx_dropped: counted.rx_dropped,
            rx_invalid: counted.rx_invalid_descs,
            tx_invalid: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full.unwrap_or(0),
            fill_ring_empty: counted.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_ring_empty: counted.tx_ring_empty_descs.unwrap_or(0),
        })
    }
}

impl AsFd for SocketHandle {
    /// Readable when frames were received, writable when the transmit ring has room.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Separates a removed device from a frame that could not be sent now, or at all; the kernel has
/// its own error numbers for these.
fn wake_result(result: Result<(), Errno>) -> Result<WakeResult, Errno> {
    match result {
        Ok(()) => Ok(WakeResult::Done),
        Err(errno @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => Err(errno),
        Err(_) => Ok(WakeResult::Again),
    }
}

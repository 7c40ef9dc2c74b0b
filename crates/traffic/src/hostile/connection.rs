//! Vhost-user connection that sends any bytes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost_user::payload::RegionPayload;
use vhost_user::{Flags, Message, Receiver, Request, socket};

/// Longest wait for an answer. The daemon serves other front-ends meanwhile, and may have no CPU.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum descriptors sent with one message; a back-end takes 8.
pub(super) const FDS: usize = 32;

/// A connection; unusable after any failure.
#[derive(Debug)]
pub(super) struct RawConnection {
    stream: UnixStream,
    receiver: Receiver,
}

/// The connection is unusable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disconnected;

impl RawConnection {
    pub(super) fn new(stream: UnixStream) -> RawConnection {
        RawConnection { stream, receiver: Receiver::new() }
    }

    /// Sends a request that has no answer.
    pub(super) fn send(
        &mut self,
        request: Request,
        payload: Vec<u8>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Disconnected> {
        let flags = Flags::empty();
        let message = Message { request: request.code(), flags, payload, fds: Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        socket::send_before(&self.stream, &message, fds, deadline).map_err(|_| Disconnected)
    }

    /// Waits for the answer to a request; drops other answers.
    pub(super) fn receive_reply(&mut self, request: Request) -> Result<Vec<u8>, Disconnected> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.receiver.receive(&self.stream, deadline).map_err(|_| Disconnected)?;
            if reply.request == request.code() {
                return Ok(reply.payload);
            }
        }
    }

    /// Sends a request, and returns its 64-bit answer.
    pub(super) fn query(&mut self, request: Request) -> Result<u64, Disconnected> {
        self.send(request, Vec::new(), &[])?;
        let payload = self.receive_reply(request)?;
        payload.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Disconnected)
    }

    /// Sends raw bytes with descriptors; returns the number of bytes sent.
    pub(super) fn send_raw(
        &mut self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<usize, Disconnected> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Disconnected);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags)
            .map_err(|_| Disconnected)
    }
}

impl AsFd for RawConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Payload of requests about one ring.
pub(super) fn state(index: u8, number: u32) -> Vec<u8> {
    [u32::from(index).to_ne_bytes(), number.to_ne_bytes()].concat()
}

/// Payload of `SET_VRING_ADDR`: addresses of descriptor table, available ring and used ring.
pub(super) fn addresses(index: u8, flags: u32, [desc, avail, used]: [u64; 3]) -> Vec<u8> {
    let numbers = [desc, used, avail, 0].map(u64::to_ne_bytes).concat();
    [&u32::from(index).to_ne_bytes()[..], &flags.to_ne_bytes(), &numbers].concat()
}

/// Payload of `SET_MEM_TABLE` that claims `count` regions.
pub(super) fn table(count: u32, regions: &[RegionPayload]) -> Vec<u8> {
    let mut payload = u64::from(count).to_le_bytes().to_vec();
    payload.extend(regions.iter().flat_map(region_bytes));
    payload
}

/// Payload of `ADD_MEM_REG` and `REM_MEM_REG`.
pub(super) fn single(region: &RegionPayload) -> Vec<u8> {
    [vec![0; 8], region_bytes(region)].concat()
}

fn region_bytes(region: &RegionPayload) -> Vec<u8> {
    let RegionPayload { guest_addr, size, user_addr, mmap_offset } = *region;
    [guest_addr, size, user_addr, mmap_offset].map(u64::to_ne_bytes).concat()
}

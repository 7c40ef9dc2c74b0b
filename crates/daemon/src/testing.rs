//! Messages of a hot restart and requests to the launcher, received from bytes of a test.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::handover::channel::{Channel, ChannelError, Deadline};
use crate::handover::format::{
    FinalMessage, FinalState, HandoverOffer, HandoverReply, HandoverState,
};

/// Receives one message of each kind, as both processes do; returns how many were accepted.
///
/// # Panics
/// An error has no text.
pub fn receive_handover(stream: UnixStream) -> usize {
    let channel = Channel(stream);
    let until = Instant::now() + Duration::from_secs(10);
    let deadline = Deadline { until, stop: None };
    let results: [Result<(), ChannelError>; 5] = [
        channel.receive::<HandoverOffer>(deadline).map(drop),
        channel.receive::<HandoverState>(deadline).map(drop),
        channel.receive::<HandoverReply>(deadline).map(drop),
        channel.receive::<FinalState>(deadline).map(drop),
        channel.receive::<FinalMessage>(deadline).map(drop),
    ];
    let errors = results.iter().filter_map(|result| result.as_ref().err());
    errors.for_each(|error| assert!(!error.to_string().is_empty()));
    results.iter().filter(|result| result.is_ok()).count()
}

/// Names of the requests to the launcher.
pub fn requests() -> impl Iterator<Item = &'static str> {
    crate::launcher::REQUESTS.iter().map(|handler| handler.name)
}

/// Reads and checks a message to the launcher, with the PCI functions of this tree in sysfs; it is
/// not served. Returns the name of an accepted request.
///
/// # Errors
/// `EBADMSG` for a malformed message; those of [`host::launcher::check`].
pub fn check_request(
    sysfs: &Path,
    message: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<&'static str, Errno> {
    sriov::Sysfs::replace(sysfs);
    host::launcher::check(message, fds, crate::launcher::REQUESTS)
}

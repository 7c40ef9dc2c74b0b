//! Messages of a hot restart, received from bytes of a test.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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

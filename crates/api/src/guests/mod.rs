//! Guest control: settings that guests make on VFs of their virtual PFs, over a channel of their
//! own.
//!
//! A guest with a virtio PF has no `ip link set PF vf N`: the PF's driver has no VFs. So its VMM
//! gives it a serial port, which is connected to a socket of the daemon. A tool in the guest sends
//! requests there ([`protocol`]).
//!
//! Model: the operator's document stays as it is. A guest's settings are stored beside it
//! ([`Overlay`]); the document with the overlay is in force. The operator has precedence: a guest
//! sets only what the document grants ([`grants`]). Each setting is stored with the document's
//! value at that time. It is dropped once the document has another value, no longer grants it, or
//! needs an address that the guest chose.
//!
//! A guest is hostile. Its lines are bounded; its requests are limited
//! ([`TokenBucket`](crate::token_bucket::TokenBucket)) by not reading further; an unread response
//! stops the next request. All of it runs on a thread of its own ([`service`]). Events show a
//! bounded number of its actions a minute.
//!
//! Limits: 4096 bytes a request, 16 KiB a response. A guest has 500 requests or 5 changes a second,
//! in bursts of 2000 and 20. All guests together have 20 changes a second. One connection per
//! virtual PF.

mod connection;
mod error;
mod grants;
mod line;
mod overlay;
pub(crate) mod protocol;
mod request;
mod service;
mod setting;
pub(crate) mod shown;
#[cfg(test)]
mod tests;

pub(crate) use error::{Errno, GuestError};
pub(crate) use overlay::{Dropped, Overlay};
pub(crate) use request::Request;
pub(crate) use service::{Channel, ChannelService, RequestHandler};

/// Responses to `bytes` from a channel, which arrive in pieces of `piece` bytes, without limits of
/// rate.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn respond(
    bytes: &[u8],
    piece: usize,
    mut answer: impl FnMut(Request) -> Result<serde_json::Value, GuestError>,
) -> Vec<Vec<u8>> {
    let (mut lines, mut responses) = (line::Lines::default(), Vec::new());
    for mut arrived in bytes.chunks(piece) {
        while !arrived.is_empty() {
            lines.fill(&mut arrived).expect("memory can be read");
            while let Some(line) = lines.next() {
                let request = protocol::read_line(line);
                responses.push(protocol::answer(request.id, request.what.and_then(&mut answer)));
            }
        }
    }
    responses
}

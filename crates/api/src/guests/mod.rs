//! What guests set of the VFs of their virtual PFs, by a channel of their own.
//!
//! A guest whose PF is virtio has no `ip link set PF vf N`: the PF's driver knows no VFs. So its
//! VMM gives it a serial port, whose other end is a socket of the daemon's, and a tool asks there
//! ([`protocol`]).
//!
//! Model: the operator's document stays as it is. What a guest sets is kept beside it
//! ([`Overlay`]), and in force is the document with the overlay upon it. The operator's word wins:
//! a guest sets only what the document grants ([`grants`]); each of its settings is remembered with
//! what the document said at that time, and falls as soon as the document says something else,
//! grants it no more, or needs an address that the guest chose.
//!
//! A guest is hostile. Its lines are bounded, its requests are rationed
//! ([`TokenBucket`](crate::token_bucket::TokenBucket)) by not reading on, an answer that it does
//! not read stops the next request, and all of it happens on a thread of its own ([`desk`]). What
//! it does can be seen in the events, a bounded number a minute.
//!
//! Limits: 4096 bytes a request, 16 KiB an answer, 500 requests or 5 changes a second, 2000 and 20
//! at once, 20 changes a second of all guests; one connection a virtual PF.

mod connection;
mod desk;
mod grants;
mod line;
mod overlay;
pub(crate) mod protocol;
mod refusal;
mod request;
mod setting;
pub(crate) mod shown;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use desk::{Answer, Channel, Desk};
pub(crate) use overlay::{Dropped, Overlay};
pub(crate) use refusal::{Errno, Refusal};
pub(crate) use request::Request;

//! Handover of a daemon's state to its successor: messages, and their contents.
//!
//! The protocol is in [`upgrade`](super::upgrade); each part of the daemon fills in its own state.

pub(crate) mod channel;
pub(crate) mod format;

pub(crate) use channel::{OutgoingFds, ReceivedFds};
pub(crate) use format::{
    AreaHandover, CaptureHandover, DeviceHandover, Fd, FinalState, KickHandover, LearnedAddresses,
    ListenerHandover, PortKey, RegionHandover, RingHandover, SessionHandover, SocketHandover,
};

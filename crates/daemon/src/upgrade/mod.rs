//! Hot restart: another process takes over, and no frame is lost.
//!
//! # Model
//! The daemon starts the new program with one end of a socket pair, and tells it everything: where
//! it listens, its front-ends with their memory and rings, its state. The new one maps and checks
//! all of it, starts lanes that stand, and says that it is ready; the old one serves all the while.
//! Only then the old one's lanes let go of every ring and device, it says how far each is, and the
//! new one attaches them. When it says so the old one has the last word, and the new one begins.
//! Frames wait meanwhile where they are: in the guests' rings, in the kernel's queues.
//!
//! ```text
//!      old                                       new
//!      starts the program        ----------->    understood
//!      sockets, memory, state    ----------->    maps, checks, starts lanes that stand
//!      (frames flow)             <-----------    ready
//!      lets go of rings
//!      positions, tables, taps   ----------->    attaches rings
//!                                <-----------    attached
//!      go                        ----------->    lanes begin
//!      ends, removing nothing
//! ```
//!
//! Whatever fails before the last word leaves the old one serving: it ends the new process and
//! takes its rings up again. Until then the new one has moved no frame, told nobody anything and
//! adopted no file. It has started rings: their guests may have been interrupted in vain.
//!
//! # What goes how
//! | what | how |
//! |---|---|
//! | run directory, state directory, sockets that are listened on | the same descriptors |
//! | vhost-user sessions | descriptors, the state machine, positions of rings; memory is mapped anew |
//! | taps, packet and stream sockets, tunnels, recordings, captures | descriptors, and how far they are |
//! | AF_XDP sockets | closed and opened again, for their memory is the process's; and every kind that does not say how it is handed over |
//! | vDPA devices | closed and opened again: the kernel keeps what the driver set, a file in the run directory the rest |
//! | counters, learned addresses, rules met, events, choices for adapters that follow their traffic | copied |
//! | tokens of rate limits | begin anew: one burst size more, once |
//! | messages of front-ends, requests to the API | wait |
//! | sessions that cannot be taken up, for what their front-ends made of them | end, and may be begun anew |
//! | guests' channels | closed with the old process, and served again within half a second |
//! | an order to stop | ends the new process before it is ready; later it is the new one's |
//!
//! # Limits
//! [`format`] has a version; a program that does not know it, or a field, refuses.

mod arrival;
mod channel;
mod departure;
mod desk;
mod format;
mod new;
mod notify;
mod old;
mod program;

pub(super) use arrival::Arriving;
pub(super) use channel::{Given, Giving};
pub(super) use desk::{Counter, Desk, desk};
pub(super) use format::{
    Area, Capture, Device, Fd, Kick, Learned, Listening, Place, Region, Rest, Ring, Session, Socket,
};
pub use new::take_over;
pub(super) use notify::ready;
pub(super) use old::Origin;

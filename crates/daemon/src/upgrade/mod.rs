//! Hot restart: another process takes over without losing a frame.
//!
//! # Model
//! The daemon starts the new program with one end of a socket pair, and hands it everything:
//! listening sockets, front-ends with their memory and rings, and its state. The new process maps
//! and checks all of it, creates stopped lanes, and reports ready; the old one serves meanwhile.
//! Then the old process's lanes release every ring and device, it sends the final positions, and
//! the new process attaches them. Once that is confirmed, the old process sends its last message,
//! and the new one starts. Frames wait meanwhile in the guests' rings and in the kernel's queues.
//!
//! ```text
//!      old                                       new
//!      starts the program        ----------->    understood
//!      sockets, memory, state    ----------->    maps, checks, creates stopped lanes
//!      (frames flow)             <-----------    ready
//!      releases rings
//!      positions, tables, taps   ----------->    attaches rings
//!                                <-----------    attached
//!      go                        ----------->    lanes start
//!      exits, removes nothing
//! ```
//!
//! On any failure before the last message the old process continues: it kills the new one and
//! resumes its rings. Until then the new process has moved no frame, notified no guest and adopted
//! no file. It has started rings, which may have caused spurious interrupts.
//!
//! # Method for each resource
//! | resource | method |
//! |---|---|
//! | run directory, state directory, listening sockets | the same descriptors |
//! | vhost-user sessions | descriptors, protocol state, ring positions; memory is mapped again |
//! | taps, packet and stream sockets, tunnels, recordings, captures | descriptors, and positions |
//! | AF_XDP sockets, whose memory belongs to the process | closed and reopened |
//! | other devices without a handover of their own | closed and reopened |
//! | vDPA devices | closed and reopened: the kernel keeps the driver's settings, the run directory the rest |
//! | counters, learned addresses, rule hits, events, path selections | copied |
//! | tokens of rate limits | start again: one additional burst, once |
//! | messages of front-ends, requests to the API | wait |
//! | sessions that their front-ends broke | end, and may be started again |
//! | guests' channels | closed with the old process, and served again within 0.5 s |
//! | an order to stop | kills the new process before it is ready; later it is forwarded to it |
//!
//! # Limits
//! [`format`](super::handover::format) has a version; a program rejects an unknown version or
//! field.

mod new_process;
mod notify;
mod old_process;
mod program;
mod replaced;
mod requests;
mod takeover;

pub use new_process::take_over;
pub(super) use notify::{Watchdog, ready};
pub(super) use old_process::LaunchContext;
pub(super) use program::{
    EndProgram, Files, NameFiles, OwnProgram, StartProgram, directories_before, name_files,
    set_own_program,
};
pub(super) use requests::{UpgradeRequests, UpgradeSender, channel};
pub(super) use takeover::PendingTakeover;

//! The launcher's process: the requests that it serves.
//!
//! This is the one list of what the daemon may have done with rights that it does not have itself.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use host::launcher::{Handler, serve};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};

use super::upgrade;

/// Requests of the daemon.
pub(super) const REQUESTS: &[Handler] = &[
    Handler::of::<host::netns::OpenNamespace>(),
    Handler::of::<host::netns::IdentifyNamespace>(),
    Handler::of::<host::tun::OpenTap>(),
    Handler::of::<host::socket::OpenSocket>(),
    Handler::of::<host::socket::SetBuffers>(),
    Handler::of::<host::interface::ChangeInterface>(),
    Handler::of::<host::links::ChangeLink>(),
    Handler::of::<host::group::FindGroup>(),
    Handler::of::<host::latency::HoldLatency>(),
    Handler::of::<xdp::CreateMap>(),
    Handler::of::<xdp::LoadRedirect>(),
    Handler::of::<xdp::AttachProgram>(),
    Handler::of::<xdp::PreferBusyPoll>(),
    Handler::of::<xdp::ChangeFlowRule>(),
    Handler::of::<xdp::KeepTags>(),
    Handler::of::<sriov::ChangeVfs>(),
    Handler::of::<sriov::ChangeVf>(),
    Handler::of::<sriov::BindDriver>(),
    Handler::of::<sriov::EswitchMode>(),
    Handler::of::<sriov::PlaceNetdev>(),
    Handler::of::<vduse::ChangeDevices>(),
    Handler::of::<vduse::OpenDevice>(),
    Handler::of::<vduse::ChangeBus>(),
    Handler::of::<vhost_user::SocketFile>(),
    Handler::of::<port::capture::OpenCapture>(),
    Handler::of::<port::pcap::OpenRecording>(),
    Handler::of::<upgrade::NameFiles>(),
    Handler::of::<upgrade::StartProgram>(),
    Handler::of::<upgrade::EndProgram>(),
];

/// Signals that are for the daemon, and end the launcher only with it.
const IGNORED: [i32; 5] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGUSR2,
];

/// Serves the daemon at the other end of `socket`, which was started from `program`, until it has
/// ended.
///
/// # Errors
/// The socket is none.
pub fn run(program: PathBuf, socket: BorrowedFd<'_>) -> Result<()> {
    // Its name in lists of processes.
    let _ = rustix::thread::set_name(c"shunt-launcher");
    // Its socket may be in other processes, which would keep it.
    host::process::end_with_parent(Signal::KILL)?;
    // Processes of the same user cannot trace it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for signal in IGNORED {
        // Programs that it starts have the default action: they inherit no handler.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // The programs that it starts have a sandbox, whatever the daemon asks.
    upgrade::set_own_program(program, true);
    serve(socket, REQUESTS).context("the daemon's launcher cannot read its requests")
}

/// Starts the launcher of this process.
pub(super) fn start(program: &std::path::Path) -> io::Result<()> {
    let program = program.as_os_str();
    host::launcher::start(&["up".as_ref(), "--launcher".as_ref(), program])
}

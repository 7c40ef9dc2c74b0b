//! Protocol of the old process, which is replaced.
//!
//! Until it has sent the last message, [`FinalMessage::Go`], the old process can continue, and does
//! on any error: it kills the new process first, which touches nothing from then on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use api::{Server, UpgradeOrder, Upgraded};
use model::config::SourceFile;
use model::state::{Problem, Problems};

use super::super::data_plane::SharedDataPlane;
use super::super::handover::channel::{Channel, ChannelError, Deadline, OutgoingFds};
use super::super::handover::format::{
    ApiSocketsHandover, FORMAT, FinalMessage, HandoverOffer, HandoverReply, HandoverState,
};
use super::program::NewProcess;

/// Timeout for the new program to accept the format.
const ANSWER: Duration = Duration::from_secs(5);
/// Timeout from its start until ready: it maps all guests' memory, and opens nothing.
const READY: Duration = Duration::from_secs(10);
/// Timeout until attached, while no process serves.
const ATTACHED: Duration = Duration::from_millis(500);
/// Time for a process that closed the connection to exit; its exit status says more.
const END: Duration = Duration::from_millis(200);

/// Launch parameters, needed to be replaced.
#[derive(Debug)]
pub(in super::super) struct LaunchContext {
    /// Configuration: name for error messages, and text.
    pub(in super::super) config: SourceFile,
    /// Pidfd of the process whose end stops the daemon, if there is one.
    pub(in super::super) guardian: Option<OwnedFd>,
}

/// Resources handed over besides the data plane.
#[derive(Debug)]
pub(in super::super) struct HandoverResources<'a> {
    pub(in super::super) launch: &'a LaunchContext,
    pub(in super::super) run_lock: BorrowedFd<'a>,
    pub(in super::super) server: Option<&'a Server>,
    /// Readable when the daemon is to stop.
    pub(in super::super) stop: BorrowedFd<'a>,
}

/// Lets another process take over. On success it serves when this returns, and nothing of this
/// daemon may be touched or removed any more.
///
/// # Errors
/// Cause of the failure; this daemon continues as before.
pub(in super::super) fn replace(
    data_plane: &SharedDataPlane,
    resources: &HandoverResources<'_>,
    order: &UpgradeOrder,
) -> Result<Upgraded> {
    let begun = Instant::now();
    let (ours, theirs) = UnixStream::pair().context("no socket for the new program")?;
    let mut new_process = NewProcess::start(order, theirs)?;
    let path = new_process.path.clone();
    let told = tell(&Channel(ours), data_plane, resources, order, &mut new_process);
    match told {
        Ok((version, Silence { release, transfer, attach })) => {
            let us = |time: Duration| time.as_micros() as u64;
            let [release_us, transfer_us, attach_us] = [us(release), us(transfer), us(attach)];
            Ok(Upgraded {
                pid: new_process.release(),
                version,
                binary: path.display().to_string(),
                silent_us: release_us + transfer_us + attach_us,
                release_us,
                transfer_us,
                attach_us,
                total_ms: begun.elapsed().as_millis() as u64,
            })
        }
        Err(error) => {
            let ended = end(&mut new_process, &error);
            let ended = ended.map_or(String::new(), |status| format!(" ({status}; see the log)"));
            let message =
                format!("did not take over: {error:#}{ended}; this daemon continues as before");
            let remedy = "see the daemon's log, or name the shunt binary of another version";
            Err(Problems::from(Problem::of_path("binary", &path, message, remedy)).into())
        }
    }
}

/// Ends the new process; returns its exit status if it closed the connection by itself. A late
/// process is killed at once: it must not act any more.
fn end(new_process: &mut NewProcess, error: &anyhow::Error) -> Option<String> {
    let deadline = match error.downcast_ref::<ChannelError>() {
        Some(ChannelError::Ended) => END,
        _ => Duration::ZERO,
    };
    new_process.end(deadline)
}

/// Time without service, by phase.
struct Silence {
    /// The lanes release all rings and devices.
    release: Duration,
    /// The final state is collected and sent.
    transfer: Duration,
    /// The new process attaches it, and is told to start.
    attach: Duration,
}

/// Hands everything to the new process; returns its version, and the time without service.
fn tell(
    channel: &Channel,
    data_plane: &SharedDataPlane,
    resources: &HandoverResources<'_>,
    order: &UpgradeOrder,
    new_process: &mut NewProcess,
) -> Result<(String, Silence)> {
    let begun = Instant::now();
    let within = |time| Deadline { until: begun + time, stop: Some(resources.stop) };
    let offer = HandoverOffer { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() };
    channel.send(&offer, &OutgoingFds::default(), within(ANSWER))?;
    let version = match channel.receive(within(ANSWER))?.0 {
        HandoverReply::Understood { version } => version,
        other => return Err(unexpected(other)),
    };
    let mut data_plane = data_plane.lock();
    let mut outgoing = OutgoingFds::default();
    let handover = handover(&data_plane, resources, order, &mut outgoing)?;
    channel.send(&handover, &outgoing, within(READY))?;
    drop((handover, outgoing));
    match channel.receive(within(READY))?.0 {
        HandoverReply::Ready => {}
        other => return Err(unexpected(other)),
    }
    data_plane.prepare()?;
    let silent = Instant::now();
    data_plane.suspend();
    let release = silent.elapsed();
    match finish(channel, &mut data_plane) {
        Ok([transfer, attach]) => Ok((version, Silence { release, transfer, attach })),
        Err(error) => {
            let ended = end(new_process, &error);
            data_plane.resume();
            let ended = ended.map_or(String::new(), |status| format!(" ({status})"));
            Err(error.context(format!("failed after it was ready{ended}")))
        }
    }
}

/// Hands over the final state, and lets the new process start; returns the times until it was sent,
/// and from then on. An order to stop is ignored from here: one of the two must serve.
fn finish(
    channel: &Channel,
    data_plane: &mut super::super::data_plane::DataPlane,
) -> Result<[Duration; 2]> {
    let (begun, mut outgoing) = (Instant::now(), OutgoingFds::default());
    let rest = data_plane.final_state(&mut outgoing)?;
    let deadline = Deadline { until: Instant::now() + ATTACHED, stop: None };
    channel.send(&rest, &outgoing, deadline)?;
    let transfer = begun.elapsed();
    match channel.receive(deadline)?.0 {
        HandoverReply::Attached => {}
        other => return Err(unexpected(other)),
    }
    // Nothing of this daemon may be touched after this message.
    channel.send(&FinalMessage::Go, &OutgoingFds::default(), deadline)?;
    Ok([transfer, begun.elapsed() - transfer])
}

fn unexpected(reply: HandoverReply) -> anyhow::Error {
    match reply {
        HandoverReply::Failed { why } => anyhow!("{why}"),
        other => anyhow!("unexpected reply {other:?}"),
    }
}

fn handover(
    data_plane: &super::super::data_plane::DataPlane,
    resources: &HandoverResources<'_>,
    order: &UpgradeOrder,
    outgoing: &mut OutgoingFds,
) -> Result<HandoverState> {
    let HandoverResources { launch, run_lock, server, stop: _ } = resources;
    if !data_plane.is_tx_resumed() {
        bail!("guests are still returning to this daemon; try again in a second");
    }
    let guardian = launch.guardian.as_ref();
    let api = match server {
        Some(server) => Some(ApiSocketsHandover {
            unix: super::super::attachment::listening(server.unix(), outgoing)?,
            tcp: server.tcp().map(|tcp| outgoing.put(tcp)).transpose()?,
        }),
        None => None,
    };
    let [vfs, queues] = data_plane.allocated();
    Ok(HandoverState {
        config: (launch.config.name().into(), launch.config.text().into()),
        guardian: guardian.map(|guardian| outgoing.put(guardian.as_fd())).transpose()?,
        run_lock: outgoing.put(*run_lock)?,
        state_lock: outgoing.put(order.state_lock.as_fd())?,
        generation: order.generation,
        api,
        events: order.events.clone(),
        suited: data_plane.suited(),
        vfs,
        queues,
        sockets: data_plane.sockets_handover(outgoing)?,
    })
}

//! Protocol of the new process, which takes over.
//!
//! Everything that can fail precedes [`HandoverReply::Attached`]. Lanes stay stopped until the old
//! process answers with [`FinalMessage::Go`], its last action, so no two processes touch anything.
//! Without that answer this process exits and leaves everything unchanged: files and sockets stay
//! the old process's, no frame was moved, no guest was notified. Started rings may have caused a
//! spurious interrupt, and notifications may have been enabled again.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use model::config::{Config, SourceFile};

use super::super::handover::channel::{Channel, ChannelError, Deadline, OutgoingFds, ReceivedFds};
use super::super::handover::format::{
    FORMAT, FinalMessage, FinalState, HandoverOffer, HandoverReply, HandoverState,
};
use super::super::{Daemon, IgnoredSignals, Sandbox, Stop};
use super::old_process::LaunchContext;

/// Longest silence of the old process; exceeds its own timeouts.
const SILENCE: Duration = Duration::from_secs(30);
/// Timeout for the last message. It must not expire: the old process exits after sending it. If the
/// old process exits without sending, the socket closes.
const NO_END: Duration = Duration::from_secs(366 * 86_400);

/// Takes over from the daemon at the other end of `socket`, and serves until stopped or replaced.
///
/// # Errors
/// Cause of a failed takeover; the old process was told.
pub fn take_over(socket: OwnedFd, sandbox: Sandbox) -> Result<()> {
    // The process was started by a path of a descriptor.
    let _ = rustix::thread::set_name(c"shunt");
    let ignored = IgnoredSignals::catch()?;
    let channel = Channel(UnixStream::from(socket));
    let (mut daemon, stop) = match arrive(&channel, sandbox) {
        Ok(taken) => taken,
        Err(error) if error.is::<ChannelError>() => return Err(error), // no one is listening
        Err(error) => {
            let why = format!("{error:#}");
            let _ = say(&channel, &HandoverReply::Failed { why });
            return Err(error);
        }
    };
    drop(channel);
    daemon.ignored = ignored;
    daemon.run(stop)
}

fn deadline<'a>() -> Deadline<'a> {
    Deadline { until: Instant::now() + SILENCE, stop: None }
}

fn say(channel: &Channel, reply: &HandoverReply) -> Result<(), ChannelError> {
    channel.send(reply, &OutgoingFds::default(), deadline())
}

/// Runs the protocol, up to a daemon that serves.
fn arrive(channel: &Channel, sandbox: Sandbox) -> Result<(Daemon, Stop)> {
    super::super::raise_file_limit();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let HandoverOffer { format, version: theirs } = channel.receive(deadline())?.0;
    if format != FORMAT {
        bail!(
            "shunt {version} supports handover format {FORMAT}, but shunt {theirs} offers {format}; restart the daemon instead"
        );
    }
    say(channel, &HandoverReply::Understood { version: version.clone() })?;
    let (handover, received): (HandoverState, ReceivedFds) = match channel.receive(deadline()) {
        Err(ChannelError::Text(error)) => {
            bail!("shunt {version} does not support all that shunt {theirs} hands over: {error}")
        }
        other => other?,
    };
    let (name, text) = &handover.config;
    let config = Config::of_older(&SourceFile::new(name, text))
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let (mut daemon, stop) = Daemon::prepare(&config, handover, received, sandbox)?;
    stop.on_signals()?;
    say(channel, &HandoverReply::Ready)?;
    let (rest, received): (FinalState, ReceivedFds) = match channel.receive(deadline()) {
        Err(ChannelError::Text(error)) => {
            bail!("shunt {version} does not support all that shunt {theirs} hands over: {error}")
        }
        other => other?,
    };
    daemon.inherit(&config, rest, received)?;
    say(channel, &HandoverReply::Attached)?;
    let FinalMessage::Go =
        channel.receive(Deadline { until: Instant::now() + NO_END, stop: None })?.0;
    daemon.start_serving(&config, &theirs);
    tracing::info!("shunt {version} has taken over from shunt {theirs}");
    Ok((daemon, stop))
}

/// Launch parameters of a daemon that was handed over.
pub(in super::super) fn launch_context(
    handover: &mut HandoverState,
    received: &mut ReceivedFds,
) -> Result<LaunchContext> {
    let guardian = handover.guardian.map(|fd| received.take(fd).context("the guardian is missing"));
    let (name, text) = &handover.config;
    let config = SourceFile::new(name, text);
    Ok(LaunchContext { config, guardian: guardian.transpose()? })
}

//! The daemon that takes over.
//!
//! Everything that can fail is done before [`Reply::Attached`] is said, and lanes stand until the
//! other daemon has answered it by [`Word::Go`]: that is the last thing it does, so nobody else
//! touches anything from then on. Without that word this process ends, and leaves all as it was:
//! files and sockets stay the other's, no frame was moved, nobody was told anything. Rings were
//! started at most: their guests may have been interrupted in vain, and find the wish to be kicked
//! written anew.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use model::config::{Config, SourceFile};

use super::super::{Daemon, IgnoredSignals, Stop};
use super::channel::{Channel, ChannelError, Given, Giving, Patience};
use super::format::{FORMAT, HandoverState, Offer, Reply, Rest, Word};
use super::old::Origin;

/// How long the other daemon may be silent: longer than it waits for this one.
const SILENCE: Duration = Duration::from_secs(30);
/// The same before its last word, which nobody may be too late for: it has gone when it has said
/// it. If it ends without, the socket does.
const NO_END: Duration = Duration::from_secs(366 * 86_400);

/// Takes over from the daemon at the other end of `socket`, and serves until it is stopped or
/// replaced.
///
/// # Errors
/// Why it cannot; the other daemon was told.
pub fn take_over(socket: OwnedFd) -> Result<()> {
    // It was started by the name of a descriptor.
    let _ = rustix::thread::set_name(c"shunt");
    let ignored = IgnoredSignals::catch()?;
    let channel = Channel(UnixStream::from(socket));
    let (mut daemon, stop) = match arrive(&channel) {
        Ok(taken) => taken,
        Err(error) if error.is::<ChannelError>() => return Err(error), // nobody would hear it
        Err(error) => {
            let why = format!("{error:#}");
            let _ = say(&channel, &Reply::Failed { why });
            return Err(error);
        }
    };
    drop(channel);
    daemon.ignored = ignored;
    daemon.run(stop)
}

fn patience<'a>() -> Patience<'a> {
    Patience { until: Instant::now() + SILENCE, stop: None }
}

fn say(channel: &Channel, reply: &Reply) -> Result<(), ChannelError> {
    channel.send(reply, &Giving::default(), patience())
}

/// All of it, up to a daemon that serves.
fn arrive(channel: &Channel) -> Result<(Daemon, Stop)> {
    super::super::raise_file_limit();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let Offer { format, version: theirs } = channel.receive(patience())?.0;
    if format != FORMAT {
        bail!(
            "shunt {version} takes over by format {FORMAT}, and shunt {theirs} offers {format}; restart the daemon instead"
        );
    }
    say(channel, &Reply::Understood { version: version.clone() })?;
    let (handover, given): (HandoverState, Given) = match channel.receive(patience()) {
        Err(ChannelError::Text(error)) => {
            bail!("shunt {version} does not know all that shunt {theirs} hands over: {error}")
        }
        other => other?,
    };
    let (name, text) = &handover.config;
    let config = Config::of_older(&SourceFile::new(name, text))
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let program = std::env::current_exe().context("the program's own path is not known")?;
    let (mut daemon, stop) = Daemon::prepare(&config, handover, given, program)?;
    stop.on_signals()?;
    say(channel, &Reply::Ready)?;
    let (rest, given): (Rest, Given) = match channel.receive(patience()) {
        Err(ChannelError::Text(error)) => {
            bail!("shunt {version} does not know all that shunt {theirs} hands over: {error}")
        }
        other => other?,
    };
    daemon.inherit(&config, rest, given)?;
    say(channel, &Reply::Attached)?;
    let Word::Go = channel.receive(Patience { until: Instant::now() + NO_END, stop: None })?.0;
    daemon.go(&config, &theirs);
    tracing::info!("shunt {version} has taken over from shunt {theirs}");
    Ok((daemon, stop))
}

/// What the configuration and the program say of a daemon that was handed over.
pub(in super::super) fn origin(
    handover: &mut HandoverState,
    given: &mut Given,
    program: std::path::PathBuf,
) -> Result<Origin> {
    let guardian = handover.guardian.map(|fd| given.take(fd).context("the guardian is missing"));
    let (name, text) = &handover.config;
    let config = SourceFile::new(name, text);
    Ok(Origin { config, program, guardian: guardian.transpose()? })
}

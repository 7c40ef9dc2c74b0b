//! The daemon that is replaced.
//!
//! Until this one has said the last word, [`Word::Go`], it can go on, and does if anything goes
//! wrong: the new process is ended first, and touches nothing from then on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use api::{Server, UpgradeOrder, Upgraded};
use model::config::SourceFile;

use super::super::data_plane::Shared;
use super::channel::{Channel, ChannelError, Giving, Patience};
use super::format::{ApiDoors, FORMAT, HandoverState, Offer, Reply, Word};
use super::program::{Program, Successor, choose};

/// How long the new program may take to say that it knows the format.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take from its start on to be ready: it maps all guests' memory, and opens
/// nothing.
const READY: Duration = Duration::from_secs(10);
/// How long it may take to be attached, while nobody serves.
const ATTACHED: Duration = Duration::from_millis(500);
/// How long one that hung up may take to end, which says more than that it hung up.
const END: Duration = Duration::from_millis(200);

/// What a daemon must know of itself to be replaced.
#[derive(Debug)]
pub(in super::super) struct Origin {
    /// What errors call the configuration, and its text.
    pub(in super::super) config: SourceFile,
    /// The file that it was started from.
    pub(in super::super) program: PathBuf,
    /// The process whose end ends the daemon, if there is one.
    pub(in super::super) guardian: Option<OwnedFd>,
}

/// What is handed over beside the data plane.
#[derive(Debug)]
pub(in super::super) struct Belongings<'a> {
    pub(in super::super) origin: &'a Origin,
    pub(in super::super) run_lock: BorrowedFd<'a>,
    pub(in super::super) server: Option<&'a Server>,
    /// Readable when the daemon is to stop.
    pub(in super::super) stop: BorrowedFd<'a>,
}

/// Has another process take over. It lives and serves when this returns without an error, and
/// nothing of this daemon's may be touched, nor removed, any more.
///
/// # Errors
/// Why it did not; this daemon serves on as before.
pub(in super::super) fn replace(
    data_plane: &Shared,
    belongings: &Belongings<'_>,
    order: &UpgradeOrder,
) -> Result<Upgraded> {
    let begun = Instant::now();
    let path = choose(&belongings.origin.program, order.binary.as_deref(), order.user)?;
    let program = Program::open(&path)?;
    let (ours, theirs) = UnixStream::pair().context("no socket for the new program")?;
    let started = program.start(theirs);
    let mut successor = started.with_context(|| format!("{} does not start", path.display()))?;
    let told = tell(&Channel(ours), data_plane, belongings, order, &mut successor);
    match told {
        Ok((version, silent)) => Ok(Upgraded {
            pid: successor.let_go(),
            version,
            binary: path.display().to_string(),
            silent_us: silent.as_micros() as u64,
            total_ms: begun.elapsed().as_millis() as u64,
        }),
        Err(error) => {
            let ended = end(&mut successor, &error);
            let ended = ended.map_or(String::new(), |status| format!(" ({status}; see the log)"));
            let shown = path.display();
            Err(anyhow!("{shown} did not take over: {error:#}{ended}; this daemon serves on"))
        }
    }
}

/// Ends the new process; says how it ended if it hung up by itself. One that is late gets no time:
/// it must not be heard any more.
fn end(successor: &mut Successor, error: &anyhow::Error) -> Option<String> {
    let patience = match error.downcast_ref::<ChannelError>() {
        Some(ChannelError::Ended) => END,
        _ => Duration::ZERO,
    };
    successor.end(patience)
}

/// Tells the new process everything; says its version, and for how long nobody served.
fn tell(
    channel: &Channel,
    data_plane: &Shared,
    belongings: &Belongings<'_>,
    order: &UpgradeOrder,
    successor: &mut Successor,
) -> Result<(String, Duration)> {
    let begun = Instant::now();
    let within = |time| Patience { until: begun + time, stop: Some(belongings.stop) };
    let offer = Offer { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned() };
    channel.send(&offer, &Giving::default(), within(ANSWER))?;
    let version = match channel.receive(within(ANSWER))?.0 {
        Reply::Understood { version } => version,
        other => return Err(unexpected(other)),
    };
    let mut data_plane = data_plane.lock();
    let mut giving = Giving::default();
    let handover = handover(&data_plane, belongings, order, &mut giving)?;
    channel.send(&handover, &giving, within(READY))?;
    drop((handover, giving));
    match channel.receive(within(READY))?.0 {
        Reply::Ready => {}
        other => return Err(unexpected(other)),
    }
    data_plane.prepare()?;
    let silent = Instant::now();
    data_plane.suspend();
    if let Err(error) = let_go(channel, &mut data_plane) {
        let ended = end(successor, &error);
        data_plane.resume();
        let ended = ended.map_or(String::new(), |status| format!(" ({status})"));
        return Err(error.context(format!("it was ready, and then failed{ended}")));
    }
    Ok((version, silent.elapsed()))
}

/// Tells the new process what is left, and to go on when it can. It is not asked any more whether
/// this daemon is to stop: one of the two must serve.
fn let_go(channel: &Channel, data_plane: &mut super::super::data_plane::DataPlane) -> Result<()> {
    let mut giving = Giving::default();
    let rest = data_plane.rest(&mut giving)?;
    let patience = Patience { until: Instant::now() + ATTACHED, stop: None };
    channel.send(&rest, &giving, patience)?;
    match channel.receive(patience)?.0 {
        Reply::Attached => {}
        other => return Err(unexpected(other)),
    }
    // Nothing of this daemon's is touched any more once this is said.
    Ok(channel.send(&Word::Go, &Giving::default(), patience)?)
}

fn unexpected(reply: Reply) -> anyhow::Error {
    match reply {
        Reply::Failed { why } => anyhow!("{why}"),
        other => anyhow!("it answered {other:?} out of turn"),
    }
}

fn handover(
    data_plane: &super::super::data_plane::DataPlane,
    belongings: &Belongings<'_>,
    order: &UpgradeOrder,
    giving: &mut Giving,
) -> Result<HandoverState> {
    let Belongings { origin, run_lock, server, stop: _ } = belongings;
    if !data_plane.is_settled() {
        bail!("guests are still coming back to this daemon; try again in a second");
    }
    let guardian = origin.guardian.as_ref();
    let api = match server {
        Some(server) => Some(ApiDoors {
            unix: super::super::attachment::listening(server.unix(), giving)?,
            tcp: server.tcp().map(|tcp| giving.put(tcp)).transpose()?,
        }),
        None => None,
    };
    let [vfs, queues] = data_plane.held();
    Ok(HandoverState {
        config: (origin.config.name().into(), origin.config.text().into()),
        guardian: guardian.map(|guardian| giving.put(guardian.as_fd())).transpose()?,
        run_lock: giving.put(*run_lock)?,
        state_lock: giving.put(order.state_lock.as_fd())?,
        generation: order.generation,
        api,
        events: order.events.clone(),
        suited: data_plane.suited(),
        vfs,
        queues,
        sockets: data_plane.sockets_handover(giving)?,
    })
}

//! Thread that serves the guests' channels.
//!
//! Each turn handles one request of each channel, so no guest delays another by more. The thread
//! waits for the manager, like the API's workers, but never for a guest. A response that cannot be
//! written waits for room, and that guest is not read meanwhile.
//!
//! A change affects the whole data plane, so all guests share one limit of changes, served least
//! recent first. After each change the manager is left to others for as long as it was in use.

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_user::{ByteStream, Closer, CloserLoad, Listener};

use super::connection::Connection;
use super::error::GuestError;
use super::request::Request;
use crate::log_limiter::LogLimiter;
use crate::token_bucket::TokenBucket;

/// Limit of requests of a guest: burst, and rate per second.
const REQUESTS: (u32, f64) = (2000, 500.0);
/// Limit of changes of all guests together: burst, and rate per second.
const CHANGES: (u32, f64) = (40, 20.0);
/// Delay before the next accept after a failure, such as no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Handles a request of a channel. The handler finds the current virtual PF: the channel's name may
/// be another's by then.
pub(crate) type RequestHandler =
    Box<dyn Fn(&Channel, Request) -> Result<serde_json::Value, GuestError> + Send>;

/// A channel to serve.
#[derive(Debug, Clone)]
pub struct Channel {
    pub vpf: String,
    pub socket: Arc<Listener>,
    /// `true` while a VMM is connected.
    pub connected: Arc<AtomicBool>,
}

/// Handle of the thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct ChannelService {
    wanted: Arc<Mutex<Vec<Channel>>>,
    /// A byte wakes the thread; closing ends it.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ChannelService {
    /// Starts the thread, without channels.
    ///
    /// # Errors
    /// The system has no thread or socket left.
    pub(crate) fn start(answer: RequestHandler) -> Result<ChannelService> {
        let (wake, woken) = UnixStream::pair().context("guest-control thread")?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let wanted = Arc::<Mutex<Vec<Channel>>>::default();
        let changes = Changes::new(Instant::now());
        let served = Vec::new();
        let server = ServiceThread { wanted: wanted.clone(), woken, served, changes, answer };
        let thread = std::thread::Builder::new().name("guests".into()).spawn(|| server.run());
        let thread = thread.context("the guests' thread cannot be started")?;
        Ok(ChannelService { wanted, wake: Some(wake), thread: Some(thread) })
    }

    /// Replaces the served channels.
    pub(crate) fn serve(&self, channels: Vec<Channel>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = channels;
        // A full socket already holds a wake-up.
        let _ = self.wake.as_ref().map(|mut wake| wake.write(&[0]));
    }
}

impl Drop for ChannelService {
    fn drop(&mut self) {
        self.wake = None;
        // The thread itself may drop the manager last, and cannot join itself.
        let thread =
            self.thread.take().filter(|it| it.thread().id() != std::thread::current().id());
        let _ = thread.map(JoinHandle::join); // a panic of its was told when it happened
    }
}

struct ServiceThread {
    wanted: Arc<Mutex<Vec<Channel>>>,
    woken: UnixStream,
    /// Ordered by last change.
    served: Vec<ServedChannel>,
    changes: Changes,
    answer: RequestHandler,
}

/// Limit of changes of all guests.
struct Changes {
    bucket: TokenBucket,
    /// Number of changes so far.
    count: u64,
}

impl Changes {
    fn new(now: Instant) -> Changes {
        Changes { bucket: TokenBucket::new(CHANGES.0, CHANGES.1, now), count: 0 }
    }

    /// Number of the next change, if one may start now.
    fn next(&mut self, now: Instant) -> Option<u64> {
        let admits = self.bucket.admits(now);
        self.count += u64::from(admits);
        admits.then_some(self.count)
    }
}

/// A channel and its connection.
struct ServedChannel {
    channel: Channel,
    line: Option<Connection>,
    /// Kept across connections: reconnecting must not reset the limit.
    bucket: TokenBucket,
    /// Likewise for log lines.
    log: LogLimiter,
    /// Number of its last change.
    changed: u64,
    /// Closes its connections, and received descriptors.
    closer: Closer,
}

impl ServiceThread {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let changes = &mut self.changes;
            let wait = self.served.iter_mut().filter_map(|one| one.wait(changes, now)).min();
            let mut sockets = vec![PollFd::new(&self.woken, PollFlags::IN)];
            for served in &self.served {
                let socket = &*served.channel.socket;
                sockets.extend((!served.is_busy()).then(|| PollFd::new(socket, PollFlags::IN)));
                sockets.extend(served.line.as_ref().and_then(Connection::watched));
            }
            let timeout = wait.map(|wait| Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: wait.subsec_nanos().into(),
            });
            if poll(&mut sockets, timeout.as_ref())
                .is_err_and(|error| error != rustix::io::Errno::INTR)
            {
                std::thread::sleep(PAUSE); // out of memory: nothing else can be wrong
            }
            drop(sockets);
            if !self.hear() {
                return;
            }
            self.turn(Instant::now());
        }
    }

    /// Handles one request of each channel.
    fn turn(&mut self, now: Instant) {
        for served in &mut self.served {
            served.turn(&self.answer, &mut self.changes, now);
        }
        self.served.sort_by_key(|one| one.changed);
    }

    /// Takes over the new list of channels; `false` to end.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 64];
        match io::Read::read(&mut self.woken, &mut bytes) {
            Ok(0) => return false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => {}
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut before = std::mem::take(&mut self.served);
        for channel in wanted {
            let same =
                before.iter().position(|one| Arc::ptr_eq(&one.channel.socket, &channel.socket));
            self.served.push(match same {
                // A session continues, even under another name.
                Some(at) => ServedChannel { channel, ..before.swap_remove(at) },
                None => ServedChannel::new(channel, Instant::now()),
            });
        }
        true
    }
}

impl ServedChannel {
    fn new(channel: Channel, now: Instant) -> ServedChannel {
        let bucket = TokenBucket::new(REQUESTS.0, REQUESTS.1, now);
        let (log, closer) = (LogLimiter::default(), Closer::default());
        ServedChannel { channel, line: None, bucket, log, changed: 0, closer }
    }

    /// `true` while earlier connections are not closed yet: then no other is accepted.
    fn is_busy(&self) -> bool {
        self.closer.load() != CloserLoad::Light
    }

    /// Time until the next action without input; `None`: no timer.
    fn wait(&mut self, changes: &mut Changes, now: Instant) -> Option<Duration> {
        if self.is_busy() {
            return Some(PAUSE);
        }
        let line = self.line.as_ref()?;
        if line.held.is_some() {
            return Some(changes.bucket.wait(now));
        }
        line.waits().then(|| self.bucket.wait(now))
    }

    fn turn(&mut self, answer: &RequestHandler, changes: &mut Changes, now: Instant) {
        self.accept();
        if let Err(why) = self.serve(answer, changes, now) {
            let vpf = &self.channel.vpf;
            self.log.info(&format!("vpf {vpf}: the guest's channel was closed: {why}"));
            self.line = None;
        }
        self.channel.connected.store(self.line.is_some(), Ordering::Relaxed);
    }

    /// Handles one request, if it is the channel's turn. The error says why the connection ends.
    fn serve(
        &mut self,
        answer: &RequestHandler,
        changes: &mut Changes,
        now: Instant,
    ) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let Some(asked) = line.next(&mut self.bucket, now)? else { return Ok(()) };
        let is_change = asked.changes();
        if is_change {
            let Some(number) = changes.next(now) else {
                line.held = Some(asked);
                return Ok(());
            };
            self.changed = number;
        }
        let began = Instant::now();
        line.answer(asked, |request| answer(&self.channel, request))?;
        if is_change {
            std::thread::sleep(began.elapsed().min(PAUSE));
        }
        if line.is_too_much(&mut self.bucket, now) {
            let vpf = &self.channel.vpf;
            self.log
                .info(&format!("vpf {vpf}: its guest sends too many requests; they are discarded"));
        }
        Ok(())
    }

    /// Accepts one connection at a time, and rejects others.
    fn accept(&mut self) {
        if self.is_busy() {
            return;
        }
        let vpf = &self.channel.vpf;
        match self.channel.socket.accept() {
            Ok(None) => {}
            Ok(Some(stream)) => {
                let stream = ByteStream::new(stream, &self.closer);
                // A closed connection must not block the next one, even with lines left.
                if self.line.as_ref().is_none_or(Connection::has_hung_up) {
                    self.log.info(&format!("vpf {vpf}: the guest's channel was opened"));
                    self.line = Some(Connection::new(stream));
                } else {
                    tracing::debug!("vpf {vpf}: a second connection was rejected");
                }
            }
            Err(error) => {
                tracing::debug!("vpf {vpf}: cannot accept: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

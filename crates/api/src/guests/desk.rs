//! The thread that serves the guests' channels.
//!
//! One request of each channel a turn, so that no guest keeps another waiting for more than that.
//! The thread waits for the manager as the API's workers do, and for no guest: what cannot be
//! written now is written when there is room, and until then that guest is not read.
//!
//! A change is the whole data plane's business, so all guests together have a ration of them, of
//! which who had one last gets the next one last; and after each the manager is left to others for
//! as long as it was taken.

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
use vhost_user::{ByteStream, Closer, Listener, Load};

use super::connection::Connection;
use super::refusal::Refusal;
use super::request::Request;
use crate::log_limiter::LogLimiter;
use crate::token_bucket::TokenBucket;

/// Requests that a guest may make at once, and a second.
const REQUESTS: (u32, f64) = (2000, 500.0);
/// Changes that all guests together may make at once, and a second.
const CHANGES: (u32, f64) = (40, 20.0);
/// Before a listener that cannot accept, for lack of descriptors say, tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers a request that came by a channel. Whose it is now is for the answer to say: the name
/// that the desk knows may be another's by then.
pub(crate) type Answer =
    Box<dyn Fn(&Channel, Request) -> Result<serde_json::Value, Refusal> + Send>;

/// A channel that is to be served.
#[derive(Debug, Clone)]
pub struct Channel {
    pub vpf: String,
    pub socket: Arc<Listener>,
    /// Whether a VMM is connected.
    pub connected: Arc<AtomicBool>,
}

/// The thread's end that others hold; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Desk {
    wanted: Arc<Mutex<Vec<Channel>>>,
    /// A byte for news; closed for the end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts the thread, which serves nobody yet.
    ///
    /// # Errors
    /// The system gives no thread or socket.
    pub(crate) fn start(answer: Answer) -> Result<Desk> {
        let (wake, woken) = UnixStream::pair().context("guest-control thread")?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let wanted = Arc::<Mutex<Vec<Channel>>>::default();
        let changes = Changes::new(Instant::now());
        let served = Vec::new();
        let server = Server { wanted: wanted.clone(), woken, served, changes, answer };
        let thread = std::thread::Builder::new().name("guests".into()).spawn(|| server.run());
        let thread = thread.context("the guests' thread cannot be started")?;
        Ok(Desk { wanted, wake: Some(wake), thread: Some(thread) })
    }

    /// Serves these channels from now on, and no others.
    pub(crate) fn serve(&self, channels: Vec<Channel>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = channels;
        // A full socket has bytes enough to wake it.
        let _ = self.wake.as_ref().map(|mut wake| wake.write(&[0]));
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.wake = None;
        // The last to let go of the manager may be the thread itself, which cannot wait for its own
        // end.
        let thread =
            self.thread.take().filter(|it| it.thread().id() != std::thread::current().id());
        let _ = thread.map(JoinHandle::join); // a panic of its was told when it happened
    }
}

struct Server {
    wanted: Arc<Mutex<Vec<Channel>>>,
    woken: UnixStream,
    /// In the order in which they had a change.
    served: Vec<Served>,
    changes: Changes,
    answer: Answer,
}

/// What all guests together may change.
struct Changes {
    ration: TokenBucket,
    /// How many there were.
    count: u64,
}

impl Changes {
    fn new(now: Instant) -> Changes {
        Changes { ration: TokenBucket::new(CHANGES.0, CHANGES.1, now), count: 0 }
    }

    /// The number of the next one, if it may be had now.
    fn next(&mut self, now: Instant) -> Option<u64> {
        let admits = self.ration.admits(now);
        self.count += u64::from(admits);
        admits.then_some(self.count)
    }
}

/// A channel, and the connection on it.
struct Served {
    channel: Channel,
    line: Option<Connection>,
    /// It outlives connections: who connects anew has no more than before.
    ration: TokenBucket,
    /// The same for log lines.
    quiet: LogLimiter,
    /// The number of the last change that it had.
    changed: u64,
    /// Closes its connections, and what comes by them.
    closer: Closer,
}

impl Server {
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

    /// Lets everybody have a request answered.
    fn turn(&mut self, now: Instant) {
        for served in &mut self.served {
            served.turn(&self.answer, &mut self.changes, now);
        }
        self.served.sort_by_key(|one| one.changed);
    }

    /// Takes over what is wanted; `false` if it is to end.
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
                // A session goes on, even under another name.
                Some(at) => Served { channel, ..before.swap_remove(at) },
                None => Served::new(channel, Instant::now()),
            });
        }
        true
    }
}

impl Served {
    fn new(channel: Channel, now: Instant) -> Served {
        let ration = TokenBucket::new(REQUESTS.0, REQUESTS.1, now);
        let (quiet, closer) = (LogLimiter::default(), Closer::default());
        Served { channel, line: None, ration, quiet, changed: 0, closer }
    }

    /// Whether what former connections left is not closed yet: then it takes no other.
    fn is_busy(&self) -> bool {
        self.closer.load() != Load::Light
    }

    /// How long until it has something to do without anything coming; `None` for ever.
    fn wait(&mut self, changes: &mut Changes, now: Instant) -> Option<Duration> {
        if self.is_busy() {
            return Some(PAUSE);
        }
        let line = self.line.as_ref()?;
        if line.held.is_some() {
            return Some(changes.ration.wait(now));
        }
        line.waits().then(|| self.ration.wait(now))
    }

    fn turn(&mut self, answer: &Answer, changes: &mut Changes, now: Instant) {
        self.accept();
        if let Err(why) = self.serve(answer, changes, now) {
            let vpf = &self.channel.vpf;
            self.quiet.info(&format!("vpf {vpf}: the guest's channel was closed: {why}"));
            self.line = None;
        }
        self.channel.connected.store(self.line.is_some(), Ordering::Relaxed);
    }

    /// Answers one request, if it is one's turn; an error says why the connection ends.
    fn serve(
        &mut self,
        answer: &Answer,
        changes: &mut Changes,
        now: Instant,
    ) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let Some(asked) = line.next(&mut self.ration, now)? else { return Ok(()) };
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
        if line.is_too_much(&mut self.ration, now) {
            let vpf = &self.channel.vpf;
            self.quiet
                .info(&format!("vpf {vpf}: its guest asks for more than it may, which is lost"));
        }
        Ok(())
    }

    /// Takes a connection, or turns it away: one at a time.
    fn accept(&mut self) {
        if self.is_busy() {
            return;
        }
        let vpf = &self.channel.vpf;
        match self.channel.socket.accept() {
            Ok(None) => {}
            Ok(Some(stream)) => {
                let stream = ByteStream::new(stream, &self.closer);
                // Whoever is gone, though lines of its may wait, keeps nobody out.
                if self.line.as_ref().is_none_or(Connection::has_hung_up) {
                    self.quiet.info(&format!("vpf {vpf}: the guest's channel was opened"));
                    self.line = Some(Connection::new(stream));
                } else {
                    tracing::debug!("vpf {vpf}: a second connection was turned away");
                }
            }
            Err(error) => {
                tracing::debug!("vpf {vpf}: cannot accept: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

//! The thread that serves the guests' channels.
//!
//! One request of each channel a turn, so that no guest keeps another waiting for more than that. The thread waits for
//! the manager as the API's workers do, and for no guest: what cannot be written now is written when there is room, and
//! until then that guest is not read.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::line::{Line, Lines};
use super::protocol::{self, LINE_MAX};
use super::ration::Ration;
use super::refusal::{Errno, Refusal};
use super::request::{Asked, Request};

/// Requests that a guest may make at once, and a second.
const REQUESTS: (u32, f64) = (2000, 500.0);
/// Requests that may wait when there is no more to be had. Who has sent more does not wait for answers, and what is in the
/// buffers before us would keep the guest's next program waiting for minutes; QEMU drops it when we hang up.
const WAITING_MAX: usize = 8;
/// What a change costs, in requests.
const CHANGE_COST: u32 = 100;
/// Before a listener that cannot accept, for lack of descriptors say, tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers a request of the guest of a virtual PF.
pub(crate) type Answer = Box<dyn Fn(&str, Request) -> Result<serde_json::Value, Refusal> + Send>;

/// A channel that is to be served.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) vpf: String,
    pub(crate) socket: Arc<UnixListener>,
    /// Whether a VMM is connected.
    pub(crate) connected: Arc<AtomicBool>,
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
        let (wake, woken) = UnixStream::pair().context("the guests' desk cannot be woken")?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let wanted = Arc::<Mutex<Vec<Channel>>>::default();
        let server = Server { wanted: wanted.clone(), woken, served: Vec::new(), answer };
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
        // The last to let go of the manager may be the thread itself, which cannot wait for its own end.
        let thread =
            self.thread.take().filter(|it| it.thread().id() != std::thread::current().id());
        let _ = thread.map(JoinHandle::join); // a panic of its was told when it happened
    }
}

struct Server {
    wanted: Arc<Mutex<Vec<Channel>>>,
    woken: UnixStream,
    served: Vec<Served>,
    answer: Answer,
}

/// A channel, and the connection on it.
struct Served {
    channel: Channel,
    line: Option<Connection>,
    /// It outlives connections: who connects anew has no more than before.
    ration: Ration,
}

struct Connection {
    stream: UnixStream,
    lines: Lines,
    /// What of the last answer is not written yet.
    pending: Vec<u8>,
}

impl Server {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let wait = self.served.iter_mut().filter_map(|one| one.wait(now)).min();
            let mut sockets = vec![PollFd::new(&self.woken, PollFlags::IN)];
            for served in &self.served {
                sockets.push(PollFd::new(&*served.channel.socket, PollFlags::IN));
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
            let now = Instant::now();
            for served in &mut self.served {
                served.turn(&self.answer, now);
            }
        }
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
                None => {
                    let ration = Ration::new(REQUESTS.0, REQUESTS.1, Instant::now());
                    Served { channel, line: None, ration }
                }
            });
        }
        true
    }
}

impl Served {
    /// How long until it has something to do without anything coming; `None` for ever.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        let line = self.line.as_ref()?;
        let ready = line.pending.is_empty() && line.lines.has_line();
        ready.then(|| self.ration.wait(now))
    }

    fn turn(&mut self, answer: &Answer, now: Instant) {
        self.accept();
        let Some(line) = &mut self.line else { return };
        if let Err(why) = line.turn(&self.channel.vpf, &mut self.ration, (answer, now)) {
            tracing::info!("vpf {}: the guest's channel was closed: {why}", self.channel.vpf);
            self.line = None;
        }
        self.channel.connected.store(self.line.is_some(), Ordering::Relaxed);
    }

    /// Takes a connection, or turns it away: one at a time.
    fn accept(&mut self) {
        match self.channel.socket.accept() {
            // Whoever is gone, though lines of its may wait, keeps nobody out.
            Ok((stream, _)) if self.line.as_ref().is_none_or(Connection::has_hung_up) => {
                if stream.set_nonblocking(true).is_ok() {
                    tracing::info!("vpf {}: the guest's channel was opened", self.channel.vpf);
                    let (lines, pending) = (Lines::default(), Vec::new());
                    self.line = Some(Connection { stream, lines, pending });
                }
            }
            Ok(_) => {
                tracing::debug!("vpf {}: a second connection was turned away", self.channel.vpf);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => {
                    tracing::debug!("vpf {}: cannot accept: {error}", self.channel.vpf);
                    std::thread::sleep(PAUSE);
                }
            },
        }
    }
}

impl Connection {
    fn has_hung_up(&self) -> bool {
        let mut sockets = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// What it waits for; nothing while a line is there, which waits for its ration.
    fn watched(&self) -> Option<PollFd<'_>> {
        let events = match (self.pending.is_empty(), self.lines.has_line()) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            (true, true) => return None,
        };
        Some(PollFd::new(&self.stream, events))
    }

    fn turn(
        &mut self,
        vpf: &str,
        ration: &mut Ration,
        (answer, now): (&Answer, Instant),
    ) -> Result<(), String> {
        self.flush()?;
        if !self.pending.is_empty() {
            return Ok(());
        }
        if !self.lines.has_line()
            && !self.lines.fill(&mut self.stream).map_err(|it| it.to_string())?
        {
            return Err("the VMM closed it".into());
        }
        if !ration.wait(now).is_zero() {
            return Ok(());
        }
        let came = self.lines.has_line();
        let Some(line) = self.lines.next() else {
            // Empty lines, and what is passed over, are not for nothing either.
            ration.take(u32::from(came));
            return Ok(());
        };
        let asked = match line {
            Line::Whole(bytes) => protocol::read(&bytes),
            Line::TooLong => {
                let text = format!("a request has at most {LINE_MAX} bytes");
                Asked { id: 0, what: Err(Refusal::new(Errno::MsgSize, text)) }
            }
        };
        let changes = asked.what.as_ref().is_ok_and(Request::changes);
        ration.take(if changes { CHANGE_COST } else { 1 });
        let result = asked.what.and_then(|request| answer(vpf, request));
        self.pending = protocol::answer(asked.id, result);
        self.flush()?;
        match self.lines.waiting() > WAITING_MAX && !ration.wait(now).is_zero() {
            true => Err("it asks for more than it may".into()),
            false => Ok(()),
        }
    }

    /// Writes what there is room for.
    fn flush(&mut self) -> Result<(), String> {
        while !self.pending.is_empty() {
            match self.stream.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

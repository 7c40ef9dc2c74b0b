//! One connection of a channel: bounded lines in, one answer at a time out, and nothing that waits
//! for the other end.
//!
//! Of a guest that asks for more than it may, what it has sent is passed over, to the end of what
//! is in all the buffers before us: else the guest's next program would wait behind it for minutes.
//! It is not hung up on: QEMU 11.1 leaves a port that it was writing for as if it could not be
//! written to, and the guest would have no channel until the next connection ends.

use std::io::{ErrorKind, Write};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use vhost_user::ByteStream;

use super::line::{Line, Lines};
use super::protocol::{self, LINE_MAX};
use super::refusal::{Errno, Refusal};
use super::request::{Asked, Request};
use crate::peer::has_hung_up;
use crate::token_bucket::TokenBucket;

/// Requests that may wait when there is no more to be had, or an answer is not read. Who has sent
/// more does not wait for answers.
const WAITING_MAX: usize = 8;
/// What a change costs, in requests.
const CHANGE_COST: u32 = 100;

/// A connection of a VMM's.
pub(super) struct Connection {
    stream: ByteStream,
    lines: Lines,
    /// A change that waits until there is one to be had.
    pub(super) held: Option<Asked>,
    /// What of the last answer is not written yet.
    pending: Vec<u8>,
    /// Whether what comes is passed over, until nothing does.
    passing: bool,
}

impl Connection {
    pub(super) fn new(stream: ByteStream) -> Connection {
        let (lines, pending) = (Lines::default(), Vec::new());
        Connection { stream, lines, held: None, pending, passing: false }
    }

    /// Whether there is a request that only its ration keeps waiting.
    pub(super) fn waits(&self) -> bool {
        self.passing || self.pending.is_empty() && self.lines.has_line()
    }

    /// Whether the VMM has closed it, though lines of its may wait.
    pub(super) fn has_hung_up(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// What it waits for; nothing while a line is there, which waits for its ration.
    pub(super) fn watched(&self) -> Option<PollFd<'_>> {
        let has_line = self.held.is_some() || self.passing || self.lines.has_line();
        let events = match (self.pending.is_empty(), has_line) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            (true, true) => return None,
        };
        Some(PollFd::new(&self.stream, events))
    }

    /// The next request that it may make, if there is one and all before it are answered.
    pub(super) fn next(
        &mut self,
        ration: &mut TokenBucket,
        now: Instant,
    ) -> Result<Option<Asked>, String> {
        self.flush()?;
        if self.passing {
            self.pass(ration, now)?;
            return Ok(None);
        }
        if !self.pending.is_empty() {
            return Ok(None);
        }
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        if !self.lines.has_line() {
            self.fill()?;
        }
        if !ration.wait(now).is_zero() {
            return Ok(None);
        }
        let came = self.lines.has_line();
        let Some(line) = self.lines.next() else {
            // Empty lines, and what is passed over, are not for nothing either.
            ration.take(u32::from(came));
            return Ok(None);
        };
        let asked = match line {
            Line::Whole(bytes) => protocol::read(&bytes),
            Line::TooLong => {
                let text = format!("a request has at most {LINE_MAX} bytes");
                Asked { id: 0, what: Err(Refusal::new(Errno::MsgSize, text)) }
            }
        };
        ration.take(if asked.changes() { CHANGE_COST } else { 1 });
        Ok(Some(asked))
    }

    pub(super) fn answer(
        &mut self,
        asked: Asked,
        answer: impl FnOnce(Request) -> Result<serde_json::Value, Refusal>,
    ) -> Result<(), String> {
        self.pending = protocol::answer(asked.id, asked.what.and_then(answer));
        self.flush()
    }

    /// Whether it asks for more than it may; then what it has sent is passed over from now on.
    pub(super) fn is_too_much(&mut self, ration: &mut TokenBucket, now: Instant) -> bool {
        let may_not = !self.pending.is_empty() || !ration.wait(now).is_zero();
        if self.lines.waiting() <= WAITING_MAX || !may_not {
            return false;
        }
        self.passing = true;
        true
    }

    /// Passes over a piece of what has come, which is not for nothing either; ends when nothing is
    /// there, and says so.
    fn pass(&mut self, ration: &mut TokenBucket, now: Instant) -> Result<(), String> {
        if ration.wait(now).is_zero() {
            self.lines.discard();
            self.fill()?;
            ration.take(1);
            self.passing = !self.lines.is_empty();
        }
        if !self.passing {
            let text = "so much cannot be asked for at once; what was not answered is lost";
            self.pending.extend(protocol::answer(0, Err(Refusal::new(Errno::Again, text))));
            self.flush()?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        match self.lines.fill(&mut self.stream) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the VMM closed it".into()),
            Err(error) => Err(error.to_string()),
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

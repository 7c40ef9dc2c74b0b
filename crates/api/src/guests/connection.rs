//! One connection of a channel: bounded lines in, one response at a time out, and no wait for the
//! peer.
//!
//! Requests above the limit are discarded, to the end of everything buffered. Otherwise the guest's
//! next program would wait behind them for minutes. The connection stays open: QEMU 11.1 would
//! treat the port as unwritable, and the guest would have no channel until the next connection
//! ends.

use std::io::{ErrorKind, Write};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use vhost_user::ByteStream;

use super::error::{Errno, GuestError};
use super::line::Lines;
use super::protocol;
use super::request::{ReceivedRequest, Request};
use crate::peer::has_hung_up;
use crate::token_bucket::TokenBucket;

/// Most requests waiting for a token, or for an unread response. A guest that sends more has its
/// requests discarded.
const WAITING_MAX: usize = 8;
/// Cost of a change, in requests.
const CHANGE_COST: u32 = 100;

/// A VMM's connection.
pub(super) struct Connection {
    stream: ByteStream,
    lines: Lines,
    /// A change that waits for a token.
    pub(super) held: Option<ReceivedRequest>,
    /// Unwritten rest of the last response.
    pending: Vec<u8>,
    /// `true` while input is discarded, until no more arrives.
    passing: bool,
}

impl Connection {
    pub(super) fn new(stream: ByteStream) -> Connection {
        let (lines, pending) = (Lines::default(), Vec::new());
        Connection { stream, lines, held: None, pending, passing: false }
    }

    /// `true` if a request only waits for its token.
    pub(super) fn waits(&self) -> bool {
        self.passing || self.pending.is_empty() && self.lines.has_line()
    }

    /// `true` if the VMM closed the connection; lines may still be buffered.
    pub(super) fn has_hung_up(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// Descriptor and events to poll; none while a buffered line waits for its token.
    pub(super) fn watched(&self) -> Option<PollFd<'_>> {
        let has_line = self.held.is_some() || self.passing || self.lines.has_line();
        let events = match (self.pending.is_empty(), has_line) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            (true, true) => return None,
        };
        Some(PollFd::new(&self.stream, events))
    }

    /// The next request, once all earlier ones are answered and its token is there.
    pub(super) fn next(
        &mut self,
        bucket: &mut TokenBucket,
        now: Instant,
    ) -> Result<Option<ReceivedRequest>, String> {
        self.flush()?;
        if self.passing {
            self.pass(bucket, now)?;
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
        if !bucket.wait(now).is_zero() {
            return Ok(None);
        }
        let came = self.lines.has_line();
        let Some(line) = self.lines.next() else {
            // Empty and discarded lines cost tokens too.
            bucket.take(u32::from(came));
            return Ok(None);
        };
        let asked = protocol::read_line(line);
        bucket.take(if asked.changes() { CHANGE_COST } else { 1 });
        Ok(Some(asked))
    }

    pub(super) fn answer(
        &mut self,
        asked: ReceivedRequest,
        answer: impl FnOnce(Request) -> Result<serde_json::Value, GuestError>,
    ) -> Result<(), String> {
        self.pending = protocol::answer(asked.id, asked.what.and_then(answer));
        self.flush()
    }

    /// `true` if the guest is above its limit; its input is discarded from then on.
    pub(super) fn is_too_much(&mut self, bucket: &mut TokenBucket, now: Instant) -> bool {
        let may_not = !self.pending.is_empty() || !bucket.wait(now).is_zero();
        if self.lines.waiting() <= WAITING_MAX || !may_not {
            return false;
        }
        self.passing = true;
        true
    }

    /// Discards some input, which costs tokens too. Ends and reports it once no input is left.
    fn pass(&mut self, bucket: &mut TokenBucket, now: Instant) -> Result<(), String> {
        if bucket.wait(now).is_zero() {
            self.lines.discard();
            self.fill()?;
            bucket.take(1);
            self.passing = !self.lines.is_empty();
        }
        if !self.passing {
            let text = "too many requests at once; unanswered ones are discarded";
            self.pending.extend(protocol::answer(0, Err(GuestError::new(Errno::Again, text))));
            self.flush()?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        match self.lines.fill(&mut self.stream) {
            Ok(true) => Ok(()),
            Ok(false) => Err("closed by the VMM".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes as much as the socket takes.
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

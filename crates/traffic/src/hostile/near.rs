//! Hostile VF on the honest guests' VLAN: its frames reach them, so they are limited.
//!
//! Its transmit ring runs only within a volley. The ring has at most 256 entries, and the available
//! index is set once, so the daemon takes at most 256 frames. The ring is then stopped, and the
//! next volley begins after two turns of the honest guests. Mutations of its connection start no
//! ring.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use report::statistics::random::Random;
use vhost_user::Request;

use super::connection::Disconnected;
use super::control;
use super::session::{PATIENCE, Session};
use crate::protocol::hostile::HostileResult;
use crate::turn_counter::TurnCounter;

/// Maximum entries of the rings.
pub(super) const RING_MAX: u16 = 256;
/// Index of the transmit ring.
const TRANSMIT: usize = 1;
/// Longest wait for two turns of the honest guests.
const TURNS: Duration = Duration::from_secs(60);

/// The near VF.
pub(super) struct Near {
    pub(super) session: Session,
    pace: TurnCounter,
    /// Turns of the honest guests at the end of the last volley.
    turns: u64,
}

impl Near {
    pub(super) fn attach(session: Session, pace: TurnCounter, random: &mut Random) -> Result<Near> {
        let turns = pace.turns();
        let mut near = Near { session, pace, turns };
        near.session.attach(random)?;
        Ok(near)
    }

    /// One volley, or one mutation of the connection.
    pub(super) fn act(&mut self, random: &mut Random, result: &mut HostileResult) -> Result<()> {
        // A new connection answers only after the daemon has stopped the rings of the old one.
        self.session.attach(random)?;
        self.wait_for_turns()?;
        if random.one_in(8) {
            control::mutate_near(&mut self.session, random, result)?;
        } else if self.volley(random, result).is_err() {
            self.session.connection = None;
        }
        self.session.attach(random)?;
        self.turns = self.pace.turns();
        Ok(())
    }

    fn volley(
        &mut self,
        random: &mut Random,
        result: &mut HostileResult,
    ) -> Result<(), Disconnected> {
        let session = &mut self.session;
        session.restart(&[TRANSMIT], random)?;
        session.burst(TRANSMIT, random, result);
        result.unanswered += session.wait(&[TRANSMIT], PATIENCE);
        session.stop(&[TRANSMIT])?;
        // Its answer came after the ring was stopped; this one comes after all requests.
        session.connection.as_mut().ok_or(Disconnected)?.query(Request::GetFeatures).map(drop)
    }

    fn wait_for_turns(&self) -> Result<()> {
        let begin = Instant::now();
        while self.pace.turns().wrapping_sub(self.turns) < 2 {
            ensure!(begin.elapsed() < TURNS, "the honest guests have stopped");
            std::thread::yield_now();
        }
        Ok(())
    }
}

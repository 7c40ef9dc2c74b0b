//! Which transmit ring is next, and how much it may send.
//!
//! Model: deficit round robin (Shreedhar and Varghese 1996), over senders in turn. A sender is a
//! function with its rings. Each pass gives every sender credit for [`QUANTUM`] bytes for each unit
//! of weight; it sends bursts while it has credit, and what the last burst took too much is a debt
//! that it pays in the passes after. So shares are exact in the long run though a burst is as
//! large as it likes, and a pass of small frames is one burst of each, as in plain round robin.
//! What is left when a sender's rings are empty is forfeited.
//!
//! On top come two buckets of tokens. A sender with a maximum rests when its tokens are used up,
//! until enough for a burst have come again. A sender with a minimum goes on while its minimum,
//! counted in time since it was last served, is more than its share of the pass: it gets the larger
//! of the two, over some milliseconds. If a pass takes time T, senders with a minimum m get m * T
//! and the others their quanta; so minima hold as long as they add up to less than what the lane
//! can carry. If they add up to more, they are cut in proportion, and the others still get a
//! quantum in every pass.
//!
//! A lane calls [`next`](Schedule::next) and, if it gets a turn, [`took`](Schedule::took). Each
//! call looks at one sender and takes constant time; a sender in debt costs a comparison, and when
//! a whole pass found only such, the next one counts as many times as it takes. Nothing is
//! allocated but by [`add`](Schedule::add) and [`set`](Schedule::set).
//!
//! Limits: a function's rings are to be on one lane; where they are spread over several, give each
//! lane's schedule a part of its rates. Time in ns, never backwards. Bytes are what the caller says
//! they are, be it with or without the wire's overhead.

use crate::nic::Share;
use crate::rate::{TokenBucket, forgiving};

/// Bytes of credit that a pass brings for each unit of weight: about a burst of the smallest
/// frames for the default weight.
const QUANTUM: i64 = 410;
/// For so long a sender's minimum is saved up while others are served. Passes must be shorter, or
/// minima are cut: 255 senders of 64 large frames each take 20 ms at 10 Gbit/s.
const GUARANTEE_NS: u64 = 25_000_000;

/// Leave to send a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The ring, by the number that [`Schedule::add`] was given.
    pub ring: u32,
    /// Take frames while fewer bytes than these were taken; what the last frame takes too much is
    /// charged later. `u32::MAX` means as many as a burst has.
    pub bytes: u32,
}

/// A function that sends.
#[derive(Clone, Debug)]
struct Sender {
    /// Bytes that it may send in this pass; a debt below zero.
    credit: i64,
    /// Bytes that a pass brings.
    quantum: i64,
    /// Only with a minimum or a maximum.
    rates: Option<Box<Rates>>,
    /// Its rings: where they begin, how many, and which is next.
    first: u32,
    rings: u32,
    next: u32,
    /// Rings in a row that turned out empty in this visit.
    empty: u32,
}

/// The rates of a sender that has some.
#[derive(Clone, Debug)]
struct Rates {
    max: Option<TokenBucket>,
    min: Option<TokenBucket>,
    /// Whether the tokens of `max` were used up, and have to come again.
    resting: bool,
}

/// What a sender's rates say.
enum Leave {
    /// It may send so many bytes, and whether some are owed to it.
    Bytes(u32, bool),
    /// It rests until then, in ns.
    Rest(u64),
}

impl Rates {
    fn new(share: Share, now_ns: u64) -> Option<Box<Self>> {
        let max = (share.max_mbit > 0).then(|| TokenBucket::of_bytes(share.max_mbit, now_ns));
        let min = (share.min_mbit > 0)
            .then(|| TokenBucket::of_time(share.min_mbit, GUARANTEE_NS, now_ns));
        let some = max.is_some() || min.is_some();
        some.then(|| Box::new(Self { max, min, resting: false }))
    }

    /// Counts what is owed since the last visit. Within a visit nothing is added: a minimum above
    /// what the lane can carry would never let go.
    fn enter(&mut self, now_ns: u64) {
        if let Some(min) = &mut self.min {
            min.fill(now_ns);
        }
    }

    fn ask(&mut self, now_ns: u64) -> Leave {
        let mut bytes = u32::MAX;
        if let Some(max) = &mut self.max {
            let there = max.fill(now_ns);
            let enough = if self.resting { max.resume() } else { 1 };
            self.resting = there < enough;
            if self.resting {
                return Leave::Rest(max.ready_ns(max.resume()));
            }
            bytes = there.min(i64::from(u32::MAX)) as u32;
        }
        Leave::Bytes(bytes, self.owes())
    }

    /// Whether bytes are owed to the sender.
    fn owes(&self) -> bool {
        self.min.as_ref().is_some_and(TokenBucket::has_any)
    }

    /// Charges bytes; says whether more are owed.
    fn charge(&mut self, bytes: u64) -> bool {
        if let Some(max) = &mut self.max {
            max.take(bytes);
        }
        if let Some(min) = &mut self.min {
            min.take_forgiving(bytes);
        }
        self.owes()
    }

    /// The sender has nothing to send: nothing is owed to it.
    fn spill(&mut self) {
        if let Some(min) = &mut self.min {
            min.spill();
        }
    }
}

/// The senders of a lane; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Schedule {
    senders: Vec<Sender>,
    /// The rings of each sender in turn.
    rings: Vec<u32>,
    /// The sender whose visit it is, and whether it has had its credit.
    at: usize,
    entered: bool,
    /// How many passes this one counts as.
    passes: i64,
    /// Whether a byte was sent in this pass.
    served: bool,
    /// Passes that the smallest debt takes, of those found in this pass.
    fewest: i64,
    /// Whether in the pass before nothing was sent, and nobody was in debt.
    silent: bool,
    /// When the first of those that rest may send again: in this pass, and in the one before.
    wake_ns: [u64; 2],
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new()
    }
}

impl Schedule {
    /// Without senders.
    pub const fn new() -> Self {
        Self {
            senders: Vec::new(),
            rings: Vec::new(),
            at: 0,
            entered: false,
            passes: 1,
            served: false,
            fewest: i64::MAX,
            silent: false,
            wake_ns: [u64::MAX; 2],
        }
    }

    /// Adds a sender with the caller's numbers of its rings; returns the sender's own.
    pub fn add(
        &mut self,
        share: Share,
        rings: impl IntoIterator<Item = u32>,
        now_ns: u64,
    ) -> usize {
        let first = self.rings.len() as u32;
        self.rings.extend(rings);
        let rings = self.rings.len() as u32 - first;
        let (quantum, rates) = (quantum(share), Rates::new(share, now_ns));
        self.senders.push(Sender { credit: 0, quantum, rates, first, rings, next: 0, empty: 0 });
        self.senders.len() - 1
    }

    /// Gives a sender another share, from now on; one that is as it was changes nothing.
    pub fn set(&mut self, sender: usize, share: Share, now_ns: u64) {
        if let Some(sender) = self.senders.get_mut(sender) {
            sender.quantum = quantum(share);
            sender.rates = Rates::new(share, now_ns);
        }
    }

    /// How many senders there are: as often as this [`next`](Self::next) is to be called in a
    /// round, so that each is looked at.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// Whether there is no sender.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Looks at the next sender: the ring that may send now, or `None` if the sender may not. After
    /// a turn, [`took`](Self::took) must be called.
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> Option<Turn> {
        let sender = self.senders.get_mut(self.at)?;
        if !self.entered {
            self.entered = true;
            sender.empty = 0;
            sender.credit = (sender.credit + sender.quantum * self.passes).min(sender.quantum);
            if let Some(rates) = &mut sender.rates {
                rates.enter(now_ns);
            }
        }
        let (mut bytes, mut owed) = (u32::MAX, false);
        if let Some(rates) = &mut sender.rates {
            match rates.ask(now_ns) {
                Leave::Bytes(most, more) => (bytes, owed) = (most, more),
                Leave::Rest(ready_ns) => {
                    self.wake_ns[0] = self.wake_ns[0].min(ready_ns);
                    self.leave();
                    return None;
                }
            }
        }
        if sender.credit <= 0 && !owed {
            if !self.served {
                self.fewest = self.fewest.min(-sender.credit / sender.quantum + 1);
            }
            self.leave();
            return None;
        }
        let own = self.rings.get(sender.first as usize..(sender.first + sender.rings) as usize);
        let ring = own.and_then(|own| own.get(sender.next as usize)).copied();
        if ring.is_none() {
            self.leave();
        }
        ring.map(|ring| Turn { ring, bytes })
    }

    /// Says how many bytes were taken in the turn that [`next`](Self::next) gave, and whether the
    /// ring has more.
    #[inline]
    pub fn took(&mut self, bytes: u64, more: bool) {
        let Some(sender) = self.senders.get_mut(self.at) else { return };
        self.served |= bytes > 0;
        let charged = bytes.min(i64::MAX as u64) as i64;
        sender.credit = forgiving(sender.credit, charged, charged);
        let owed = sender.rates.as_mut().is_some_and(|rates| rates.charge(bytes));
        // A ring that has more but gives nothing is as good as empty, or it would go on for ever.
        sender.empty = if more && bytes > 0 { 0 } else { sender.empty + 1 };
        sender.next += 1;
        if sender.next >= sender.rings {
            sender.next = 0;
        }
        if sender.empty >= sender.rings {
            if let Some(rates) = &mut sender.rates {
                rates.spill();
            }
            self.leave();
        } else if sender.credit <= 0 && !owed {
            self.leave();
        }
    }

    /// Whether the last whole pass found nothing to send and nobody in debt: only then is there
    /// nothing to do before [`wake_ns`](Self::wake_ns), but what guests may yet post.
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    /// When the first sender that rests for want of tokens may send again, in ns; `None` if none
    /// rests. A lane that is to sleep must wake then.
    pub fn wake_ns(&self) -> Option<u64> {
        let [now, before] = self.wake_ns;
        Some(now.min(before)).filter(|ready_ns| *ready_ns != u64::MAX)
    }

    /// Goes on to the next sender.
    #[inline]
    fn leave(&mut self) {
        if let Some(sender) = self.senders.get_mut(self.at) {
            sender.credit = sender.credit.min(0);
        }
        self.entered = false;
        self.at += 1;
        if self.at >= self.senders.len() {
            self.at = 0;
            let only_debts = !self.served && self.fewest != i64::MAX;
            self.passes = if only_debts { self.fewest } else { 1 };
            self.silent = !self.served && !only_debts;
            self.served = false;
            self.fewest = i64::MAX;
            self.wake_ns = [u64::MAX, self.wake_ns[0]];
        }
    }
}

fn quantum(share: Share) -> i64 {
    QUANTUM * i64::from(share.weight.max(1))
}

#[cfg(test)]
mod tests;

//! Transmit scheduler: the next ring that may send a burst.
//!
//! Model: deficit round robin (Shreedhar and Varghese 1996) over senders; a sender is a function
//! with its rings. What they share is the lane's time: each pass gives every sender credit for
//! [`QUANTUM`] cycles for each unit of weight. A sender sends bursts while it has credit; the
//! excess of its last burst is a debt for later passes. So shares of time are exact in the long run
//! with bursts of any cost: a sender of small frames, of long chains or of floods takes no time
//! from the others. A pass of small frames is one or two bursts for each sender. The credit of a
//! sender with empty rings is lost, and so is the debt of one that had no competitor in a pass.
//!
//! Two token buckets of bytes add limits. A sender with a maximum rests when its tokens are used
//! up, until there are enough for a burst. A sender with a minimum continues while its minimum
//! exceeds its share of the pass; the minimum is counted over the time since its last service. It
//! gets the larger of the two, over some milliseconds: its minimum first, then time by weight. In a
//! pass of time T, senders with a minimum m get m * T bytes and all others their quanta. So minima
//! hold as long as the lane has time for their sum. Otherwise they are cut in proportion, and the
//! others still get a quantum in every pass. A byte of a minimum pays for [`OWED_CYCLES_PER_BYTE`]
//! cycles at most.
//!
//! A lane calls [`next`](Schedule::next) and, after a turn, [`took`](Schedule::took). Each call
//! examines one sender in constant time; a sender in debt costs a comparison. If a whole pass found
//! only debts, the next pass counts as many times as needed. Only [`add`](Schedule::add) and
//! [`set`](Schedule::set) allocate.
//!
//! Limits: a function's rings should be on one lane; otherwise give each lane's schedule a part of
//! its rates. Time in ns, never backwards; costs in cycles of any constant length. The caller
//! defines bytes, with or without the wire's overhead.

use crate::nic::Share;
use crate::rate::{TokenBucket, forgiving};

/// Credit of a pass for each unit of weight, cycles: about a burst of the smallest frames for the
/// default weight.
const QUANTUM: i64 = 500;
/// Time for which a minimum accumulates while others are served, ns. Passes must be shorter, or
/// minima are cut: 255 senders of 64 large frames each take 20 ms at 10 Gbit/s.
const GUARANTEE_NS: u64 = 25_000_000;
/// Most cycles that a byte of a minimum pays for: twice what the smallest frames cost one by one,
/// with cold caches. A sender of dearer frames gets fewer bytes, instead of the others' time.
const OWED_CYCLES_PER_BYTE: u64 = 32;
/// Most bytes of a minimum that a turn takes for its time, which the system may have taken away.
const DEAREST_BYTES: u64 = 64 << 10;

/// A function that sends.
#[derive(Clone, Debug)]
struct Sender {
    /// Cycles left in this pass; negative for a debt.
    credit: i64,
    /// Cycles of credit for a pass.
    quantum: i64,
    /// Rates, if it has a minimum or a maximum.
    rates: Option<Box<Rates>>,
    /// Its rings: first index, number, and next one.
    first: u32,
    rings: u32,
    next: u32,
    /// Consecutive empty rings in this visit.
    empty: u32,
}

/// The rates of a sender that has some.
#[derive(Clone, Debug)]
struct Rates {
    max: Option<TokenBucket>,
    min: Option<TokenBucket>,
    /// Set after the tokens of `max` were used up, until there are enough.
    resting: bool,
}

/// Decision of a sender's rates.
enum Leave {
    /// May send a burst; `owed` if bytes of its minimum are left.
    Burst { owed: bool },
    /// Rests until this time, ns.
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

    /// Adds the bytes owed since the last visit. Nothing is added within a visit: a minimum above
    /// the lane's capacity would keep the sender for ever.
    fn enter(&mut self, now_ns: u64) {
        if let Some(min) = &mut self.min {
            min.fill(now_ns);
        }
    }

    fn ask(&mut self, now_ns: u64) -> Leave {
        if let Some(max) = &mut self.max {
            let there = max.fill(now_ns);
            let enough = if self.resting { max.resume() } else { 1 };
            self.resting = there < enough;
            if self.resting {
                return Leave::Rest(max.ready_ns(max.resume()));
            }
        }
        Leave::Burst { owed: self.owes() }
    }

    /// Returns `true` if bytes are owed to the sender.
    fn owes(&self) -> bool {
        self.min.as_ref().is_some_and(TokenBucket::has_any)
    }

    /// Charges a burst; returns `true` if more bytes are owed.
    fn charge(&mut self, bytes: u64, cycles: u64) -> bool {
        if let Some(max) = &mut self.max {
            max.take(bytes);
        }
        if let Some(min) = &mut self.min {
            let dear = (cycles / OWED_CYCLES_PER_BYTE).min(DEAREST_BYTES);
            min.take_forgiving(bytes.max(dear));
        }
        self.owes()
    }

    /// Clears the owed bytes of a sender with nothing to send.
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
    /// Current sender, and `true` once it got its credit.
    at: usize,
    entered: bool,
    /// Number of passes that this one counts as.
    passes: i64,
    /// Set if a byte was sent in this pass.
    served: bool,
    /// Number of senders with frames or a debt in this pass, and the last of them.
    contenders: usize,
    contender: usize,
    /// Passes needed to pay the smallest debt found in this pass.
    fewest: i64,
    /// Set if the previous pass sent nothing and found no debt.
    silent: bool,
    /// Earliest end of a rest, in this pass and in the previous one.
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
            contenders: 0,
            contender: 0,
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

    /// Sets a sender's share from now on; no effect if it is unchanged.
    pub fn set(&mut self, sender: usize, share: Share, now_ns: u64) {
        if let Some(sender) = self.senders.get_mut(sender) {
            sender.quantum = quantum(share);
            sender.rates = Rates::new(share, now_ns);
        }
    }

    /// Number of senders: calls of [`next`](Self::next) for a full round.
    pub fn len(&self) -> usize {
        self.senders.len()
    }

    /// Returns `true` if there is no sender.
    pub fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Examines the next sender. Returns the ring that may send a burst, by the number that
    /// [`add`](Self::add) was given, or `None` if the sender may not send. Call
    /// [`took`](Self::took) after a turn.
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> Option<u32> {
        let sender = self.senders.get_mut(self.at)?;
        if !self.entered {
            self.entered = true;
            sender.empty = 0;
            sender.credit = (sender.credit + sender.quantum * self.passes).min(sender.quantum);
            if let Some(rates) = &mut sender.rates {
                rates.enter(now_ns);
            }
        }
        let mut owed = false;
        if let Some(rates) = &mut sender.rates {
            match rates.ask(now_ns) {
                Leave::Burst { owed: more } => owed = more,
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
        if sender.rings == 0 {
            self.leave();
            return None;
        }
        self.rings.get((sender.first + sender.next) as usize).copied()
    }

    /// Ends the turn that [`next`](Self::next) gave: bytes taken, cycles that they cost, and `true`
    /// if the ring has more.
    #[inline]
    pub fn took(&mut self, bytes: u64, cycles: u64, more: bool) {
        let Some(sender) = self.senders.get_mut(self.at) else { return };
        self.served |= bytes > 0;
        let charged = cycles.min(i64::MAX as u64) as i64;
        sender.credit = forgiving(sender.credit, charged, charged);
        let owed = sender.rates.as_mut().is_some_and(|rates| rates.charge(bytes, cycles));
        // A ring that has more but yields nothing counts as empty, or the visit would never end.
        sender.empty = if more && bytes > 0 { 0 } else { sender.empty + 1 };
        sender.next += 1;
        if sender.next >= sender.rings {
            sender.next = 0;
        }
        let is_empty = sender.empty >= sender.rings;
        if is_empty && let Some(rates) = &mut sender.rates {
            rates.spill();
        }
        if is_empty || (sender.credit <= 0 && !owed) {
            self.leave();
        }
    }

    /// Returns `true` if the last whole pass found nothing to send and no debt. Then nothing is due
    /// before [`wake_ns`](Self::wake_ns), except for newly posted frames.
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Earliest time at which a resting sender may send again, ns; `None` if none rests. A sleeping
    /// lane must wake then.
    pub fn wake_ns(&self) -> Option<u64> {
        let [now, before] = self.wake_ns;
        Some(now.min(before)).filter(|ready_ns| *ready_ns != u64::MAX)
    }

    /// Moves to the next sender.
    #[inline]
    fn leave(&mut self) {
        if let Some(sender) = self.senders.get_mut(self.at) {
            if sender.credit < sender.quantum {
                self.contenders += 1;
                self.contender = self.at;
            }
            sender.credit = sender.credit.min(0);
        }
        self.entered = false;
        self.at += 1;
        if self.at >= self.senders.len() {
            self.at = 0;
            let only_debts = !self.served && self.fewest != i64::MAX;
            self.passes = if only_debts { self.fewest } else { 1 };
            if self.contenders == 1
                && let Some(sender) = self.senders.get_mut(self.contender)
            {
                sender.credit = 0;
            }
            self.contenders = 0;
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

//! Quarantine of ports whose guest memory stalled a lane.
//!
//! # Model
//! A lane that touches a guest's memory can stall on a page fault, for as long as the front-end
//! likes ([`host::stall`]). The first stall cannot be prevented, but a repetition can. The port
//! is taken off the lanes at once, and the quarantine lane, which may stall, serves it. The port
//! returns after a quiet time: [`QUIET_MIN`], doubled after each return up to [`QUIET_MAX`]. A
//! stall in quarantine restarts the quiet time.
//!
//! While a lane copies a frame, the fault may be in the sender's memory or in the receiver's. Then
//! both go into quarantine. The quiet time grows for the port that stalled lanes together with
//! several others, or for both if neither did. In quarantine the two are told apart: frames of a
//! sender are copied out first ([`port::bounce`]). An innocent guest is served there too, only
//! slower.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use host::stall::{Stall, StallReport};

use crate::lane::queue_list::{QueueList, TxRing};
use crate::lane::wake::Wake;
use crate::port::Port;
use crate::soft_nic::SoftNic;

/// Quiet time after which a port returns, the first time.
const QUIET_MIN: Duration = Duration::from_secs(1);
/// Maximum quiet time.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// Time after the last stall that resets the quiet time.
const FORGET: Duration = Duration::from_secs(600);
/// Maximum number of pending events; later ones are dropped.
const NEWS_MAX: usize = 64;

/// Event for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineNews {
    /// A port was taken off the lanes.
    Begun {
        /// Port name.
        port: String,
        /// Lane that its memory stalled.
        lane: String,
        /// The other port of the copy, if the fault may have been in its memory.
        other: Option<String>,
        /// Quiet time after which it returns.
        quiet: Duration,
    },
    /// End of the burst that a port was taken off for.
    Stood {
        /// The lane.
        lane: String,
        /// Duration of the stall.
        stood: Duration,
    },
    /// A port came back to its lanes.
    Ended {
        /// Port name.
        port: String,
    },
}

/// State of a port.
#[derive(Debug)]
struct Record {
    nic: Arc<SoftNic>,
    port: Arc<Port>,
    /// Number of quarantines that count for the quiet time.
    level: u32,
    /// Time of its last stall.
    last: Option<Instant>,
    /// The other port of the last stall with two possible ports; 0 for none.
    partner: u32,
    /// Time of its return, while it is off the lanes.
    until: Option<Instant>,
    quiet: Duration,
}

impl Record {
    /// Records a stall; returns `true` if the port must be taken off the lanes.
    fn charge(&mut self, grows: bool, now: Instant) -> bool {
        if self.last.is_none_or(|last| now.duration_since(last) > FORGET) {
            self.level = 0;
        }
        self.last = Some(now);
        let begins = self.until.is_none();
        if begins {
            let doublings = self.level.min(16); // far beyond the maximum
            self.quiet = match grows {
                true => (QUIET_MIN * (1 << doublings)).min(QUIET_MAX),
                false => QUIET_MIN,
            };
            self.level += u32::from(grows);
        }
        self.until = Some(now + self.quiet);
        begins
    }
}

#[derive(Debug, Default)]
struct List {
    /// By [`Port::id`].
    records: BTreeMap<u32, Record>,
    /// Current stalls by lane: the ports charged.
    open: BTreeMap<String, Vec<u32>>,
    news: VecDeque<QuarantineNews>,
}

impl List {
    fn tell(&mut self, news: QuarantineNews) {
        if self.news.len() < NEWS_MAX {
            self.news.push_back(news);
        }
    }

    /// Ports that a stall is charged to, each with `true` if its quiet time grows.
    fn charges(&mut self, stall: Stall, in_quarantine: bool) -> Vec<(u32, bool)> {
        let records = &self.records;
        let known = |id: &u32| records.get(id).is_some_and(|record| record.port.touches_guest());
        let (source, target) = (stall.source.filter(known), stall.target.filter(known));
        match (source, target) {
            // The quarantine lane does not touch the source once it touches the target.
            (_, Some(target)) if in_quarantine => vec![(target, true)],
            (Some(source), Some(target)) if source != target => {
                let several = [(source, target), (target, source)].map(|(id, partner)| {
                    let record = self.records.get_mut(&id).expect("it is known");
                    let former = std::mem::replace(&mut record.partner, partner);
                    former != 0 && former != partner
                });
                let neither = several == [false; 2];
                vec![(source, several[0] || neither), (target, several[1] || neither)]
            }
            (source, target) => source.or(target).map(|port| (port, true)).into_iter().collect(),
        }
    }
}

/// Quarantine state of all ports of a fabric.
#[derive(Debug)]
pub(crate) struct Quarantine {
    /// Wakes the quarantine lane.
    wake: Arc<Wake>,
    queue_list: Arc<QueueList>,
    list: Mutex<List>,
}

impl Quarantine {
    pub(crate) fn new(wake: Arc<Wake>, queue_list: Arc<QueueList>) -> Quarantine {
        Quarantine { wake, queue_list, list: Mutex::default() }
    }

    /// Only the quarantine lane takes a ring's lock under this one.
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, nic: Arc<SoftNic>, port: Arc<Port>) {
        let id = port.id;
        let (level, last, partner, until) = (0, None, 0, None);
        let record = Record { nic, port, level, last, partner, until, quiet: QUIET_MIN };
        self.list().records.insert(id, record);
    }

    /// Forgets a port that is removed.
    pub(crate) fn remove(&self, port: &Arc<Port>) {
        self.list().records.remove(&port.id);
        self.queue_list.remove(port);
    }

    /// Up to `most` events, the oldest first; the rest waits.
    pub(crate) fn take_news(&self, most: usize) -> Vec<QuarantineNews> {
        let news = &mut self.list().news;
        news.drain(..most.min(news.len())).collect()
    }

    /// Records a stall: takes the ports whose memory the lane touches off the lanes.
    pub(crate) fn charge(&self, lane: &str, stall: Stall, in_quarantine: bool, now: Instant) {
        let mut list = self.list();
        let charges = list.charges(stall, in_quarantine);
        let labels: Vec<String> =
            charges.iter().map(|(id, _)| list.records[id].port.label.clone()).collect();
        for (i, (id, grows)) in charges.iter().enumerate() {
            let record = list.records.get_mut(id).expect("it is known");
            if !record.charge(*grows, now) {
                continue;
            }
            let (nic, port, quiet) = (record.nic.clone(), record.port.clone(), record.quiet);
            port.take_off_lanes();
            port.count_quarantine();
            for pair in 0..port.pairs() {
                self.queue_list.add(TxRing { nic: nic.clone(), port: port.clone(), pair });
            }
            let other = labels.iter().enumerate().find(|(other, _)| *other != i);
            list.tell(QuarantineNews::Begun {
                port: labels[i].clone(),
                lane: lane.to_owned(),
                other: other.map(|(_, label)| label.clone()),
                quiet,
            });
        }
        list.open.insert(lane.to_owned(), charges.into_iter().map(|(id, _)| id).collect());
        drop(list);
        self.wake.wake();
    }

    /// Ends a stall: quiet times begin.
    pub(crate) fn end_stall(&self, lane: &str, stood: Duration, in_quarantine: bool, now: Instant) {
        let mut list = self.list();
        let charged = list.open.remove(lane).unwrap_or_default();
        if charged.is_empty() {
            return;
        }
        for id in &charged {
            if let Some(record) = list.records.get_mut(id)
                && record.until.is_some()
            {
                record.until = Some(now + record.quiet);
            }
        }
        if !in_quarantine {
            list.tell(QuarantineNews::Stood { lane: lane.to_owned(), stood });
        }
    }

    /// Ends all quiet times, and waits until the ports are back.
    #[cfg(test)]
    pub(crate) fn release_all(&self) {
        let off = |record: &Record| record.until.is_some();
        loop {
            let mut list = self.list();
            let now = Instant::now();
            list.records.values_mut().filter(|it| off(it)).for_each(|it| it.until = Some(now));
            if !list.records.values().any(off) {
                return;
            }
            drop(list);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns the ports that the quarantine lane serves, between two bursts. Puts ports whose
    /// quiet time is over back on their lanes.
    pub(crate) fn turn(&self, now: Instant) -> Vec<Arc<Port>> {
        let mut list = self.list();
        let mut served = Vec::new();
        let mut news = Vec::new();
        let List { records, open, .. } = &mut *list;
        for (id, record) in records {
            let Some(until) = record.until else { continue };
            let stands = open.values().flatten().any(|other| other == id);
            if now >= until && !stands && record.port.put_on_lanes() {
                record.until = None;
                self.queue_list.remove(&record.port);
                news.push(QuarantineNews::Ended { port: record.port.label.clone() });
            } else {
                record.port.take_off_lanes();
                served.push(record.port.clone());
            }
        }
        news.into_iter().for_each(|news| list.tell(news));
        served
    }
}

/// Stall reports of one lane.
#[derive(Debug)]
pub(crate) struct LaneReport {
    pub(crate) quarantine: Arc<Quarantine>,
    /// The lane's name.
    pub(crate) lane: String,
    /// The lane is the quarantine lane.
    pub(crate) in_quarantine: bool,
}

impl StallReport for LaneReport {
    fn began(&self, stall: Stall) {
        self.quarantine.charge(&self.lane, stall, self.in_quarantine, Instant::now());
    }

    fn ended(&self, _stall: Stall, stood: Duration) {
        let LaneReport { quarantine, lane, in_quarantine } = self;
        quarantine.end_stall(lane, stood, *in_quarantine, Instant::now());
    }
}

//! State of a switch: learned addresses, and meters.
//!
//! Model: lanes share both through `&self`. Look-ups and known addresses take no lock. New
//! addresses, ageing and flushing take a mutex, on which no lane ever waits: an address that cannot
//! be learned now is learned from a later frame.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use wire::Mac;

use crate::PortId;
use crate::switch::MAX_PORTS;
use crate::switch::bins::{Bins, CAPACITY_MAX, CAPACITY_MIN, Found, View, key};
use crate::switch::meter::Meters;

/// State that outlives a [`Table`](crate::switch::Table); shared by the lanes.
#[derive(Debug)]
pub struct State {
    /// The learned addresses.
    pub fdb: Fdb,
    pub(crate) meters: Meters,
}

impl State {
    /// Makes a state without meter charges.
    pub fn new(fdb: Fdb) -> Self {
        Self { fdb, meters: Meters::new() }
    }

    /// A copy for a trace: learning and charging there changes nothing here. Others may learn
    /// meanwhile; each address is copied whole, or not at all.
    pub fn copy(&self) -> Self {
        Self { fdb: self.fdb.copy(), meters: self.meters.copy() }
    }
}

/// Forwarding database: the port of each learned address of each VLAN.
///
/// An address is removed by the fourth [`tick`](Self::tick) after its last frame, so call it every
/// quarter of the ageing time. A change of a port's VLANs needs no update: an entry whose port is
/// not a member of its VLAN counts as unknown. [`flush`](Self::flush) frees its slot.
#[derive(Debug)]
pub struct Fdb {
    bins: Bins,
    /// Number of addresses of each port.
    of_port: Box<[AtomicU32]>,
    count: AtomicU32,
    writer: Mutex<()>,
}

/// Invalid capacity of an [`Fdb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capacity: {0} addresses; allowed are 1 to {CAPACITY_MAX}")]
pub struct CapacityError(pub usize);

/// An address as it was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub mac: Mac,
    /// Its VLAN, 0 for the untagged network.
    pub vid: u16,
    /// The port it is behind.
    pub port: PortId,
    /// Ticks since a frame came from it, at most 3.
    pub ticks: u8,
}

/// Selects the entries to flush: those that match all fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Behind this port.
    pub port: Option<PortId>,
    /// In this VLAN.
    pub vid: Option<u16>,
}

/// Result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// The address is new, or has moved here.
    Changed,
    /// The address is already here, or cannot be learned now.
    Unchanged,
    /// The port has its maximum number of addresses.
    Limit,
}

impl Fdb {
    /// Makes an empty database for `capacity` addresses, rounded up to a power of two of at least
    /// 1024, at 32 bytes each. Without the seed an attacker cannot choose colliding addresses.
    ///
    /// # Errors
    /// No address, or more than 65536.
    pub fn new(capacity: usize, seed: u64) -> Result<Self, CapacityError> {
        if capacity == 0 || capacity > CAPACITY_MAX {
            return Err(CapacityError(capacity));
        }
        Ok(Self {
            bins: Bins::new(capacity.max(CAPACITY_MIN), seed),
            of_port: (0..MAX_PORTS).map(|_| AtomicU32::new(0)).collect(),
            count: AtomicU32::new(0),
            writer: Mutex::new(()),
        })
    }

    /// A copy of all addresses. Takes no lock: a lane that finds it held does not learn.
    fn copy(&self) -> Self {
        Self {
            bins: self.bins.copy(),
            of_port: self.of_port.iter().map(|count| count.load(Relaxed).into()).collect(),
            count: self.count.load(Relaxed).into(),
            writer: Mutex::new(()),
        }
    }

    /// Capacity in addresses.
    pub fn capacity(&self) -> usize {
        self.bins.capacity()
    }

    /// Number of known addresses.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed) as usize
    }

    /// Returns `true` if no address is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of addresses behind a port.
    pub fn len_of(&self, port: PortId) -> usize {
        self.of_port.get(port.index()).map_or(0, |count| count.load(Relaxed) as usize)
    }

    /// Port at which an address was last seen.
    pub fn get(&self, mac: Mac, vid: u16) -> Option<PortId> {
        self.look_up(key(mac.key(), vid))
    }

    /// All addresses, unordered; others may learn and forget meanwhile.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.bins.iter().map(|(key, found)| Entry {
            mac: Mac::from_key(key),
            vid: (key >> 48) as u16,
            port: found.port(),
            ticks: 3 - found.age() as u8,
        })
    }

    /// Restores an entry of another table, unless the address is known or there is no room; returns
    /// `true` if it is known now.
    pub fn recall(&self, entry: Entry) -> bool {
        let Entry { mac, vid, port, ticks } = entry;
        let key = key(mac.key(), vid);
        if self.bins.find(key).is_none() {
            self.learn(key, port, u32::MAX);
            let _writer = self.write();
            for _ in 0..ticks.min(3) {
                if let Some(found) = self.bins.find(key).filter(|found| found.age() > 0) {
                    self.bins.grow_older(found);
                }
            }
        }
        self.look_up(key).is_some()
    }

    /// Ages every address by one step and removes those that are too old; returns their number.
    pub fn tick(&self) -> usize {
        let _writer = self.write();
        let mut forgotten = 0;
        for (_, found) in self.bins.iter() {
            if found.age() == 0 {
                self.forget(found);
                forgotten += 1;
            } else {
                self.bins.grow_older(found);
            }
        }
        forgotten
    }

    /// Removes addresses; returns their number.
    pub fn flush(&self, which: Flush) -> usize {
        let _writer = self.write();
        let mut forgotten = 0;
        for (key, found) in self.bins.iter() {
            let port = which.port.is_none_or(|port| port == found.port());
            if port && which.vid.is_none_or(|vid| u64::from(vid) == key >> 48) {
                self.forget(found);
                forgotten += 1;
            }
        }
        forgotten
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        self.bins.view()
    }

    pub(crate) fn look_up(&self, key: u64) -> Option<PortId> {
        self.bins.find(key).map(Found::port)
    }

    /// Records that an address was seen at a port; returns `true` if it is known to be there.
    pub(crate) fn seen(&self, key: u64, port: PortId) -> bool {
        let Some(found) = self.bins.find(key).filter(|found| found.port() == port) else {
            return false;
        };
        self.bins.refresh(found);
        true
    }

    /// Returns `true` if a port has its maximum number of addresses.
    pub(crate) fn at_limit(&self, port: PortId, limit: u32) -> bool {
        self.len_of(port) >= limit as usize
    }

    /// Learns an address of a port of the switch.
    pub(crate) fn learn(&self, key: u64, port: PortId, limit: u32) -> Learned {
        let _writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Learned::Unchanged,
        };
        let there = self.bins.find(key);
        match there {
            Some(found) if found.port() == port => return Learned::Unchanged,
            _ if self.at_limit(port, limit) => return Learned::Limit,
            Some(found) => {
                self.count_of(found.port(), -1);
                self.bins.set_port(found, port);
            }
            None if self.len() >= self.capacity() || !self.bins.insert(key, port) => {
                return Learned::Unchanged;
            }
            None => {
                self.count.fetch_add(1, Relaxed);
            }
        }
        self.count_of(port, 1);
        Learned::Changed
    }

    /// Removes an entry; the caller is the writer.
    fn forget(&self, found: Found) {
        self.bins.remove(found);
        self.count_of(found.port(), -1);
        self.count.fetch_sub(1, Relaxed);
    }

    fn count_of(&self, port: PortId, change: i32) {
        if let Some(count) = self.of_port.get(port.index()) {
            count.fetch_add(change as u32, Relaxed); // wraps: adding 2^32 - 1 takes one off
        }
    }

    /// The guarded state is consistent after every step, so a poisoned mutex is usable.
    fn write(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_table_knows_what_this_one_knew_and_forgets_it_as_soon() {
        let (old, new) = (Fdb::new(4096, 1).unwrap(), Fdb::new(4096, 2).unwrap());
        for n in 0..2000_u16 {
            let [a, b] = n.to_be_bytes();
            old.learn(key(Mac([2, 0, 0, 0, a, b]).key(), n % 5), PortId(1 + n % 3), u32::MAX);
            if n == 1000 {
                old.tick();
            }
        }
        let sorted = |fdb: &Fdb| {
            let mut all: Vec<_> =
                fdb.entries().map(|it| (it.mac, it.vid, it.port, it.ticks)).collect();
            all.sort();
            all
        };
        assert!(old.entries().all(|entry| new.recall(entry)));
        assert_eq!(sorted(&new), sorted(&old));
        assert_eq!((new.len(), new.len_of(PortId(2))), (old.len(), old.len_of(PortId(2))));
        // Its own knowledge is newer.
        let entry = old.entries().next().unwrap();
        assert!(new.recall(Entry { port: PortId(9), ..entry }));
        assert_eq!(new.get(entry.mac, entry.vid), Some(entry.port));
        for _ in 0..4 {
            assert_eq!(new.tick(), old.tick());
        }
        assert!(new.is_empty());
    }
}

//! Forwarding database: the peer behind which each address was last seen.
//!
//! Model: a set-associative table. A hash of the address selects the set. A new address takes a
//! free or aged entry, else the one idle for longest. So nothing grows, and a flood of addresses at
//! worst sends frames to every peer.
//!
//! Time is a parameter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::Mac;

/// Time for which an address is kept after its last frame, as in bridges.
pub const AGE_MAX: Duration = Duration::from_secs(300);
/// Maximum number of addresses of a network.
pub const ADDRESSES_MAX: usize = SETS * WAYS;

const SETS: usize = 2048;
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    mac: [u8; 6],
    peer: u16,
    /// Time of the last frame, seconds, counted from 1; 0: free.
    seen: u32,
}

/// Addresses of a network.
#[derive(Debug)]
pub(super) struct VxlanFdb {
    begin: Instant,
    sets: Box<[[Entry; WAYS]]>,
}

/// Forwarding database shared by both halves and control.
pub(super) type SharedFdb = Arc<Mutex<VxlanFdb>>;

/// Locks a forwarding database.
pub(super) fn lock(table: &SharedFdb) -> MutexGuard<'_, VxlanFdb> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VxlanFdb {
    /// Makes an empty table.
    pub(super) fn new(begin: Instant) -> VxlanFdb {
        VxlanFdb { begin, sets: vec![[Entry::default(); WAYS]; SETS].into() }
    }

    /// Converts to the table's seconds.
    fn seconds(&self, now: Instant) -> u32 {
        1 + now.saturating_duration_since(self.begin).as_secs() as u32
    }

    /// Records that the address was seen behind a peer.
    pub(super) fn learn(&mut self, mac: Mac, peer: u16, now: Instant) {
        let seen = self.seconds(now);
        if mac.is_multicast() || mac.is_zero() {
            return; // not a unicast address
        }
        let set = &mut self.sets[set_of(mac)];
        let known = set.iter().position(|entry| entry.seen != 0 && entry.mac == mac.0);
        let entry = match known {
            Some(index) => Some(&mut set[index]),
            None => set.iter_mut().min_by_key(|entry| entry.seen),
        };
        if let Some(entry) = entry {
            *entry = Entry { mac: mac.0, peer, seen };
        }
    }

    /// All entries: address, peer, and seconds since the last frame.
    pub(super) fn all(&self, now: Instant) -> impl Iterator<Item = (Mac, u16, u32)> {
        let now = self.seconds(now);
        let known = self.sets.iter().flatten().filter(|entry| entry.seen != 0);
        known.map(move |entry| (Mac(entry.mac), entry.peer, now.saturating_sub(entry.seen)))
    }

    /// Peer behind which the address was last seen, unless aged.
    pub(super) fn find(&self, mac: Mac, now: Instant) -> Option<u16> {
        let now = self.seconds(now);
        let known =
            self.sets[set_of(mac)].iter().find(|entry| entry.seen != 0 && entry.mac == mac.0);
        known
            .filter(|entry| u64::from(now.saturating_sub(entry.seen)) <= AGE_MAX.as_secs())
            .map(|entry| entry.peer)
    }
}

fn set_of(mac: Mac) -> usize {
    let [a, b, c, d, e, f] = mac.0;
    let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    // Fibonacci hashing: the upper bits of the product depend on all bits of the number.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    #[test]
    fn an_address_is_where_it_was_seen_last() {
        let now = Instant::now();
        let mut fdb = VxlanFdb::new(now);
        assert_eq!(fdb.find(mac(1), now), None);
        fdb.learn(mac(1), 3, now);
        fdb.learn(mac(2), 4, now);
        assert_eq!(fdb.find(mac(1), now), Some(3));
        fdb.learn(mac(1), 5, now);
        assert_eq!((fdb.find(mac(1), now), fdb.find(mac(2), now)), (Some(5), Some(4)));
    }

    #[test]
    fn it_is_forgotten_after_a_while_unless_it_is_seen_again() {
        let begin = Instant::now();
        let mut fdb = VxlanFdb::new(begin);
        fdb.learn(mac(1), 3, begin);
        fdb.learn(mac(2), 3, begin);
        let later = begin + AGE_MAX;
        assert_eq!(fdb.find(mac(1), later), Some(3));
        fdb.learn(mac(2), 3, later);
        let after = later + Duration::from_secs(1);
        assert_eq!((fdb.find(mac(1), after), fdb.find(mac(2), after)), (None, Some(3)));
    }

    #[test]
    fn groups_and_nobody_are_not_learnt() {
        let now = Instant::now();
        let mut fdb = VxlanFdb::new(now);
        for mac in [Mac([0xff; 6]), Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0; 6])] {
            fdb.learn(mac, 1, now);
            assert_eq!(fdb.find(mac, now), None, "{mac}");
        }
    }

    #[test]
    fn most_of_many_are_known_and_the_oldest_give_way() {
        let now = Instant::now();
        let mut fdb = VxlanFdb::new(now);
        (0..ADDRESSES_MAX as u32 / 4).for_each(|i| fdb.learn(mac(i), 1, now));
        let known = (0..ADDRESSES_MAX as u32 / 4).filter(|i| fdb.find(mac(*i), now).is_some());
        assert!(known.count() > ADDRESSES_MAX / 5);
        // A later flood does not keep new addresses from being learned.
        let later = now + Duration::from_secs(1);
        (0..10 * ADDRESSES_MAX as u32).for_each(|i| fdb.learn(mac(1 << 24 | i), 2, later));
        fdb.learn(mac(7), 3, later + Duration::from_secs(1));
        assert_eq!(fdb.find(mac(7), later), Some(3));
    }
}

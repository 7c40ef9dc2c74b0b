//! Where addresses are: behind which peer each was last seen.
//!
//! Model: sets of a few places; an address has its place in one set, which a hash of it names. Who
//! comes new takes a free or aged place, or that of whoever was silent longest. So nothing grows,
//! and who floods the network with addresses makes frames go to every peer, no worse.
//!
//! Time is a parameter.

use std::time::{Duration, Instant};

use wire::Mac;

/// How long an address is known after its last frame, as bridges have it.
pub const AGE_MAX: Duration = Duration::from_secs(300);
/// Addresses that can be known of a network.
pub const ADDRESSES_MAX: usize = SETS * WAYS;

const SETS: usize = 2048;
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    mac: [u8; 6],
    peer: u16,
    /// Seconds, counted from 1; 0: free.
    seen: u32,
}

/// The addresses of a network.
#[derive(Debug)]
pub(super) struct Learned {
    begin: Instant,
    sets: Box<[[Entry; WAYS]]>,
}

impl Learned {
    /// Knows nothing yet.
    pub(super) fn new(begin: Instant) -> Learned {
        Learned { begin, sets: vec![[Entry::default(); WAYS]; SETS].into() }
    }

    /// The time in the table's own count.
    fn seconds(&self, now: Instant) -> u32 {
        1 + now.saturating_duration_since(self.begin).as_secs() as u32
    }

    /// The address was seen behind a peer.
    pub(super) fn learn(&mut self, mac: Mac, peer: u16, now: Instant) {
        let seen = self.seconds(now);
        if mac.is_multicast() || mac.is_zero() {
            return; // nobody's address
        }
        let set = &mut self.sets[set_of(mac)];
        let place = match set.iter().position(|entry| entry.seen != 0 && entry.mac == mac.0) {
            Some(place) => Some(&mut set[place]),
            None => set.iter_mut().min_by_key(|entry| entry.seen),
        };
        if let Some(place) = place {
            *place = Entry { mac: mac.0, peer, seen };
        }
    }

    /// All that are known: address, peer, and seconds since it was seen.
    pub(super) fn all(&self, now: Instant) -> impl Iterator<Item = (Mac, u16, u32)> {
        let now = self.seconds(now);
        let known = self.sets.iter().flatten().filter(|entry| entry.seen != 0);
        known.map(move |entry| (Mac(entry.mac), entry.peer, now.saturating_sub(entry.seen)))
    }

    /// Behind which peer the address was seen last, if it was not long ago.
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
    // Fibonacci hashing: the upper bits of the product depend on all of the number's.
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
        let mut learned = Learned::new(now);
        assert_eq!(learned.find(mac(1), now), None);
        learned.learn(mac(1), 3, now);
        learned.learn(mac(2), 4, now);
        assert_eq!(learned.find(mac(1), now), Some(3));
        learned.learn(mac(1), 5, now);
        assert_eq!((learned.find(mac(1), now), learned.find(mac(2), now)), (Some(5), Some(4)));
    }

    #[test]
    fn it_is_forgotten_after_a_while_unless_it_is_seen_again() {
        let begin = Instant::now();
        let mut learned = Learned::new(begin);
        learned.learn(mac(1), 3, begin);
        learned.learn(mac(2), 3, begin);
        let later = begin + AGE_MAX;
        assert_eq!(learned.find(mac(1), later), Some(3));
        learned.learn(mac(2), 3, later);
        let after = later + Duration::from_secs(1);
        assert_eq!((learned.find(mac(1), after), learned.find(mac(2), after)), (None, Some(3)));
    }

    #[test]
    fn groups_and_nobody_are_not_learnt() {
        let now = Instant::now();
        let mut learned = Learned::new(now);
        for mac in [Mac([0xff; 6]), Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0; 6])] {
            learned.learn(mac, 1, now);
            assert_eq!(learned.find(mac, now), None, "{mac}");
        }
    }

    #[test]
    fn most_of_many_are_known_and_the_oldest_give_way() {
        let now = Instant::now();
        let mut learned = Learned::new(now);
        (0..ADDRESSES_MAX as u32 / 4).for_each(|i| learned.learn(mac(i), 1, now));
        let known = (0..ADDRESSES_MAX as u32 / 4).filter(|i| learned.find(mac(*i), now).is_some());
        assert!(known.count() > ADDRESSES_MAX / 5);
        // A flood later on does not keep who comes after it from being learnt.
        let later = now + Duration::from_secs(1);
        (0..10 * ADDRESSES_MAX as u32).for_each(|i| learned.learn(mac(1 << 24 | i), 2, later));
        learned.learn(mac(7), 3, later + Duration::from_secs(1));
        assert_eq!(learned.find(mac(7), later), Some(3));
    }
}

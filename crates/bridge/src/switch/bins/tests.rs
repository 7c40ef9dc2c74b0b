//! Full tables, crowded bins, and any steps against a hash map.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_full_table_holds_what_it_is_made_for() {
    for (capacity, seed) in [(0, 1), (1024, 2), (4096, 3), (65536, 4)] {
        let bins = Bins::new(capacity, seed);
        let mac = |n: u64| key(2 | n.swap_bytes() >> 16, (n % 3) as u16);
        let count = bins.capacity() as u64;
        let held = (0..count).filter(|n| bins.insert(mac(*n), PortId(*n as u16 % 512)));
        assert_eq!(held.count(), bins.capacity());
        let mut displaced = 0;
        for n in 0..count {
            let there = bins.find(mac(n)).unwrap();
            assert_eq!((there.port(), there.age()), (PortId(n as u16 % 512), 3));
            let first = bins.view().first(mac(n));
            displaced += usize::from(first >= FOUND);
            assert!(first >= FOUND || first == fresh(there.port()));
        }
        assert!(displaced < bins.capacity() / 50, "{displaced}");
        assert!((count..2 * count).all(|n| bins.find(mac(n)).is_none()));
    }
}

/// With any seed, keys that differ in a few bits in one place find room like random ones.
#[test]
fn counted_keys_do_not_crowd() {
    for seed in 0..300 {
        for shift in [0, 8, 24, 32, 33, 40, 48] {
            let bins = Bins::new(1024, seed);
            let count = 1024.min(1 << (KEY_BITS - shift));
            let key = |n: u64| n << shift & KEY_MASK | u64::from(shift != 0) << 1;
            assert!((0..count).all(|n| bins.insert(key(n), PortId(1))), "{seed}, {shift}");
            let away = (0..count).filter(|n| bins.view().first(key(*n)) >= FOUND).count();
            assert!(away < 40, "{seed}, {shift}: {away}");
        }
    }
}

#[test]
fn full_bins_refuse() {
    // As many keys of one home as fit into its bins, and one more.
    let bins = Bins::new(1024, 7);
    let of_home = |n: u64| bins.hash.unmix(1023 << bins.shift | n);
    let room = REACH * WAYS as u64;
    assert!((0..room).all(|n| bins.insert(of_home(n), PortId(n as u16))));
    assert!(!bins.insert(of_home(room), PortId(0)));
    assert!(!bins.insert_home(of_home(room), PortId(0)));
    for n in 0..room {
        assert_eq!(bins.find(of_home(n)).unwrap().port(), PortId(n as u16));
    }
    // Room in the middle is used again, and does not hide what is behind it.
    bins.remove(bins.find(of_home(5)).unwrap());
    assert!(bins.find(of_home(5)).is_none());
    assert!(bins.find(of_home(room - 1)).is_some());
    assert!(bins.insert(of_home(room), PortId(9)));
}

proptest! {
    #[test]
    fn hashes_can_be_undone(key in 0..=KEY_MASK, seed: u64) {
        let hash = Hash::new(seed);
        prop_assert!(hash.mix(key) <= KEY_MASK);
        prop_assert_eq!(hash.unmix(hash.mix(key)), key);
    }

    #[test]
    fn agrees_with_hash_map(
        // Few distinct bits make many near misses.
        steps in prop::collection::vec((0u64..64, 0u16..512, 0..4), 0..200), shift in 0u32..54, seed: u64,
    ) {
        let bins = Bins::new(1024, seed);
        let mut model = HashMap::new();
        for (key, port, step) in steps {
            let key = key << shift;
            let (there, port) = (bins.find(key), PortId(port));
            prop_assert_eq!(there.map(Found::port), model.get(&key).copied());
            match there {
                None => prop_assert!(bins.insert(key, port)),
                Some(found) if step == 0 => bins.remove(found),
                Some(found) => bins.set_port(found, port),
            }
            if there.is_some() && step == 0 {
                model.remove(&key);
            } else {
                model.insert(key, port);
            }
            for n in 0..64 {
                let first = bins.view().first(n << shift);
                if first < FOUND {
                    prop_assert_eq!(Some(&port_of(first)), model.get(&(n << shift)));
                }
            }
        }
        let all: HashMap<_, _> = bins.iter().map(|(key, found)| (key, found.port())).collect();
        prop_assert_eq!(all, model);
    }
}

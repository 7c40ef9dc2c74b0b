//! A late release never touches a VF that has a new owner.

use super::super::{NotOwner, Owners, Store};
use super::model::Disk;
use super::{apply, holders};

#[test]
fn an_old_token_is_refused_and_says_who_has_it_now() {
    let mut owners = Owners::default();
    assert!(owners.assign(&holders(1)));
    let old = owners.of("nic0/vf1").unwrap().token;
    assert_eq!(owners.check("nic0/vf1", old), Ok(()));
    assert!(!owners.assign(&holders(1)), "who stays keeps the token");
    assert_eq!(owners.check("nic0/vf1", old), Ok(()));

    assert!(owners.assign(&holders(2)));
    let refused = owners.check("nic0/vf1", old).unwrap_err();
    assert!(matches!(&refused, NotOwner::Another { holder, .. } if holder == "a2"), "{refused}");
    assert!(refused.to_string().contains("has the owner a2"), "{refused}");

    // The same adapter again is another tenancy: the release of the first is late all the same.
    assert!(owners.assign(&[].into()));
    assert!(matches!(owners.check("nic0/vf1", old), Err(NotOwner::NoOwner { .. })));
    assert!(owners.assign(&holders(1)));
    assert!(owners.check("nic0/vf1", old).is_err());
}

#[test]
fn tokens_are_never_given_twice_not_even_after_a_restart() {
    let disk = Disk::default();
    let mut seen = Vec::new();
    for number in 1..=20 {
        let (mut store, _) = Store::open(disk.clone()).unwrap();
        apply(&mut store, number).unwrap();
        seen.push(store.record().owners.of("nic0/vf1").unwrap().token);
        assert!(store.assign(&[].into()).unwrap());
        assert!(!store.assign(&[].into()).unwrap());
        disk.crash(0);
    }
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
}

//! A crash, or a failure, at every file operation of an apply.

use proptest::prelude::*;

use super::super::Store;
use super::model::Disk;
use super::{apply, number_of, numbered};

/// State of a store after a crash: its number, and the number of an apply to undo.
fn reopened(disk: &Disk) -> (Option<u8>, bool) {
    let (store, unfinished) = Store::open(disk.clone()).expect("a crash damages nothing");
    let number = number_of(&store);
    if let Some(unfinished) = &unfinished {
        assert_eq!(unfinished.attempted, numbered(number.unwrap_or(0) + 1));
    }
    (number, unfinished.is_some())
}

/// Number of file operations of an apply.
fn operations() -> usize {
    let disk = Disk::default();
    let (mut store, _) = Store::open(disk.clone()).unwrap();
    disk.fail_after(1000, true);
    apply(&mut store, 1).unwrap();
    disk.tried()
}

#[test]
fn an_apply_takes_ten_operations() {
    assert_eq!(
        operations(),
        10,
        "journal: write, sync, rename, sync; record: the same; remove, sync"
    );
}

#[test]
fn an_apply_that_nothing_disturbs_is_there_afterwards() {
    let disk = Disk::default();
    let (mut store, unfinished) = Store::open(disk.clone()).unwrap();
    assert_eq!((number_of(&store), unfinished), (None, None));
    for number in 1..=3 {
        apply(&mut store, number).unwrap();
        disk.crash(0); // loses everything that was not synchronised
        assert_eq!(reopened(&disk), (Some(number), false));
    }
    assert_eq!(store.record().generation, 3);
}

/// Every operation, with nothing, everything and half of what is uncertain lost: the first apply,
/// and a later one.
#[test]
fn after_a_crash_at_any_operation_the_state_is_the_old_or_the_new_one() {
    let mut outcomes = std::collections::BTreeSet::new();
    for old in [None, Some(1)] {
        for at in 0..operations() {
            for luck in [0, u64::MAX, 0x80_5555_5555, 0x80_aaaa_aaaa, 0xff_0000_0000] {
                let disk = Disk::default();
                let (mut store, _) = Store::open(disk.clone()).unwrap();
                if let Some(old) = old {
                    apply(&mut store, old).unwrap();
                }
                disk.fail_after(at, true);
                let new = old.unwrap_or(0) + 1;
                let told = apply(&mut store, new);
                disk.crash(luck);
                let (number, undo) = reopened(&disk);
                assert!(number == old || number == Some(new), "operation {at}: {number:?}");
                assert!(
                    told.is_err() || number == Some(new),
                    "operation {at}: told done, and gone"
                );
                assert!(
                    !undo || number == old,
                    "operation {at}: an apply that is done is not undone"
                );
                outcomes.insert((number == old, undo));
            }
        }
    }
    let all = [(false, false), (true, false), (true, true)];
    assert!(outcomes.into_iter().eq(all), "finished, never begun, and begun: each was met");
}

#[test]
fn a_crash_while_undoing_is_met_again_and_abandoning_ends_it() {
    let disk = Disk::default();
    let (mut store, _) = Store::open(disk.clone()).unwrap();
    store.begin(&numbered(1)).unwrap();
    for _ in 0..3 {
        disk.crash(0);
        assert_eq!(reopened(&disk), (None, true));
    }
    let (store, _) = Store::open(disk.clone()).unwrap();
    store.abandon().unwrap();
    disk.crash(0);
    assert_eq!(reopened(&disk), (None, false));
}

/// A disk that is full for a moment: what was told as failed has not happened, and the next apply
/// works.
#[test]
fn after_a_failure_at_any_operation_the_store_goes_on() {
    for at in 0..operations() {
        let disk = Disk::default();
        let (mut store, _) = Store::open(disk.clone()).unwrap();
        apply(&mut store, 1).unwrap();
        disk.fail_after(at, false);
        let told = apply(&mut store, 2);
        // Only the journal's removal may fail unnoticed: its apply is done.
        assert_eq!(told.is_ok(), at >= 8, "operation {at}");
        let expected = if told.is_ok() { 2 } else { 1 };
        assert_eq!(number_of(&store), Some(expected));
        if let Err(error) = told {
            let told = error.to_string();
            assert!(told.contains("DIR/") && told.contains("try again"), "{told}");
        }
        apply(&mut store, 3).unwrap();
        disk.crash(0);
        assert_eq!(reopened(&disk), (Some(3), false), "operation {at}");
    }
}

/// The nastiest order: the record's rename may have happened, its confirmation failed, another
/// apply begins and the power goes.
#[test]
fn a_state_that_was_told_as_failed_does_not_come_back_with_the_next_apply() {
    for at in 4..8 {
        for crash_at in 0..12 {
            for luck in [0, u64::MAX] {
                let disk = Disk::default();
                let (mut store, _) = Store::open(disk.clone()).unwrap();
                apply(&mut store, 1).unwrap();
                disk.fail_after(at, false);
                apply(&mut store, 2).unwrap_err();
                // Begin heals the doubt with four operations before it writes its journal.
                disk.fail_after(crash_at, true);
                let begun = store.begin(&numbered(2)).is_ok();
                disk.crash(luck);
                let (store, _) = Store::open(disk.clone()).unwrap();
                let number = number_of(&store);
                if begun {
                    assert_eq!(number, Some(1), "failure at {at}, crash at {crash_at}");
                } else {
                    assert!(matches!(number, Some(1 | 2)), "failure at {at}, crash at {crash_at}");
                }
            }
        }
    }
}

proptest! {
    /// Any number of applies, each disturbed anywhere in any way.
    #[test]
    fn histories_of_crashes(history in prop::collection::vec((0usize..14, any::<u64>(), any::<bool>()), 1..12)) {
        let disk = Disk::default();
        let mut there = None;
        for (at, luck, crash) in history {
            let (mut store, _) = Store::open(disk.clone()).expect("a crash damages nothing");
            prop_assert_eq!(number_of(&store), there);
            let new = there.unwrap_or(0) + 1;
            disk.fail_after(at, crash);
            let told = apply(&mut store, new);
            disk.crash(luck);
            let (store, _) = Store::open(disk.clone()).expect("a crash damages nothing");
            let number = number_of(&store);
            prop_assert!(number == there || number == Some(new));
            prop_assert!(told.is_err() || number == Some(new));
            there = number;
        }
    }
}

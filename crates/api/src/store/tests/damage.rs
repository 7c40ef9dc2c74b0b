//! Files that are not as they were written, and a directory that is not ours.

use std::os::unix::fs::PermissionsExt;

use super::super::{Directory, Files, Store, StoreError};
use super::model::Disk;
use super::{apply, number_of};
use crate::guests::Overlay;

/// A disk with what one apply stored.
fn stored() -> Disk {
    let disk = Disk::default();
    let (mut store, _) = Store::open(disk.clone()).unwrap();
    apply(&mut store, 1).unwrap();
    disk
}

/// Error of a store whose file has these bytes.
fn told(name: &str, bytes: &[u8]) -> String {
    let disk = stored();
    disk.data_plane(name, bytes);
    Store::open(disk).map(|_| ()).unwrap_err().to_string()
}

/// Bytes that are no file of ours, and why.
const DAMAGED: [(&[u8], &str); 5] = [
    (b"", "is not JSON"),
    (b"\0\0\0\0", "is not JSON"),
    (b"{}", "has no version"),
    (br#"{"version":1,"checksum":"0","content":{}}"#, "checksum does not match"),
    (br#"{"version":1,"checksum":"08f44b07b5901a25","content":{}}"#, "unexpected form"),
];

#[test]
fn damaged_files_are_told_with_the_remedy() {
    for (bytes, why) in DAMAGED {
        let told = told("state.json", bytes);
        let start = "DIR/state.json is damaged: it";
        assert!(told.starts_with(start) || told.contains("checksum"), "{told}");
        assert!(told.contains(why) && told.contains("restore it from a copy"), "{told}");
    }
}

#[test]
fn a_damaged_journal_is_set_aside_and_the_record_holds() {
    for (bytes, why) in DAMAGED {
        let disk = stored();
        disk.data_plane("journal.json.damaged", b"an earlier one");
        disk.data_plane("journal.json", bytes);
        disk.crash(0);
        let (mut store, unfinished) = Store::open(disk.clone()).unwrap();
        assert_eq!((number_of(&store), unfinished), (Some(1), None));
        let told = store.set_aside()[0].clone();
        for part in
            ["DIR/journal.json is", why, "DIR/journal.json.damaged", "DIR/state.json, generation 1"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(disk.read("journal.json.damaged").unwrap().unwrap(), bytes, "the last one");
        disk.crash(0);
        let (again, unfinished) = Store::open(disk.clone()).unwrap();
        assert_eq!((again.set_aside().len(), unfinished), (0, None), "it is told once");
        apply(&mut store, 2).unwrap();
        disk.crash(0);
        assert_eq!(number_of(&Store::open(disk).unwrap().0), Some(2));
    }
}

#[test]
fn damaged_settings_of_guests_are_set_aside_and_the_record_holds() {
    // The last one is a good file here: no settings.
    for (bytes, why) in &DAMAGED[..4] {
        let disk = stored();
        disk.data_plane("guests.json", bytes);
        let (mut store, _) = Store::open(disk.clone()).unwrap();
        assert_eq!(store.guests::<Overlay>().unwrap(), Overlay::default());
        let told = store.set_aside()[0].clone();
        for part in ["DIR/guests.json is", why, "DIR/guests.json.damaged"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(disk.read("guests.json.damaged").unwrap().unwrap(), *bytes);
        let (mut again, _) = Store::open(disk).unwrap();
        assert_eq!(again.guests::<Overlay>().unwrap(), Overlay::default());
        assert!(again.set_aside().is_empty(), "it is told once");
        assert_eq!(number_of(&again), Some(1));
    }
}

/// Each step of setting it aside may be the last one, or fail.
#[test]
fn a_crash_while_a_journal_is_set_aside_is_met_again() {
    for at in 0..2 {
        for luck in [0, u64::MAX] {
            let disk = stored();
            disk.data_plane("journal.json", b"{");
            disk.fail_after(at, true);
            Store::open(disk.clone()).map(|_| ()).unwrap_err();
            disk.crash(luck);
            let (store, unfinished) = Store::open(disk.clone()).unwrap();
            assert_eq!((number_of(&store), unfinished), (Some(1), None), "operation {at}");
        }
    }
}

#[test]
fn a_damaged_journal_without_a_record_is_told() {
    let disk = Disk::default();
    disk.data_plane("journal.json", b"{");
    let told = Store::open(disk).map(|_| ()).unwrap_err().to_string();
    assert!(told.starts_with("DIR/journal.json is damaged"), "{told}");
}

#[test]
fn a_journal_of_a_newer_version_is_no_damage() {
    let told = told("journal.json", br#"{"version":2,"checksum":"","content":{}}"#);
    assert!(told.contains("use a newer shunt"), "{told}");
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let told = told("state.json", br#"{"version":2,"checksum":"","content":{}}"#);
    assert!(told.contains("is of version 2") && told.contains("use a newer shunt"), "{told}");
}

/// A change of any single byte is rejected, or does not change the meaning.
#[test]
fn no_changed_byte_goes_unnoticed() {
    let disk = Disk::default();
    let (mut store, _) = Store::open(disk.clone()).unwrap();
    apply(&mut store, 7).unwrap();
    let good = store.record().to_bytes();
    let mut refused = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        match super::super::Record::from_bytes("f", &bytes) {
            Ok(record) => assert_eq!(&record, store.record(), "byte {at}"),
            Err(StoreError::Damaged { .. } | StoreError::Version { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    assert!(refused > good.len() / 3, "only {refused} of {} were refused", good.len());
}

#[test]
fn a_real_directory_is_its_owners_and_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/state");
    let (mut store, _) = Store::open(Directory::open(&path).unwrap()).unwrap();
    let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
    apply(&mut store, 1).unwrap();
    assert_eq!((mode(""), mode("state.json")), (0o700, 0o600));
    let names: Vec<_> =
        std::fs::read_dir(&path).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the record and the lock: {names:?}");

    let refused = Directory::open(&path).unwrap_err().to_string();
    assert!(refused.contains("in use by another daemon"), "{refused}");
    drop(store);
    let (store, unfinished) = Store::open(Directory::open(&path).unwrap()).unwrap();
    assert_eq!((number_of(&store), unfinished), (Some(1), None));
}

#[test]
fn a_file_in_the_directorys_place_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let told = Directory::open(&path).unwrap_err().to_string();
    assert!(told.contains("cannot create the state directory"), "{told}");
}

//! Files that are not as they were written, and a directory that is not ours.

use std::os::unix::fs::PermissionsExt;

use super::super::{Directory, Store, StoreError};
use super::model::Disk;
use super::{apply, number_of};

/// What is told about a store whose file holds these bytes.
fn told(name: &str, bytes: &[u8]) -> String {
    let disk = Disk::default();
    let (mut store, _) = Store::open(disk.clone()).unwrap();
    apply(&mut store, 1).unwrap();
    disk.plant(name, bytes);
    Store::open(disk).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn damaged_files_are_told_with_the_remedy() {
    for name in ["state.json", "journal.json"] {
        for (bytes, why) in [
            (&b""[..], "is not JSON"),
            (b"\0\0\0\0", "is not JSON"),
            (b"{}", "has no version"),
            (br#"{"version":1,"checksum":"0","content":{}}"#, "checksum does not match"),
            (
                br#"{"version":1,"checksum":"08f44b07b5901a25","content":{}}"#,
                "not what it should be",
            ),
        ] {
            let told = told(name, bytes);
            let start = format!("DIR/{name} is damaged: it");
            assert!(told.starts_with(&start) || told.contains("checksum"), "{told}");
            assert!(told.contains(why) && told.contains("restore it from a copy"), "{told}");
        }
    }
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let told = told("state.json", br#"{"version":2,"checksum":"","content":{}}"#);
    assert!(told.contains("is of version 2") && told.contains("use a newer shunt"), "{told}");
}

/// Whatever single byte is changed, the file is refused or means the same.
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

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use guestmem::{Pages, SharedFile};

use super::*;

const BYTES: u64 = 1 << 16;

/// A run directory in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn memory() -> Vec<MemoryRegion> {
    let file = SharedFile::create("guest", BYTES, Pages::Ordinary).unwrap();
    vec![region(0, file.into_fd())]
}

fn region(guest_addr: u64, fd: OwnedFd) -> MemoryRegion {
    let fd = fd.into();
    MemoryRegion { guest_addr, size: BYTES, user_addr: guest_addr, mmap_offset: 0, fd }
}

fn setup(size: u16, desc: u64) -> RingSetup {
    let (avail, used) = (0x4000, 0x5000);
    let (kick, call, err, log) = (None, None, None, None);
    RingSetup { size, desc, avail, used, base: 0, kick, call, err, features: 0, log, enabled: true }
}

fn file(dir: &Path) -> File {
    let path = dir.join("rings/nic0:vf0");
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Marks the record of a ring.
fn note(dir: &Path, ring: usize) {
    file(dir).write_all_at(&[1; 8], slot(ring) + HEADER).unwrap();
}

/// Returns `true` if the mark of a ring is still there after its record was opened.
fn says(
    dir: &Path,
    saved: &mut SavedRings,
    ring: usize,
    of: (&RingSetup, &[MemoryRegion]),
) -> bool {
    saved.of(ring, of.0, of.1).unwrap();
    let mut word = [0; 8];
    file(dir).read_exact_at(&mut word, slot(ring) + HEADER).unwrap();
    word == [1; 8]
}

#[test]
fn a_record_is_found_again_by_the_next_daemon() {
    let dir = directory();
    let (files, ring) = (memory(), setup(256, 0x1000));
    let of = (&ring, &files[..]);
    let mut first = SavedRings::new(dir.path(), "nic0/vf0", 4);
    assert!(!says(dir.path(), &mut first, 3, of));
    note(dir.path(), 3);
    drop(first);

    let mut next = SavedRings::new(dir.path(), "nic0/vf0", 4);
    assert!(says(dir.path(), &mut next, 3, of));
    assert!(!says(dir.path(), &mut next, 2, of), "another ring");
    next.clear(3);
    assert!(!says(dir.path(), &mut next, 3, of), "the front-end was told");
}

#[test]
fn a_record_is_of_one_ring_of_one_guest() {
    let dir = directory();
    let (files, ring) = (memory(), setup(256, 0x1000));
    let of = (&ring, &files[..]);
    let (smaller, elsewhere, another) = (setup(128, 0x1000), setup(256, 0x2000), memory());
    for other in [(&smaller, &files[..]), (&elsewhere, &files[..]), (&ring, &another[..])] {
        let mut saved = SavedRings::new(dir.path(), "nic0/vf0", 2);
        saved.of(0, &ring, &files).unwrap();
        note(dir.path(), 0);
        assert!(says(dir.path(), &mut saved, 0, of));
        assert!(!says(dir.path(), &mut saved, 0, other), "{other:?}");
        assert!(!says(dir.path(), &mut saved, 0, of), "it was written over");
    }
}

#[test]
fn memory_that_is_plugged_changes_nothing() {
    let dir = directory();
    let (mut files, ring) = (memory(), setup(64, 0x1000));
    let mut saved = SavedRings::new(dir.path(), "nic0/vf0", 2);
    saved.of(0, &ring, &files).unwrap();
    note(dir.path(), 0);
    let more = SharedFile::create("more", BYTES, Pages::Ordinary).unwrap();
    files.insert(0, region(1 << 32, more.into_fd()));
    assert!(says(dir.path(), &mut saved, 0, (&ring, &files)));
}

#[test]
fn what_cannot_be_kept_is_not() {
    let dir = directory();
    let files = memory();
    let mut saved = SavedRings::new(dir.path(), "nic0/vf0", 2);
    assert!(saved.of(2, &setup(256, 0x1000), &files).is_none(), "no such ring");
    assert!(saved.of(0, &setup(2048, 0x1000), &files).is_none(), "too large");
    assert!(saved.of(0, &setup(256, 0x1000), &[]).is_none(), "no memory");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let mut nowhere = SavedRings::new(&dir.path().join("file"), "nic0/vf0", 2);
    assert!(nowhere.of(0, &setup(256, 0x1000), &files).is_none());
}

#[test]
fn a_device_with_other_rings_begins_anew() {
    let dir = directory();
    let (files, ring) = (memory(), setup(256, 0x1000));
    SavedRings::new(dir.path(), "nic0/vf0", 2).of(0, &ring, &files).unwrap();
    note(dir.path(), 0);
    let mut more = SavedRings::new(dir.path(), "nic0/vf0", 8);
    assert!(!says(dir.path(), &mut more, 0, (&ring, &files)));
}

#[test]
fn a_record_is_forgotten_also_before_its_ring_ran_again() {
    let dir = directory();
    let (files, ring) = (memory(), setup(256, 0x1000));
    let of = (&ring, &files[..]);
    let saved = || SavedRings::new(dir.path(), "nic0/vf0", 4);
    saved().clear(3); // there is no file yet
    assert!(!dir.path().join(DIRECTORY).exists());
    saved().of(3, &ring, &files).unwrap();
    note(dir.path(), 3);
    saved().clear(2);
    saved().clear(4);
    assert!(says(dir.path(), &mut saved(), 3, of));
    saved().clear(3);
    assert!(!says(dir.path(), &mut saved(), 3, of), "the front-end was told");
}

#[test]
fn nothing_is_kept_where_lanes_could_wait_for_a_disk() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut saved = SavedRings::new(dir.path(), "nic0/vf0", 2);
    assert!(saved.of(0, &setup(256, 0x1000), &memory()).is_none());
}

#[test]
fn files_of_devices_that_are_no_more_are_removed() {
    let dir = directory();
    let gone = ["n/vf0", "n/uplink", "n/pf"].map(String::from);
    remove(dir.path(), gone.iter()); // there is no directory yet
    let (files, ring) = (memory(), setup(256, 0x1000));
    for label in ["n/vf0", "n/vf1", "n/uplink"] {
        SavedRings::new(dir.path(), label, 2).of(0, &ring, &files).unwrap();
    }
    remove(dir.path(), gone.iter());
    let left = std::fs::read_dir(dir.path().join(DIRECTORY)).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["n:vf1"]);
}

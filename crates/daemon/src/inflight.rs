//! In-flight records of rings, in memory that outlives the daemon: the front-end keeps it.
//!
//! # Layout
//! A header of 64 bytes, then one record per ring, each `InflightRecord::bytes(entries)` long:
//!
//! | bytes | header |
//! |---|---|
//! | 0-7 | `shuntinf`: magic |
//! | 8-11 | maximum entries of each ring |
//! | 12-15 | number of records |
//!
//! `virtq::InflightRecord` defines a record. Zeros mean an empty record: then the front-end gives
//! the ring's position. A front-end can write anything there, or remove the memory, and so misplace
//! its own rings. A record's contents are checked like everything else from a front-end.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use guestmem::{MapError, Mapping, Pages, SharedFile};
use vhost_user::{Closer, ForeignFd, InflightArea, Refused, SharedArea};
use virtq::InflightRecord;

const HEADER: u64 = 64;
/// Entries of the largest ring.
const RING_SIZE_MAX: u16 = vhost_user::message::RING_SIZE_MAX as u16;
const MAGIC: [u8; 8] = *b"shuntinf";

/// In-flight records of a session.
#[derive(Debug)]
pub(super) struct InflightRecords {
    mapping: Arc<Mapping>,
    rings: u16,
    ring_size: u16,
}

impl InflightRecords {
    /// File size for the records of this many rings.
    pub(super) fn bytes(rings: u16, ring_size: u16) -> u64 {
        HEADER + u64::from(rings) * InflightRecord::bytes(ring_size)
    }

    /// Creates records in a file of that length, filled with zeros.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub(super) fn begin(
        file: BorrowedFd<'_>,
        rings: u16,
        ring_size: u16,
    ) -> Result<InflightRecords, MapError> {
        let mapping = Mapping::new(file, InflightRecords::bytes(rings, ring_size), 0)?;
        Ok(InflightRecords::within(mapping.into(), rings, ring_size))
    }

    /// Creates records at the start of a mapping that is long enough, over any contents.
    fn within(mapping: Arc<Mapping>, rings: u16, ring_size: u16) -> InflightRecords {
        let header = mapping.slice(0, HEADER as usize).expect("the mapping is long enough");
        header.write(8, u32::from(ring_size).to_le_bytes());
        header.write(12, u32::from(rings).to_le_bytes());
        header.write(0, MAGIC);
        let records = InflightRecords { mapping, rings, ring_size };
        (0..usize::from(rings)).for_each(|ring| records.clear(ring));
        records
    }

    /// Opens records that a front-end returned, from their mapping.
    ///
    /// # Errors
    /// The records have another format, or are for other rings.
    pub(super) fn open(given: &InflightArea, mapping: Mapping) -> Result<InflightRecords, Refused> {
        let InflightArea { area, rings, ring_size } = given;
        if !area.offset.is_multiple_of(8) {
            let offset = area.offset;
            return Err(Refused::new(format!(
                "records begin at offset {offset}; it must be a multiple of 8"
            )));
        }
        let need = InflightRecords::bytes(*rings, *ring_size);
        let header = mapping.slice(0, HEADER as usize).filter(|_| area.size >= need);
        let Some(header) = header else {
            let size = area.size;
            return Err(Refused::new(format!(
                "{size} bytes of records; {rings} rings of {ring_size} entries need {need}"
            )));
        };
        let word = |at| u32::from_le_bytes(header.read(at));
        if header.read(0) != MAGIC {
            let why = "the in-flight records are not this back-end's";
            return Err(Refused::new(why));
        }
        if (word(8), word(12)) != (u32::from(*ring_size), u32::from(*rings)) {
            return Err(Refused::new(format!(
                "records for {} rings of {} entries, returned as {rings} of {ring_size}",
                word(12),
                word(8),
            )));
        }
        Ok(InflightRecords { mapping: Arc::new(mapping), rings: *rings, ring_size: *ring_size })
    }

    /// Record of a ring with this many entries, if there is one.
    pub(super) fn of(&self, ring: usize, size: u16) -> Option<InflightRecord> {
        if ring >= usize::from(self.rings) || size > self.ring_size {
            return None;
        }
        let offset = HEADER + ring as u64 * InflightRecord::bytes(self.ring_size);
        InflightRecord::new(self.mapping.clone(), offset, size)
    }

    /// Clears the record of a ring.
    pub(super) fn clear(&self, ring: usize) {
        if let Some(record) = self.of(ring, self.ring_size) {
            record.clear();
        }
    }
}

/// Memory for new records, which front-ends keep.
///
/// Every request of a front-end is served from the same file, which is charged to the daemon. A
/// front-end that keeps an earlier descriptor sees the new records of its own guest.
///
/// All calls that take the file's lock precede the first hand-out of the file: a front-end could
/// hold that lock forever, by a write from missing memory. Later records are created by stores.
#[derive(Debug)]
pub(super) struct InflightMemory {
    made: Option<(ForeignFd, Arc<Mapping>)>,
    /// Size, in bytes.
    size: u64,
    closer: Closer,
}

impl InflightMemory {
    /// Memory for a device with this many rings.
    pub(super) fn of(rings: u16, closer: &Closer) -> InflightMemory {
        let size = InflightRecords::bytes(rings, RING_SIZE_MAX);
        InflightMemory { made: None, size, closer: closer.clone() }
    }

    /// Creates records, and returns the part of the memory for the front-end to keep. The file
    /// cannot be shrunk.
    ///
    /// # Errors
    /// No memory is available.
    pub(super) fn create(
        &mut self,
        rings: u16,
        ring_size: u16,
    ) -> Result<(InflightRecords, SharedArea), MapError> {
        let (file, mapping) = match self.made.take() {
            Some(made) => made,
            None => {
                let file = SharedFile::create("shunt-inflight", self.size, Pages::Ordinary)?;
                let file = ForeignFd::new(file.into_fd(), &self.closer);
                let mapping = Mapping::new(file.as_fd(), self.size, 0)?;
                (file, mapping.into())
            }
        };
        let (file, mapping) = self.made.insert((file, mapping));
        let records = InflightRecords::within(mapping.clone(), rings, ring_size);
        let size = InflightRecords::bytes(rings, ring_size);
        let fd = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(|source| MapError::Kernel {
            call: "fcntl",
            size,
            source,
        })?;
        Ok((records, SharedArea { size, offset: 0, fd: ForeignFd::new(fd, &self.closer) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(made: &SharedArea, rings: u16, ring_size: u16) -> InflightArea {
        let fd = made.fd.as_fd().try_clone_to_owned().unwrap().into();
        InflightArea { area: SharedArea { fd, ..*made }, rings, ring_size }
    }

    fn memory() -> InflightMemory {
        InflightMemory::of(4, &Closer::default())
    }

    fn open(given: &InflightArea) -> Result<InflightRecords, Refused> {
        let SharedArea { size, offset, fd } = &given.area;
        InflightRecords::open(given, Mapping::new(fd.as_fd(), *size, *offset).unwrap())
    }

    #[test]
    fn records_are_found_again() {
        let (records, made) = memory().create(4, 256).unwrap();
        assert_eq!(made.size, HEADER + 4 * InflightRecord::bytes(256));
        let again = open(&area(&made, 4, 256)).unwrap();
        for (records, ring, size, has) in [
            (&records, 0, 256, true),
            (&again, 3, 64, true),
            (&again, 4, 256, false),
            (&again, 0, 512, false),
        ] {
            assert_eq!(records.of(ring, size).is_some(), has, "ring {ring} of {size}");
        }
        again.clear(3);
        again.clear(4);
    }

    /// CVE-2021-3839 (DPDK): the number of queues was not that of the records.
    #[test]
    fn in_flight_geometry_of_a_message() {
        let (_, made) = memory().create(2, 128).unwrap();
        let refused = |area: &InflightArea| open(area).unwrap_err().to_string();
        for (rings, ring_size) in [(1, 128), (2, 64)] {
            let why = refused(&area(&made, rings, ring_size));
            assert!(why.starts_with("records for 2 rings of 128 entries"), "{why}");
        }
        let why = refused(&area(&made, 2, 256));
        assert!(why.contains("2 rings of 256 entries need"), "{why}");
        let fd = made.fd.as_fd().try_clone_to_owned().unwrap().into();
        let why = refused(&area(&SharedArea { offset: 4, fd, ..made }, 2, 128));
        assert!(why.contains("offset 4"), "{why}");
        let zeros = SharedFile::create("zeros", 65536, Pages::Ordinary).unwrap();
        let zeros = SharedArea { size: 65536, offset: 0, fd: zeros.into_fd().into() };
        assert!(refused(&area(&zeros, 2, 128)).contains("not this back-end's"));
    }

    /// CVE-2026-86565 (DPDK): a ring was larger than its records.
    #[test]
    fn ring_size_against_in_flight_records() {
        let (records, made) = memory().create(2, 64).unwrap();
        for (ring, size, has) in [
            (1, 64, true),
            (0, 1, true),
            // A ring that grew since has no record, and so writes behind none.
            (0, 65, false),
            (1, 128, false),
            (1, RING_SIZE_MAX, false),
            (0, u16::MAX, false),
            (2, 64, false),
            (usize::MAX, 64, false),
        ] {
            assert_eq!(records.of(ring, size).is_some(), has, "ring {ring} of {size}");
        }
        // The sizes of a message are those of the records, or it is refused.
        for (rings, ring_size) in [(2, 65), (2, u16::MAX), (3, 64), (u16::MAX, u16::MAX)] {
            assert!(open(&area(&made, rings, ring_size)).is_err(), "{rings} of {ring_size}");
        }
    }

    /// CVE-2020-10726 (DPDK): each request allocated memory.
    #[test]
    fn repeated_in_flight_request() {
        let mut memory = memory();
        let inode = |area: &SharedArea| rustix::fs::fstat(&area.fd).unwrap().st_ino;
        let (first, made) = memory.create(2, 256).unwrap();
        first.mapping.slice(HEADER, 8).unwrap().write(0, [0xff; 8]);
        for (rings, ring_size) in [(2, 256), (4, 64), (4, RING_SIZE_MAX)] {
            let (records, again) = memory.create(rings, ring_size).unwrap();
            assert_eq!(inode(&again), inode(&made));
            assert_eq!(again.size, InflightRecords::bytes(rings, ring_size));
            for ring in 0..u64::from(rings) {
                let record = HEADER + ring * InflightRecord::bytes(ring_size);
                assert_eq!(records.mapping.slice(record, 8).unwrap().read::<8>(0), [0; 8]);
            }
            open(&area(&again, rings, ring_size)).unwrap();
            let all = InflightRecords::bytes(4, RING_SIZE_MAX) as usize;
            records.mapping.slice(0, all).unwrap().write_bytes(&vec![0xff; all]);
        }
    }
}

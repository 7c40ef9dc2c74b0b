//! Records of what is in flight, in memory that outlives the daemon: the front-end keeps it.
//!
//! # Layout
//! A header of 64 bytes, then one record a ring, each `Inflight::bytes(entries)` long:
//!
//! | bytes | header |
//! |---|---|
//! | 0-7 | `shuntinf`, and so what the rest means |
//! | 8-11 | entries that each ring may have |
//! | 12-15 | number of records |
//!
//! What a record holds is the ring's own affair (`virtq::Inflight`). Zeros are a record that says
//! nothing: then the front-end says where the ring is. A front-end can write what it likes there, or
//! take the memory away, and then its own rings go on from a wrong place: where a record points is
//! checked as all else that comes from a front-end.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use guestmem::{MapError, Mapping, Pages, SharedFile};
use vhost_user::{InflightArea, Refused, SharedArea};
use virtq::Inflight;

const HEADER: u64 = 64;
const MAGIC: [u8; 8] = *b"shuntinf";

/// The records of a session.
#[derive(Debug)]
pub(super) struct Records {
    mapping: Arc<Mapping>,
    rings: u16,
    ring_size: u16,
}

impl Records {
    /// New records, and the memory for the front-end to keep. It cannot be made shorter.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn create(rings: u16, ring_size: u16) -> Result<(Records, SharedArea), MapError> {
        let size = Records::bytes(rings, ring_size);
        let file = SharedFile::create("shunt-inflight", size, Pages::Ordinary)?;
        let records = Records::begin(file.fd(), rings, ring_size)?;
        let fd = file.into_fd();
        Ok((records, SharedArea { size, offset: 0, fd: fd.into() }))
    }

    /// Bytes of a file for the records of so many rings.
    pub(super) fn bytes(rings: u16, ring_size: u16) -> u64 {
        HEADER + u64::from(rings) * Inflight::bytes(ring_size)
    }

    /// New records in a file of that length, which is zeros.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub(super) fn begin(
        file: BorrowedFd<'_>,
        rings: u16,
        ring_size: u16,
    ) -> Result<Records, MapError> {
        let mapping = Arc::new(Mapping::new(file, Records::bytes(rings, ring_size), 0)?);
        let header = mapping.slice(0, HEADER as usize).expect("as long as that");
        header.write(8, u32::from(ring_size).to_le_bytes());
        header.write(12, u32::from(rings).to_le_bytes());
        header.write(0, MAGIC);
        Ok(Records { mapping, rings, ring_size })
    }

    /// Records that a front-end gives back.
    ///
    /// # Errors
    /// They are not such as we make, or are for other rings.
    pub(super) fn open(given: &InflightArea) -> Result<Records, Refused> {
        let InflightArea { area, rings, ring_size } = given;
        let mapping = Mapping::new(area.fd.as_fd(), area.size, area.offset)
            .map_err(|error| Refused::new(error.to_string()))?;
        let need = Records::bytes(*rings, *ring_size);
        let header = mapping.slice(0, HEADER as usize).filter(|_| area.size >= need);
        let Some(header) = header else {
            let size = area.size;
            return Err(Refused::new(format!(
                "{size} bytes of records; {rings} rings of {ring_size} entries take {need}"
            )));
        };
        let word = |at| u32::from_le_bytes(header.read(at));
        if header.read(0) != MAGIC {
            let why = "the records of what is in flight are not this back-end's";
            return Err(Refused::new(why));
        }
        if (word(8), word(12)) != (u32::from(*ring_size), u32::from(*rings)) {
            return Err(Refused::new(format!(
                "records for {} rings of {} entries, given back as {rings} of {ring_size}",
                word(12),
                word(8),
            )));
        }
        Ok(Records { mapping: Arc::new(mapping), rings: *rings, ring_size: *ring_size })
    }

    /// The record of a ring of so many entries, if it has one.
    pub(super) fn of(&self, ring: usize, size: u16) -> Option<Inflight> {
        if ring >= usize::from(self.rings) || size > self.ring_size {
            return None;
        }
        let offset = HEADER + ring as u64 * Inflight::bytes(self.ring_size);
        Inflight::new(self.mapping.clone(), offset, size)
    }

    /// Forgets where a ring was.
    pub(super) fn clear(&self, ring: usize) {
        if let Some(record) = self.of(ring, self.ring_size) {
            record.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(made: &SharedArea, rings: u16, ring_size: u16) -> InflightArea {
        let fd = made.fd.as_fd().try_clone_to_owned().unwrap().into();
        InflightArea { area: SharedArea { fd, ..*made }, rings, ring_size }
    }

    #[test]
    fn records_are_found_again() {
        let (records, made) = Records::create(4, 256).unwrap();
        assert_eq!(made.size, HEADER + 4 * Inflight::bytes(256));
        let again = Records::open(&area(&made, 4, 256)).unwrap();
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

    #[test]
    fn what_is_not_ours_is_refused() {
        let (_, made) = Records::create(2, 128).unwrap();
        let refused = |area: &InflightArea| Records::open(area).unwrap_err().to_string();
        for (rings, ring_size) in [(1, 128), (2, 64)] {
            let why = refused(&area(&made, rings, ring_size));
            assert!(why.starts_with("records for 2 rings of 128 entries"), "{why}");
        }
        let why = refused(&area(&made, 2, 256));
        assert!(why.contains("2 rings of 256 entries take"), "{why}");
        let longer = SharedArea {
            size: made.size + 1,
            fd: made.fd.as_fd().try_clone_to_owned().unwrap().into(),
            ..made
        };
        let why = refused(&area(&longer, 2, 128));
        assert!(why.contains("the front-end must share all of it"), "{why}");
        let zeros = SharedFile::create("zeros", 65536, Pages::Ordinary).unwrap();
        let zeros = SharedArea { size: 65536, offset: 0, fd: zeros.into_fd().into() };
        assert!(refused(&area(&zeros, 2, 128)).contains("not this back-end's"));
    }
}

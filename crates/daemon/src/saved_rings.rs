//! Records of packed rings in the run directory, for front-ends without in-flight records, such as
//! QEMU's network devices.
//!
//! # Purpose
//! A split ring contains its own position, a packed ring does not; and a front-end that lost its
//! back-end only knows the ring's start. Without a record, a daemon that was killed or restarted
//! could never serve such a ring again. So the record that `virtq` usually writes to a front-end's
//! memory goes to a file in the run directory, where the next daemon finds it.
//!
//! # Layout
//! For each ring of the device a header of 64 bytes that identifies it, then its record. The header
//! has eight words: magic, device and inode of the guest's memory, three addresses, size and zero.
//! Another guest's memory is another file, so a record matches this guest or is cleared. `virtq`
//! detects in the ring if its driver has restarted it.
//!
//! # Limits
//! Rings of at most [`ENTRIES_MAX`] entries, and a run directory on a tmpfs: lanes write there, and
//! must not wait for a disk. A file that cannot be created costs only its own purpose. Files of
//! removed devices are [deleted](remove), but not at a daemon's start: its configuration may not be
//! complete yet.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guestmem::Mapping;
use vhost_user::{MemoryRegion, RingSetup};
use virtq::InflightRecord;

/// Directory of the files, in the run directory.
pub(super) const DIRECTORY: &str = "rings";
const MAGIC: u64 = u64::from_le_bytes(*b"shuntrng");
const ENTRIES_MAX: u16 = 1024;
const HEADER: u64 = 64;

/// Identity of a record's ring.
type RingIdentity = [u64; 8];

/// Records of one device.
#[derive(Debug)]
pub(super) struct SavedRings {
    /// Path of the file; `None` if it cannot be created.
    path: Option<PathBuf>,
    rings: usize,
    mapping: Option<Arc<Mapping>>,
}

impl SavedRings {
    /// Records of the device with this label and number of rings. Nothing is created before it is
    /// needed.
    pub(super) fn new(run_dir: &Path, label: &str, rings: usize) -> SavedRings {
        let path = run_dir.join(DIRECTORY).join(file_name(label));
        SavedRings { path: Some(path), rings, mapping: None }
    }

    /// Record of a ring in memory made of these files; empty if there was none for it.
    pub(super) fn of(
        &mut self,
        ring: usize,
        setup: &RingSetup,
        files: &[MemoryRegion],
    ) -> Option<InflightRecord> {
        if ring >= self.rings || setup.size > ENTRIES_MAX {
            return None;
        }
        let identity = identity(setup, files)?;
        let mapping = self.open()?;
        let record = InflightRecord::new(mapping.clone(), slot(ring) + HEADER, setup.size)?;
        let header = mapping.slice(slot(ring), HEADER as usize)?;
        let words = || identity.iter().zip((0..).step_by(8));
        if words().any(|(word, at)| header.read(at) != word.to_le_bytes()) {
            record.clear();
            words().for_each(|(word, at)| header.write(at, word.to_le_bytes()));
        }
        Some(record)
    }

    /// Clears the record of a ring: the front-end was told its position, or keeps a record itself.
    pub(super) fn clear(&mut self, ring: usize) {
        let is_there = self.mapping.is_some() || self.path.as_ref().is_some_and(|it| it.exists());
        if ring >= self.rings || !is_there {
            return;
        }
        let (mapping, at) = (self.open(), slot(ring) + HEADER);
        if let Some(record) = mapping.and_then(|it| InflightRecord::new(it, at, ENTRIES_MAX)) {
            record.clear();
        }
    }

    fn open(&mut self) -> Option<Arc<Mapping>> {
        if self.mapping.is_none() {
            let path = self.path.as_ref()?;
            match map(path, slot(self.rings)) {
                Ok(mapping) => self.mapping = Some(Arc::new(mapping)),
                Err(error) => {
                    let shown = path.display();
                    tracing::warn!(
                        "{shown}: {error}; packed rings will not survive a restart of the daemon"
                    );
                    self.path = None;
                }
            }
        }
        self.mapping.clone()
    }
}

/// Deletes the files of removed devices with these labels.
pub(super) fn remove<'a>(run_dir: &Path, labels: impl Iterator<Item = &'a String>) {
    for label in labels {
        let path = run_dir.join(DIRECTORY).join(file_name(label));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}; cannot delete the unused file", path.display());
            }
            _ => {}
        }
    }
}

/// File name of a device; labels are unique.
fn file_name(label: &str) -> String {
    label.replace('/', ":")
}

/// Offset of a ring's header.
fn slot(ring: usize) -> u64 {
    ring as u64 * (HEADER + InflightRecord::bytes(ENTRIES_MAX))
}

fn identity(setup: &RingSetup, files: &[MemoryRegion]) -> Option<RingIdentity> {
    // Memory is hotplugged, but its first region stays.
    let first = files.iter().min_by_key(|file| file.guest_addr)?;
    let file = rustix::fs::fstat(first.fd.as_fd()).ok()?;
    let RingSetup { desc, avail, used, size, .. } = *setup;
    Some([MAGIC, file.st_dev, file.st_ino, desc, avail, used, size.into(), 0])
}

fn map(path: &Path, size: u64) -> io::Result<Mapping> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if !guestmem::is_memory_file(file.as_fd()) {
        let why = "not on a tmpfs, so lanes might wait for a disk (choose another run_dir)";
        return Err(io::Error::other(why));
    }
    if file.metadata()?.len() != size {
        file.set_len(0)?; // it had another number of rings
        file.set_len(size)?;
    }
    Mapping::new(file.as_fd(), size, 0).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;

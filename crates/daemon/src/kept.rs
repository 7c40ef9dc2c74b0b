//! Records of packed rings that we keep ourselves, where a front-end keeps none: QEMU's network
//! devices do not.
//!
//! # Why
//! A split ring says itself how far it has come, a packed one does not; and a front-end whose
//! back-end went away without a word says where the ring began. So a daemon that was killed, or
//! just ended, would never serve such a ring again. What `virtq` writes down in a front-end's
//! memory it writes here into a file in the run directory instead, which the next daemon finds.
//!
//! # Layout
//! For each ring of the device 64 bytes that say which ring it is about (eight words: what this is,
//! device and inode of the guest's memory, three addresses and the size), then its record. Another
//! guest's memory is another file, so a record is for this guest or it is cleared. Whether its
//! driver has begun the ring anew since, `virtq` sees in the ring.
//!
//! # Limits
//! Rings of at most [`ENTRIES_MAX`] entries, and a run directory that is on a tmpfs: lanes write
//! there, and must not wait for a disk. A file that cannot be made costs what it is for, and
//! nothing else. Files of devices that are no more are [removed](remove), but not when a daemon
//! starts: whoever configures it may still have to name them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guestmem::Mapping;
use vhost_user::{MemoryRegion, RingSetup};
use virtq::Inflight;

/// The directory of the files, in the run directory.
pub(super) const DIRECTORY: &str = "rings";
const MAGIC: u64 = u64::from_le_bytes(*b"shuntrng");
const ENTRIES_MAX: u16 = 1024;
const HEADER: u64 = 64;

/// What a record is about.
type About = [u64; 8];

/// The records of one device.
#[derive(Debug)]
pub(super) struct Kept {
    /// Where they are, if they can be anywhere.
    path: Option<PathBuf>,
    rings: usize,
    mapping: Option<Arc<Mapping>>,
}

impl Kept {
    /// Those of the device with this label, of so many rings, below a run directory. Nothing is
    /// made before it is needed.
    pub(super) fn new(run_dir: &Path, label: &str, rings: usize) -> Kept {
        let path = run_dir.join(DIRECTORY).join(file_name(label));
        Kept { path: Some(path), rings, mapping: None }
    }

    /// The record of a ring in memory made of these files; one that says nothing if there was none
    /// of it.
    pub(super) fn of(
        &mut self,
        ring: usize,
        setup: &RingSetup,
        files: &[MemoryRegion],
    ) -> Option<Inflight> {
        if ring >= self.rings || setup.size > ENTRIES_MAX {
            return None;
        }
        let about = about(setup, files)?;
        let mapping = self.open()?;
        let record = Inflight::new(mapping.clone(), slot(ring) + HEADER, setup.size)?;
        let header = mapping.slice(slot(ring), HEADER as usize)?;
        let words = || about.iter().zip((0..).step_by(8));
        if words().any(|(word, at)| header.read(at) != word.to_le_bytes()) {
            record.clear();
            words().for_each(|(word, at)| header.write(at, word.to_le_bytes()));
        }
        Some(record)
    }

    /// Forgets where a ring was, whoever wrote it down: the front-end was told, or keeps a record
    /// itself.
    pub(super) fn clear(&mut self, ring: usize) {
        let is_there = self.mapping.is_some() || self.path.as_ref().is_some_and(|it| it.exists());
        if ring >= self.rings || !is_there {
            return;
        }
        let (mapping, at) = (self.open(), slot(ring) + HEADER);
        if let Some(record) = mapping.and_then(|it| Inflight::new(it, at, ENTRIES_MAX)) {
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
                        "{shown}: {error}; packed rings will not survive the daemon's end"
                    );
                    self.path = None;
                }
            }
        }
        self.mapping.clone()
    }
}

/// Removes the files of devices with these labels, which are no more.
pub(super) fn remove<'a>(run_dir: &Path, labels: impl Iterator<Item = &'a String>) {
    for label in labels {
        let path = run_dir.join(DIRECTORY).join(file_name(label));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}; it is of no use any more", path.display());
            }
            _ => {}
        }
    }
}

/// What the file of a device is called; no two devices have the same label.
fn file_name(label: &str) -> String {
    label.replace('/', ":")
}

/// Where what belongs to a ring begins.
fn slot(ring: usize) -> u64 {
    ring as u64 * (HEADER + Inflight::bytes(ENTRIES_MAX))
}

fn about(setup: &RingSetup, files: &[MemoryRegion]) -> Option<About> {
    // Memory is plugged and unplugged, but not where it begins.
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
    if !guestmem::is_memory(file.as_fd()) {
        let why = "not on a tmpfs, so that lanes could wait for a disk (choose another run_dir)";
        return Err(io::Error::other(why));
    }
    if file.metadata()?.len() != size {
        file.set_len(0)?; // of a device with other rings
        file.set_len(size)?;
    }
    Mapping::new(file.as_fd(), size, 0).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;

//! The record of a NIC as it was before Shunt changed it: a file for each NIC.
//!
//! Model: the record is on disk before the first change, so a process that is killed at any moment
//! leaves the way back. A value that is recorded stays, until all is restored and the file is
//! removed. A record of another boot is void: VFs do not survive a boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use model::state::NicMode;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::driver::errno;
use crate::error::SriovError;
use crate::netdev::VfNetdev;
use crate::sysfs::Sysfs;
use crate::vf::VfSetting;

/// State of a NIC to reach: wanted, or as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NicTarget {
    /// Number of VFs.
    pub(crate) num_vfs: u16,
    /// Eswitch mode; `None`: left as it is.
    pub(crate) mode: Option<NicMode>,
    /// Settings by index of the VF; other VFs and settings are left as they are.
    pub(crate) vfs: BTreeMap<u16, Vec<VfSetting>>,
    /// Interfaces by index of the VF; others come back, or are left as they are.
    #[serde(default)]
    pub(crate) netdevs: BTreeMap<u16, VfNetdev>,
    /// In a record: VFs whose interface a guest has, or was removed with them.
    #[serde(default)]
    pub(crate) given: BTreeSet<u16>,
    /// In a record: VFs whose interface is on its way to a guest, and may be half set.
    #[serde(default)]
    pub(crate) placing: BTreeSet<u16>,
    /// In a record: VFs that Shunt has bound to another driver, for VMs.
    #[serde(default)]
    pub(crate) bound: BTreeSet<u16>,
}

impl NicTarget {
    /// A state in which no setting of a VF changes.
    pub(crate) fn unchanged(num_vfs: u16, mode: Option<NicMode>) -> NicTarget {
        NicTarget { num_vfs, mode, ..NicTarget::default() }
    }

    /// Adds settings of a VF, but those that it has.
    pub(crate) fn add(&mut self, vf: u16, settings: &[VfSetting]) {
        let own = self.vfs.entry(vf).or_default();
        for setting in settings {
            if !own.iter().any(|own| own.is_same_setting(setting)) {
                own.push(setting.clone());
            }
        }
    }
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    /// Boot that the record is of.
    boot_id: String,
    original: NicTarget,
}

/// The record of a NIC.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    boot_id: String,
    /// The NIC as it was; `None` if it has not been changed.
    original: Option<NicTarget>,
}

/// Addresses of the NICs that have a record in this directory.
pub fn recorded(directory: &Path) -> Vec<PciAddress> {
    let names = Sysfs::names(directory).into_iter();
    names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect()
}

impl Record {
    /// Reads the record of a NIC in this directory; drops one of another boot.
    ///
    /// # Errors
    /// It cannot be read or removed.
    pub(crate) fn open(
        directory: &Path,
        address: PciAddress,
        boot_id: &str,
    ) -> Result<Record, SriovError> {
        let file = directory.join(format!("{address}.json"));
        let mut record = Record { file, boot_id: boot_id.to_owned(), original: None };
        let bytes = match fs::read(&record.file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(record),
            Err(error) => return Err(record.failed("read", &error)),
        };
        let content: Content =
            serde_json::from_slice(&bytes).map_err(|error| record.failed("read", &error.into()))?;
        match content.boot_id == boot_id {
            true => record.original = Some(content.original),
            false => record.remove()?,
        }
        Ok(record)
    }

    /// The NIC as it was; `None` if it has not been changed.
    pub(crate) fn original(&self) -> Option<&NicTarget> {
        self.original.as_ref()
    }

    /// Replaces the record; returns when it is on disk.
    ///
    /// # Errors
    /// It cannot be written; the old one is still there.
    pub(crate) fn write(&mut self, original: NicTarget) -> Result<(), SriovError> {
        if self.original.as_ref() == Some(&original) {
            return Ok(());
        }
        let content = Content { boot_id: self.boot_id.clone(), original };
        let written = self.write_file(&content);
        written.map_err(|error| self.failed("written", &error))?;
        self.original = Some(content.original);
        Ok(())
    }

    fn write_file(&self, content: &Content) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(content)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        File::open(directory)?.sync_all()
    }

    /// Removes the record.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(&mut self) -> Result<(), SriovError> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("removed", &error))
            }
            _ => {
                self.original = None;
                Ok(())
            }
        }
    }

    fn failed(&self, what: &'static str, error: &io::Error) -> SriovError {
        let file = self.file.display().to_string();
        SriovError::Record { file, what, source: errno(error).into() }
    }
}

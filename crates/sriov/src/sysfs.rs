//! Attributes of devices in sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;

/// A tree like `/sys`.
#[derive(Clone, Debug)]
pub struct Sysfs(PathBuf);

impl Default for Sysfs {
    /// `/sys` of this machine.
    fn default() -> Sysfs {
        Sysfs("/sys".into())
    }
}

impl Sysfs {
    /// The tree at this directory.
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs(root.into())
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Directory of a PCI function.
    pub fn pci(&self, address: PciAddress) -> PathBuf {
        self.0.join("bus/pci/devices").join(address.to_string())
    }

    /// Names of the entries of a directory, sorted; none if it is missing.
    pub fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Text of an attribute without white space at its end; `None` if it is missing, unreadable or
    /// empty.
    pub fn text(attribute: &Path) -> Option<String> {
        let text = fs::read_to_string(attribute).ok()?;
        Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
    }

    /// Last part of the target of a link, such as the name of a driver.
    pub fn target(link: &Path) -> Option<String> {
        Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// Writes an attribute in one write.
    ///
    /// # Errors
    /// The kernel's: `EBUSY`, `ENOMEM`, `EINVAL`, ..., as the driver answers.
    pub fn write(attribute: &Path, text: &str) -> io::Result<()> {
        use std::io::Write;
        fs::OpenOptions::new().write(true).open(attribute)?.write_all(text.as_bytes())
    }
}

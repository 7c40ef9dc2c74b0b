//! Attributes of devices in sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::address::PciAddress;

/// A tree like `/sys`.
#[derive(Clone, Debug)]
pub struct Sysfs(PathBuf);

/// Tree of this process instead of `/sys`.
#[cfg(feature = "testing")]
static TREE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();

impl Default for Sysfs {
    /// `/sys` of this machine.
    fn default() -> Sysfs {
        #[cfg(feature = "testing")]
        if let Some(tree) = TREE.get() {
            return Sysfs(tree.clone());
        }
        Sysfs("/sys".into())
    }
}

impl Sysfs {
    /// The tree at this directory.
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs(root.into())
    }

    /// Has this process use the tree at this directory instead of `/sys`; once.
    #[cfg(feature = "testing")]
    pub fn replace(root: impl Into<PathBuf>) {
        let _ = TREE.set(root.into());
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

    /// Number in an attribute; `None` as for [`text`](Self::text), or if it is no such number.
    pub fn number<T: FromStr>(attribute: &Path) -> Option<T> {
        Sysfs::text(attribute)?.parse().ok()
    }

    /// Directories of a function with its interfaces; there is one once its driver has made one.
    /// Those of a virtio device are below its `virtioN`.
    pub fn interface_directories(function: &Path) -> Vec<PathBuf> {
        let virtio = Sysfs::names(function).into_iter().filter(|name| name.starts_with("virtio"));
        let parents = [function.to_owned()].into_iter().chain(virtio.map(|it| function.join(it)));
        parents.map(|parent| parent.join("net")).filter(|net| net.is_dir()).collect()
    }

    /// Directories of a function's interfaces in this network namespace.
    pub fn interfaces(function: &Path) -> Vec<PathBuf> {
        let each = |net: PathBuf| Sysfs::names(&net).into_iter().map(move |name| net.join(name));
        Sysfs::interface_directories(function).into_iter().flat_map(each).collect()
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

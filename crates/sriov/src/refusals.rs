//! Errors of drivers: their meaning, and a remedy.

use rustix::io::Errno;

/// An error number as the answer to a setting.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Setting, as a document names it.
    pub(crate) setting: &'static str,
    pub(crate) errno: Errno,
    /// Meaning and remedy, one sentence.
    pub(crate) advice: &'static str,
}

/// All that the code tells apart.
pub(crate) const REFUSALS: &[Refusal] = &[];

/// Meaning of an error number and a remedy.
pub(crate) fn explain(setting: &str, _driver: &str, errno: Errno) -> &'static str {
    let found = REFUSALS.iter().find(|row| row.setting == setting && row.errno == errno);
    found.map_or("see the kernel's log (dmesg)", |row| row.advice)
}

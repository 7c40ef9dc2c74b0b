//! Groups of users.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

use crate::launcher::{Answer, Request, ask};
use crate::sys;

/// Reason for which a group cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no such group.
    #[error("is no group of this machine")]
    Unknown,
    /// The name services failed.
    #[error("cannot be looked up: {0}")]
    System(std::io::Error),
}

/// ID of the group with this name, or of this number.
///
/// # Errors
/// There is no group of this name, or the name services fail.
pub fn group_id(group: &str) -> Result<u32, GroupError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let found = ask(FindGroup { name: group.to_owned() }, &[]);
    let (found, _) = found.map_err(|errno| GroupError::System(errno.into()))?;
    found.ok_or(GroupError::Unknown)
}

/// Finds the ID of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindGroup {
    name: String,
}

impl Request for FindGroup {
    const NAME: &'static str = "find-group";
    const DOES: &'static str = "finds the ID of a group by its name";
    type Reply = Option<u32>;

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Option<u32>> {
        let Ok(name) = CString::new(self.name) else { return Ok((None, Vec::new())) };
        Ok((sys::group_id(&name)?, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_name_and_by_number() {
        assert_eq!(group_id("root").unwrap(), 0);
        assert_eq!(group_id("12345").unwrap(), 12345);
        assert!(matches!(group_id("no-such-group"), Err(GroupError::Unknown)));
        assert!(matches!(group_id("a\0b"), Err(GroupError::Unknown)));
    }
}

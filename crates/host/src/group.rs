//! Groups of users.

use std::ffi::CString;

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
    let name = CString::new(group).map_err(|_| GroupError::Unknown)?;
    let found = sys::group_id(&name).map_err(|errno| GroupError::System(errno.into()))?;
    found.ok_or(GroupError::Unknown)
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

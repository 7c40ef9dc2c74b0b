//! Owners of VFs: a late release must not reset a VF that has a new owner.
//!
//! Each change of a VF's owner issues a token, a number that is never reused. A release must
//! present the token; an old one is rejected. The records are stored together with the state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Owner of a VF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    /// Proof of ownership, for a release.
    pub token: u64,
    /// Adapter's name; empty for settings of the operator.
    pub holder: String,
}

/// A release by another than the owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOwner {
    /// The VF has another owner.
    #[error("{vf} has the owner {}, whose token is not {token}; it stays as it is", named(.holder))]
    Another {
        /// The VF.
        vf: String,
        /// Its holder.
        holder: String,
        /// The presented token.
        token: u64,
    },
    /// The VF has no owner.
    #[error("{vf} has no owner; there is nothing to release")]
    NoOwner {
        /// The VF.
        vf: String,
    },
}

fn named(holder: &str) -> &str {
    if holder.is_empty() { "the operator" } else { holder }
}

/// Owners of all VFs, by `NIC/vfN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owners {
    /// The last token issued.
    last_token: u64,
    held: BTreeMap<String, Owner>,
}

impl Owners {
    /// Sets the owners to `holders` (VF and holder). An unchanged holder keeps its token. Returns
    /// `true` if anything changed.
    pub fn assign(&mut self, holders: &BTreeMap<String, String>) -> bool {
        let before = self.clone();
        self.held.retain(|vf, owner| holders.get(vf) == Some(&owner.holder));
        for (vf, holder) in holders {
            if !self.held.contains_key(vf) {
                self.last_token += 1;
                let owner = Owner { token: self.last_token, holder: holder.clone() };
                self.held.insert(vf.clone(), owner);
            }
        }
        *self != before
    }

    /// All VFs with an owner.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Owner)> {
        self.held.iter().map(|(vf, owner)| (vf.as_str(), owner))
    }

    /// Owner of a VF.
    pub fn of(&self, vf: &str) -> Option<&Owner> {
        self.held.get(vf)
    }

    /// Checks a token against the VF's owner.
    ///
    /// # Errors
    /// The VF has another owner, or none.
    pub fn check(&self, vf: &str, token: u64) -> Result<(), NotOwner> {
        match self.held.get(vf) {
            Some(owner) if owner.token == token => Ok(()),
            Some(owner) => {
                let holder = owner.holder.clone();
                Err(NotOwner::Another { vf: vf.to_owned(), holder, token })
            }
            None => Err(NotOwner::NoOwner { vf: vf.to_owned() }),
        }
    }
}

//! Who has a VF, so that a late release never resets one that has a new owner.
//!
//! Each time a VF changes hands its new owner gets a token, a number that is never given twice.
//! Whoever releases a VF shows the token; an old one is refused. The records are stored with the
//! state, in the same step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who has one VF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    /// The proof, for a release.
    pub token: u64,
    /// The adapter's name; empty for settings of the operator's.
    pub holder: String,
}

/// A release by somebody who is not the owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotYours {
    /// The VF has another owner.
    #[error("{vf} has the owner {}, whose token is not {token}; it stays as it is", named(.holder))]
    Another {
        /// The VF.
        vf: String,
        /// Who has it.
        holder: String,
        /// The token that was shown.
        token: u64,
    },
    /// It has none.
    #[error("{vf} has no owner; there is nothing to release")]
    Nobody {
        /// The VF.
        vf: String,
    },
}

fn named(holder: &str) -> &str {
    if holder.is_empty() { "the operator" } else { holder }
}

/// The owners of all VFs, by `NIC/vfN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owners {
    /// The last token that was given.
    last_token: u64,
    held: BTreeMap<String, Owner>,
}

impl Owners {
    /// Makes `holders` (VF and holder) the owners, and all other VFs nobody's. Who stays keeps the
    /// token. Whether anything changed.
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

    /// Every VF that has an owner, with that owner.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Owner)> {
        self.held.iter().map(|(vf, owner)| (vf.as_str(), owner))
    }

    /// Who has a VF.
    pub fn of(&self, vf: &str) -> Option<&Owner> {
        self.held.get(vf)
    }

    /// Checks that the token is that of the VF's owner.
    ///
    /// # Errors
    /// The VF has another owner, or none.
    pub fn check(&self, vf: &str, token: u64) -> Result<(), NotYours> {
        match self.held.get(vf) {
            Some(owner) if owner.token == token => Ok(()),
            Some(owner) => {
                let holder = owner.holder.clone();
                Err(NotYours::Another { vf: vf.to_owned(), holder, token })
            }
            None => Err(NotYours::Nobody { vf: vf.to_owned() }),
        }
    }
}

//! Access lists: what may be asked of a frame, and what is done with those that answer.
//!
//! Model: [`Acl`] is what is configured; [`Compiled`] is what frames are matched with.

mod compiled;

use crate::switch::{ConfigError, Place};

pub use crate::matching::{Icmp, IpPrefix, MacPrefix, Match, TcpFlags};
pub(crate) use compiled::Compiled;

/// The most rules of all lists of a switch together.
pub const MAX_RULES: usize = 2048;

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
    /// What becomes of a frame that no rule decides on.
    pub default_allow: bool,
}

/// A rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which frames it is for.
    pub matches: Match,
    /// What becomes of them.
    pub action: RuleAction,
}

/// What a rule does. Each counts the frames that it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The frame passes; later rules are not tried.
    Allow,
    /// The frame is dropped; later rules are not tried.
    Deny,
    /// Nothing else; the next rule is tried.
    Count,
}

impl Acl {
    pub(crate) fn check(&self, acl: usize) -> Result<(), ConfigError> {
        for (rule, Rule { matches, .. }) in self.rules.iter().enumerate() {
            let place = Place::Rule { acl, rule };
            matches
                .check()
                .map_err(|it| ConfigError::new(place, it.field, it.value, it.allowed))?;
        }
        Ok(())
    }
}

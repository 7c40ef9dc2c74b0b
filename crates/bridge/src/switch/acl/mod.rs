//! Access lists: rules that match frames, and their actions.
//!
//! Model: [`Acl`] is the configuration; [`Compiled`] matches frames.

mod compiled;

use crate::matching::Match;
use crate::switch::{ConfigError, ErrorLocation};

pub(crate) use compiled::Compiled;

/// Maximum number of rules of all lists of a switch.
pub const MAX_RULES: usize = 2048;

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
    /// Action for a frame without a deciding rule.
    pub default_allow: bool,
}

/// A rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Match of its frames.
    pub matches: Match,
    /// Action for them.
    pub action: RuleAction,
}

/// Action of a rule. Each counts the frames that it is applied to.
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
            let place = ErrorLocation::Rule { acl, rule };
            matches
                .check()
                .map_err(|it| ConfigError::new(place, it.field, it.value, it.allowed))?;
        }
        Ok(())
    }
}

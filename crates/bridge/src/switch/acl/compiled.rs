//! Compiled access list.

use crate::matching::{Key, List, Words};

use super::{Acl, RuleAction};

/// The match list, and the action of each rule.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    default_allow: bool,
    /// The number of the first rule's counter.
    first_counter: usize,
    actions: Box<[RuleAction]>,
    list: List,
}

impl Compiled {
    /// Builds from a validated list.
    pub(crate) fn build(acl: &Acl, first_counter: usize) -> Self {
        Self {
            default_allow: acl.default_allow,
            first_counter,
            actions: acl.rules.iter().map(|rule| rule.action).collect(),
            list: List::build(acl.rules.iter().map(|rule| &rule.matches)),
        }
    }

    /// Returns `true` if a frame passes; calls `counted` with the counter of each rule applied to
    /// it.
    pub(crate) fn allows(&self, key: &Key, mut counted: impl FnMut(usize)) -> bool {
        let decides = |rule: usize| {
            counted(self.first_counter + rule);
            self.actions[rule] != RuleAction::Count
        };
        let decided = self.list.find(key, decides);
        decided.map_or(self.default_allow, |rule| self.actions[rule] == RuleAction::Allow)
    }

    /// Rule of a counter that [`allows`](Self::allows) was called with, and its action.
    pub(crate) fn rule(&self, counter: usize) -> Option<(usize, RuleAction)> {
        let rule = counter.checked_sub(self.first_counter)?;
        Some((rule, *self.actions.get(rule)?))
    }

    /// Bits of a key that some rule examines; other bits do not change the result.
    pub(crate) fn mask(&self) -> Words {
        self.list.mask()
    }
}

//! A list ready to be matched.

use crate::matching::{Key, List, Words};

use super::{Acl, RuleAction};

/// The list, and what is done with whoever fits.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    default_allow: bool,
    /// The number of the first rule's counter.
    first_counter: usize,
    actions: Box<[RuleAction]>,
    list: List,
}

impl Compiled {
    /// From a list that was checked.
    pub(crate) fn build(acl: &Acl, first_counter: usize) -> Self {
        Self {
            default_allow: acl.default_allow,
            first_counter,
            actions: acl.rules.iter().map(|rule| rule.action).collect(),
            list: List::build(acl.rules.iter().map(|rule| &rule.matches)),
        }
    }

    /// Whether a frame passes; `counted` gets the counter of every rule that is applied to it.
    pub(crate) fn allows(&self, key: &Key, mut counted: impl FnMut(usize)) -> bool {
        let decides = |rule: usize| {
            counted(self.first_counter + rule);
            self.actions[rule] != RuleAction::Count
        };
        let decided = self.list.find(key, decides);
        decided.map_or(self.default_allow, |rule| self.actions[rule] == RuleAction::Allow)
    }

    /// The bits of a key that some rule looks at: keys that differ in others fare alike.
    pub(crate) fn mask(&self) -> Words {
        self.list.mask()
    }
}

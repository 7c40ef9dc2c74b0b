//! Things that may occur once: sockets, names, indices, addresses.

use std::collections::HashMap;
use std::hash::Hash;

use super::error::Report;

/// What has been seen, and where.
pub(super) struct Unique<K> {
    seen: HashMap<K, (String, usize)>,
}

impl<K: Hash + Eq> Unique<K> {
    pub(super) fn new() -> Self {
        Unique { seen: HashMap::new() }
    }

    /// Notes that `field`, at byte `at`, takes `key`. If another has it, that is an error: `what` is the key in words
    /// as the beginning of a sentence, `remedy` its end.
    pub(super) fn claim(
        &mut self,
        report: &Report<'_>,
        key: K,
        (field, at): (String, usize),
        (what, remedy): (&str, &str),
    ) {
        if let Some((holder, holder_at)) = self.seen.get(&key) {
            let line = report.line(*holder_at);
            let message = format!("{what} is taken by {holder} (line {line}) already; {remedy}");
            report.error(at, field, message);
        } else {
            self.seen.insert(key, (field, at));
        }
    }
}

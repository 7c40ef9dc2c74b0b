//! Crash points: in tests, a process may die between two stores; elsewhere they are empty.

/// Crash point right before a store.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    crate::tests::crash::point();
}

//! Where a process may die between two stores that its successor must make sense of: in tests the
//! moments at which it does, else nothing.

/// A moment right before a store.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    crate::tests::crash::point();
}

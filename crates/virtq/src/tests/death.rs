//! The death of a ring's owner at any store of a publication.

use std::cell::Cell;

thread_local! {
    /// Stores that this thread's owner has yet to live for.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Dies, as a panic, if its time has come.
pub(crate) fn point() {
    let left = LEFT.get();
    if left == 0 {
        LEFT.set(u32::MAX);
        panic!("the owner of the ring dies here");
    }
    if left != u32::MAX {
        LEFT.set(left - 1);
    }
}

//! Words that both sides of a ring share, of real memory or of the model checker's.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// Atomic integer that both sides of a ring share.
pub(crate) trait Shared<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn full_fence();
}

impl Shared<u16> for AtomicU16 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u16 {
        AtomicU16::load(self, order)
    }
    #[inline(always)]
    fn store(&self, value: u16, order: Ordering) {
        AtomicU16::store(self, value, order);
    }
    #[inline(always)]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

impl Shared<u32> for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }
    #[inline(always)]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

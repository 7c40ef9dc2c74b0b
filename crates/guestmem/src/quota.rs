//! Limits on guest memory that a process maps.
//!
//! A mapping of a sparse file costs its owner nothing, but uses addresses of this process, which
//! has 2^47 bytes of them. Without limits one front-end could use all of them, and no other guest
//! could attach.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::MapError;

const MIB: u64 = 1 << 20;

/// Limits in bytes: for one session, and for all together.
#[derive(Debug)]
pub struct Quota {
    session_max: u64,
    total_max: u64,
    /// Bytes mapped by all sessions, or by this one.
    total: AtomicU64,
    /// Quotas of sessions that count against this one.
    sessions: Mutex<Vec<Weak<Quota>>>,
    /// Quota of all sessions, which a session's own quota counts against.
    all: Option<Arc<Quota>>,
}

impl Quota {
    /// Limits for one session and for all together, in bytes.
    pub fn new(session_max: u64, total_max: u64) -> Quota {
        let (total, sessions) = (AtomicU64::new(0), Mutex::default());
        Quota { session_max, total_max, total, sessions, all: None }
    }

    /// The quota of one session: twice its limit. Replaced memory stays mapped until the session's
    /// thread has unmapped it, which its front-end can delay.
    pub fn of_session(self: &Arc<Quota>) -> Arc<Quota> {
        let total_max = self.session_max.saturating_mul(2);
        let quota = Quota { all: Some(self.clone()), ..Quota::new(self.session_max, total_max) };
        let quota = Arc::new(quota);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&quota));
        quota
    }

    /// Limits of one session, and of all together, in bytes.
    pub fn limits(&self) -> [u64; 2] {
        [self.session_max, self.total_max]
    }

    /// Bytes mapped by the session with the most, and by all together.
    pub fn mapped(&self) -> [u64; 2] {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = sessions.iter().filter_map(Weak::upgrade);
        let most = sessions.map(|session| session.total.load(Ordering::Relaxed)).max();
        [most.unwrap_or(0), self.total.load(Ordering::Relaxed)]
    }

    /// Checks the total size of a session's new memory. The memory that it replaces does not count.
    ///
    /// # Errors
    /// [`MapError::SessionQuota`].
    pub fn check_session(&self, sizes: impl Iterator<Item = u64>) -> Result<(), MapError> {
        let bytes = sizes.fold(0, u64::saturating_add);
        if bytes <= self.session_max {
            return Ok(());
        }
        Err(MapError::SessionQuota { bytes, max_mib: self.session_max / MIB })
    }

    /// Reserves bytes of the total, until the result is dropped.
    pub(crate) fn reserve(self: &Arc<Quota>, bytes: u64) -> Result<Reservation, MapError> {
        self.add(bytes)?;
        Ok(Reservation { quota: self.clone(), bytes })
    }

    /// Adds to this total and to that of all sessions.
    fn add(&self, bytes: u64) -> Result<(), MapError> {
        let max_mib = self.total_max / MIB;
        let add = |total: u64| total.checked_add(bytes).filter(|total| *total <= self.total_max);
        // Relaxed: no other data depends on the sum.
        let added = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let Some(all) = &self.all else {
            return added.map(drop).map_err(|total| MapError::TotalQuota { bytes, total, max_mib });
        };
        added.map_err(|total| MapError::SessionQuota {
            bytes: total.saturating_add(bytes),
            max_mib,
        })?;
        let of_all = all.add(bytes);
        if of_all.is_err() {
            self.total.fetch_sub(bytes, Ordering::Relaxed);
        }
        of_all
    }

    /// Subtracts from this total and from that of all sessions.
    fn subtract(&self, bytes: u64) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.all.iter().for_each(|all| all.subtract(bytes));
    }
}

/// A reserved part of the total.
#[derive(Debug)]
pub(crate) struct Reservation {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quota.subtract(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mapping, Pages, SharedFile};

    #[test]
    fn a_session_may_have_its_limit_and_no_more() {
        let quota = Quota::new(4 * MIB, 8 * MIB);
        quota.check_session([MIB, 3 * MIB].into_iter()).unwrap();
        let error = quota.check_session([MIB, 3 * MIB, 1].into_iter()).unwrap_err().to_string();
        assert!(error.contains("4194305 bytes") && error.contains("4 MiB"), "{error}");
        assert!(error.contains("limits.session_memory_mib"), "{error}");
        quota.check_session([u64::MAX, u64::MAX].into_iter()).unwrap_err();
    }

    #[test]
    fn what_is_unmapped_is_given_back() {
        let quota = Arc::new(Quota::new(8 * MIB, 4 * MIB));
        let file = SharedFile::create("quota", 4 * MIB, Pages::Ordinary).unwrap();
        let map = |size| Mapping::new(file.fd(), size, 0).unwrap().charged(&quota);
        let (one, other) = (map(MIB).unwrap(), map(3 * MIB).unwrap());
        let error = map(1).unwrap_err().to_string();
        assert!(error.contains("limits.guest_memory_mib"), "{error}");
        drop(other);
        map(3 * MIB).unwrap();
        drop(one);
        map(4 * MIB).unwrap();
    }

    #[test]
    fn memory_that_is_not_freed_yet_counts_for_its_session_alone() {
        let all = Arc::new(Quota::new(2 * MIB, 8 * MIB));
        let [one, other] = [all.of_session(), all.of_session()];
        let file = SharedFile::create("quota", 4 * MIB, Pages::Ordinary).unwrap();
        let map = |size, quota| Mapping::new(file.fd(), size, 0).unwrap().charged(quota);
        let replaced = (map(2 * MIB, &one).unwrap(), map(2 * MIB, &one).unwrap());
        let error = map(1, &one).unwrap_err().to_string();
        assert!(error.contains("this session") && error.contains("4194305 bytes"), "{error}");
        let others = (map(2 * MIB, &other).unwrap(), map(2 * MIB, &other).unwrap());
        let third = all.of_session();
        map(1, &third).unwrap_err();
        assert_eq!(all.mapped(), [4 * MIB, 8 * MIB]);
        drop(replaced);
        map(2 * MIB, &one).unwrap();
        drop(others);
        drop([one, other]);
        assert_eq!(all.mapped(), [0, 0]);
    }
}

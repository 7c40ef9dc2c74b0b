//! Token buckets, and the storm limit made of one.
//!
//! Model: a bucket fills each nanosecond and is drained by sent bytes or frames. The last burst may
//! overdraw it; then it rests until it is filled again. Amounts are whole numbers of a unit so
//! small that nothing is rounded. For a rate in Mbit/s the unit is a thousandth of a bit, so 1
//! Mbit/s is one unit a nanosecond; for frames a second it is a billionth of a frame. So a rate is
//! exact however long it runs. Over any span it is exceeded by at most one burst size and the
//! overdraft.
//!
//! Limits: rates up to `u32::MAX`. A clock that steps back is taken as standing still.

/// Units of a byte where a nanosecond brings one unit for each Mbit/s.
const BYTE: i64 = 8000;
/// Units of a frame where a nanosecond brings one unit for each frame a second.
const FRAME: i64 = 1_000_000_000;
/// Burst size as a time at the rate, ns, ...
const BURST_NS: u64 = 2_000_000;
/// ... but at least this, so that a frame or two of a slow sender fit, bytes.
const BURST_BYTES_MIN: i64 = 16 * 1024;
/// A sender without tokens waits for a burst of large frames at most, bytes; single frames would
/// cost too much.
const RESUME_BYTES_MAX: i64 = 96 * 1024;
/// Storm limits may accumulate for this part of a second.
const STORM_PARTS: i64 = 10;

/// A token bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units a nanosecond.
    rate: i64,
    /// Units of one byte or frame.
    unit: i64,
    /// Maximum number of units.
    size: i64,
    level: i64,
    /// Time of the last fill, ns.
    at_ns: u64,
}

impl TokenBucket {
    /// A full bucket of bytes at a rate in Mbit/s, which holds what the rate yields in 2 ms, and
    /// 16 KiB at least.
    pub fn of_bytes(mbit: u32, now_ns: u64) -> Self {
        let rate = i64::from(mbit);
        let size = (rate * BURST_NS as i64).max(BURST_BYTES_MIN * BYTE);
        Self { rate, unit: BYTE, size, level: size, at_ns: now_ns }
    }

    /// An empty bucket of bytes at a rate in Mbit/s, which holds what the rate yields in `ns`.
    pub(crate) fn of_time(mbit: u32, ns: u64, now_ns: u64) -> Self {
        let rate = i64::from(mbit);
        let size = rate.saturating_mul(ns.min(i64::MAX as u64) as i64);
        Self { rate, unit: BYTE, size, level: 0, at_ns: now_ns }
    }

    /// A full bucket of frames, which holds those of a tenth of a second, and one at least.
    pub fn of_frames(per_second: u32, now_ns: u64) -> Self {
        let rate = i64::from(per_second);
        let size = (rate * FRAME / STORM_PARTS).max(FRAME);
        Self { rate, unit: FRAME, size, level: size, at_ns: now_ns }
    }

    /// A full bucket of frames, which holds what the rate yields in 2 ms, and 64 at least.
    pub(crate) fn of_packets(per_second: u32, now_ns: u64) -> Self {
        let rate = i64::from(per_second);
        let size = (rate * BURST_NS as i64).max(64 * FRAME);
        Self { rate, unit: FRAME, size, level: size, at_ns: now_ns }
    }

    /// Burst size: maximum bytes or frames in it.
    pub const fn size(&self) -> i64 {
        self.size / self.unit
    }

    /// Bytes or frames in it now, rounded down; below zero if it is overdrawn.
    #[inline]
    pub fn fill(&mut self, now_ns: u64) -> i64 {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        if elapsed_ns > 0 {
            self.at_ns = now_ns;
            let room = self.size - self.level;
            let elapsed_ns = elapsed_ns.min(i64::MAX as u64) as i64;
            self.level += self.rate.saturating_mul(elapsed_ns).min(room);
        }
        self.level.div_euclid(self.unit)
    }

    /// Takes bytes or frames out, even beyond its contents.
    #[inline]
    pub fn take(&mut self, amount: u64) {
        let units = self.unit.saturating_mul(amount.min(i64::MAX as u64) as i64);
        // An overdraft beyond the range stays for ever.
        self.level = self.level.saturating_sub(units);
    }

    /// Takes bytes or frames out, but limits the debt to this amount or a fifth of its size.
    #[inline]
    pub(crate) fn take_forgiving(&mut self, amount: u64) {
        let units = self.unit.saturating_mul(amount.min(i64::MAX as u64) as i64);
        self.level = forgiving(self.level, units, units.max(self.size / 5));
    }

    /// Forgets what was saved.
    #[inline]
    pub(crate) fn spill(&mut self) {
        self.level = self.level.min(0);
    }

    /// Returns `true` if it is not empty, as of the last [`fill`](Self::fill).
    #[inline]
    pub(crate) const fn has_any(&self) -> bool {
        self.level >= self.unit
    }

    /// Bytes that an emptied bucket should have again before more is sent: a quarter of what it
    /// holds, and a burst of large frames at most.
    pub(crate) fn resume(&self) -> i64 {
        (self.size / self.unit / 4).clamp(1, RESUME_BYTES_MAX)
    }

    /// Time at which it holds `amount` bytes or frames if nothing is taken, ns; `u64::MAX` for
    /// never.
    pub fn ready_ns(&self, amount: i64) -> u64 {
        let missing = self.unit.saturating_mul(amount).saturating_sub(self.level).max(0);
        if amount > self.size() || (missing > 0 && self.rate == 0) {
            return u64::MAX;
        }
        let wait_ns = if missing == 0 { 0 } else { (missing - 1) / self.rate + 1 };
        self.at_ns.saturating_add(wait_ns as u64)
    }
}

/// Credit left after using an amount; the debt from that is at most `debt_max`.
#[inline]
pub(crate) fn forgiving(credit: i64, amount: i64, debt_max: i64) -> i64 {
    credit.min(credit.saturating_sub(amount).max(-debt_max))
}

/// The broadcasts and multicasts that a function may send, in frames a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StormLimit {
    /// None without a limit.
    bucket: Option<TokenBucket>,
}

impl StormLimit {
    /// A limit in frames a second, of which a tenth may come at once; 0 for no limit.
    pub fn new(per_second: u32, now_ns: u64) -> Self {
        Self { bucket: (per_second > 0).then(|| TokenBucket::of_frames(per_second, now_ns)) }
    }

    /// Number of `frames` to groups that may pass now; drop the others as
    /// [`Storm`](crate::DropReason::Storm).
    #[inline]
    pub fn admit(&mut self, frames: u32, now_ns: u64) -> u32 {
        let Some(bucket) = &mut self.bucket else { return frames };
        let there = bucket.fill(now_ns).clamp(0, i64::from(frames)) as u32;
        bucket.take(u64::from(there));
        there
    }

    /// Charges segments and copies of frames that were admitted. The limit may be overdrawn; then
    /// no frame is admitted until it has recovered.
    #[inline]
    pub fn charge(&mut self, frames: u32) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(u64::from(frames));
        }
    }

    /// Number of frames that could be admitted now; `u32::MAX` without a limit.
    #[inline]
    pub fn room(&mut self, now_ns: u64) -> u32 {
        let Some(bucket) = &mut self.bucket else { return u32::MAX };
        bucket.fill(now_ns).clamp(0, i64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_is_stated_of_its_size() {
        for (mbit, size) in [(1, 16 * 1024), (100, 25_000), (10_000, 2_500_000)] {
            assert_eq!(TokenBucket::of_bytes(mbit, 7).size(), size);
        }
        assert_eq!(TokenBucket::of_frames(1000, 0).size(), 100);
        assert_eq!(TokenBucket::of_frames(3, 0).size(), 1);
    }

    #[test]
    fn not_a_byte_is_lost_in_a_year() {
        // 7 Mbit/s is 7/8000 bytes a ns: never a whole number of them. An odd step, a long time.
        let (mut bucket, step, mut now) = (TokenBucket::of_bytes(7, 0), 7_919_237, 0);
        bucket.take(bucket.size() as u64);
        let mut taken = 0;
        for _ in 0..4_000_000 {
            now += step;
            let there = bucket.fill(now).max(0) as u64;
            bucket.take(there);
            taken += there;
        }
        let yielded = u128::from(now) * 7 / 8000;
        assert_eq!(u128::from(taken), yielded);
    }

    #[test]
    fn times_that_make_no_sense() {
        let mut bucket = TokenBucket::of_bytes(u32::MAX, 5 * SECOND);
        bucket.take(u64::MAX);
        assert!(bucket.fill(0) < 0 && bucket.fill(5 * SECOND) < 0);
        assert!(bucket.fill(u64::MAX) <= bucket.size());
        let mut bucket = TokenBucket::of_bytes(10, 0);
        bucket.take(bucket.size() as u64);
        assert_eq!(bucket.fill(u64::MAX), bucket.size());
        assert_eq!(TokenBucket::of_time(0, SECOND, 0).ready_ns(1), u64::MAX);
    }

    #[test]
    fn storms() {
        let mut limit = StormLimit::new(1000, 0);
        assert_eq!(limit.admit(64, 0), 64);
        assert_eq!(limit.admit(64, 0), 36);
        assert_eq!(limit.admit(64, 0), 0);
        assert_eq!(limit.admit(64, 999_999), 0);
        assert_eq!(limit.admit(64, 1_000_000), 1);
        let passed: u32 = (1..=10_000).map(|n| limit.admit(9, n * SECOND / 1000)).sum();
        assert!((9_999..=10_000).contains(&passed), "{passed}");
        assert_eq!(StormLimit::new(0, 0).admit(64, 0), 64);
    }

    #[test]
    fn what_comes_of_a_frame_is_paid_before_the_next() {
        let mut limit = StormLimit::new(1000, 0);
        assert_eq!((limit.room(0), limit.admit(1, 0)), (100, 1));
        limit.charge(63);
        assert_eq!(limit.room(0), 36);
        // 512 segments, for 63 peers each: 32 255 frames more than there are.
        limit.charge(512 * 63 + 35);
        let paid_ns = 32_255_000_000;
        assert_eq!((limit.room(paid_ns), limit.admit(1, paid_ns)), (0, 0));
        assert_eq!((limit.room(paid_ns + 1_000_000), limit.admit(2, paid_ns + 1_000_000)), (1, 1));
        let mut unlimited = StormLimit::new(0, 0);
        unlimited.charge(u32::MAX);
        assert_eq!((unlimited.room(0), unlimited.admit(64, 0)), (u32::MAX, 64));
    }

    proptest! {
        #[test]
        fn ready_is_the_first_moment(mbit in 1_u32..400_000, taken in 0_u64..10_000_000, amount in 1_i64..16_384) {
            let mut bucket = TokenBucket::of_bytes(mbit, 1000);
            bucket.take(taken);
            let ready = bucket.ready_ns(amount);
            prop_assert!(bucket.clone().fill(ready) >= amount);
            prop_assert!(ready == 1000 || bucket.fill(ready - 1) < amount);
        }
    }
}

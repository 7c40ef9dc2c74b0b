//! Runs: consecutive frames of a source with the same result of VLAN rules, guards and ACL.

use wire::HeaderSnapshot;

use crate::matching::{Layout, PlainMask};
use crate::switch::flows::Outcome;
use crate::switch::source::Screen;

/// Result of a frame, which holds for every frame that is [alike](Self::covered) as long as the
/// table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Of a plain frame; `None` of a frame that is no example for others.
    pub(crate) layout: Option<Layout>,
    /// Its VLAN, if it was admitted.
    pub(crate) vid: Option<u16>,
    /// Of a frame that was not admitted to pass: the classifier rejects it.
    pub(crate) outcome: Outcome,
}

impl Run {
    /// Covers no frame.
    pub(crate) const NONE: Self = Self { layout: None, vid: None, outcome: Outcome::pass() };

    /// Number of the leading frames of `snapshots` that surely have this result, which is of
    /// `first`.
    #[inline(always)]
    pub(crate) fn covered(
        &self,
        screen: &Screen,
        first: &HeaderSnapshot,
        snapshots: &[HeaderSnapshot],
    ) -> usize {
        let (Some(layout), Some(next)) = (self.layout, snapshots.first()) else { return 0 };
        let mask = &screen.plain[layout as usize];
        // Among many flows, most runs end here.
        if !mask.is_like(first, next) {
            return 0;
        }
        covered(mask, first, snapshots)
    }
}

#[inline(never)]
fn covered(mask: &PlainMask, first: &HeaderSnapshot, snapshots: &[HeaderSnapshot]) -> usize {
    let other = snapshots.iter().position(|snapshot| !mask.is_like(first, snapshot));
    other.unwrap_or(snapshots.len())
}

/// The last run of a source, and its first frame.
#[derive(Clone, Debug)]
pub(crate) struct LastRun {
    pub(crate) run: Run,
    pub(crate) first: HeaderSnapshot,
}

impl LastRun {
    /// Covers no frame.
    pub(crate) const NONE: Self = Self { run: Run::NONE, first: HeaderSnapshot::EMPTY };
}

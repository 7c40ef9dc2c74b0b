//! The points of one pattern, looked at along their dimensions: path, frame size, guests.

use std::collections::BTreeSet;

use super::model::{PathKind, Pattern, Point};

/// The points of one pattern, in the order of frame size, guests, path.
pub(super) struct View<'a> {
    pub(super) pattern: Pattern,
    pub(super) points: Vec<&'a Point>,
}

impl<'a> View<'a> {
    /// The points of `pattern` among `all`.
    pub(super) fn new(all: &'a [Point], pattern: Pattern) -> View<'a> {
        let mut points: Vec<_> = all.iter().filter(|point| point.pattern == pattern).collect();
        points.sort_by_key(|point| (point.frame_bytes, point.vms, point.path));
        View { pattern, points }
    }

    /// A view for each pattern that was measured.
    pub(super) fn each(all: &'a [Point]) -> Vec<View<'a>> {
        let views = Pattern::ALL.into_iter().map(|pattern| View::new(all, pattern));
        views.filter(|view| !view.points.is_empty()).collect()
    }

    /// The paths measured.
    pub(super) fn paths(&self) -> BTreeSet<PathKind> {
        self.points.iter().map(|point| point.path).collect()
    }

    /// The frame sizes measured.
    pub(super) fn frames(&self) -> BTreeSet<u32> {
        self.points.iter().map(|point| point.frame_bytes).collect()
    }

    /// The numbers of guests measured.
    pub(super) fn vms(&self) -> BTreeSet<u32> {
        self.points.iter().map(|point| point.vms).collect()
    }

    /// The one point for these; the one of median Mpps (the lower of two) if it was measured more than once.
    pub(super) fn at(&self, path: PathKind, frame_bytes: u32, vms: u32) -> Option<&'a Point> {
        let key = (path, frame_bytes, vms);
        let same = |point: &&&Point| (point.path, point.frame_bytes, point.vms) == key;
        let mut found: Vec<&'a Point> = self.points.iter().filter(same).copied().collect();
        found.sort_by(|a, b| a.mpps.total_cmp(&b.mpps));
        found.get(found.len().saturating_sub(1) / 2).copied()
    }

    /// One point per number of guests.
    pub(super) fn line(&self, path: PathKind, frame_bytes: u32) -> Vec<&'a Point> {
        self.vms().into_iter().filter_map(|vms| self.at(path, frame_bytes, vms)).collect()
    }

    /// Every place of the grid that was measured, once, in the order of frame size, guests, path.
    pub(super) fn grid(&self) -> Vec<&'a Point> {
        let mut keys: Vec<_> =
            self.points.iter().map(|point| (point.frame_bytes, point.vms, point.path)).collect();
        keys.dedup();
        keys.into_iter().filter_map(|(frame, vms, path)| self.at(path, frame, vms)).collect()
    }
}

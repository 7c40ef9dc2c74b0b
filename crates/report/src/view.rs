//! Points of one kind of traffic, by path, frame size and guests.

use std::collections::{BTreeMap, BTreeSet};

use super::results::{GeneratorLoad, PathKind, Pattern, Point, RingKind};
use crate::statistics::quantile::median_item;

/// Kind of traffic, shown and compared by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrafficKind {
    /// Pattern.
    pub pattern: Pattern,
    /// Load of the generator.
    pub load: GeneratorLoad,
    /// Rings of the guests.
    pub ring: RingKind,
}

impl TrafficKind {
    /// The kind of a point.
    pub fn of(point: &Point) -> TrafficKind {
        TrafficKind { pattern: point.pattern, load: point.load, ring: point.ring }
    }

    /// Heading: the pattern, and load and rings if they are not the usual ones.
    pub fn title(&self) -> String {
        let unusual = self.unusual().into_iter();
        unusual.fold(self.pattern.title().to_owned(), |title, part| title + ", " + &part)
    }

    /// Name without spaces, for links and narrow tables.
    pub fn id(&self) -> String {
        let unusual = self.unusual().into_iter();
        let id = unusual.fold(self.pattern.to_string(), |id, part| id + "-" + &part);
        id.replace(" rings", "")
    }

    fn unusual(&self) -> Vec<String> {
        let load = (self.load != GeneratorLoad::Closed).then(|| self.load.to_string());
        let ring = (self.ring != RingKind::Split).then(|| format!("{} rings", self.ring));
        load.into_iter().chain(ring).collect()
    }
}

/// Points of one kind of traffic, in the order of frame size, guests, path.
pub(super) struct TrafficView<'a> {
    pub(super) kind: TrafficKind,
    pub(super) points: Vec<&'a Point>,
}

impl<'a> TrafficView<'a> {
    /// A view for each kind of traffic among these points.
    pub(super) fn each(points: impl IntoIterator<Item = &'a Point>) -> Vec<TrafficView<'a>> {
        let mut kinds: BTreeMap<TrafficKind, Vec<&'a Point>> = BTreeMap::new();
        for point in points {
            kinds.entry(TrafficKind::of(point)).or_default().push(point);
        }
        let view = |(kind, mut points): (TrafficKind, Vec<&'a Point>)| {
            points.sort_by_key(|point| (point.frame_bytes, point.vms, point.path));
            TrafficView { kind, points }
        };
        kinds.into_iter().map(view).collect()
    }

    /// The measured paths.
    pub(super) fn paths(&self) -> BTreeSet<PathKind> {
        self.points.iter().map(|point| point.path).collect()
    }

    /// The measured frame sizes.
    pub(super) fn frames(&self) -> BTreeSet<u32> {
        self.points.iter().map(|point| point.frame_bytes).collect()
    }

    /// The measured numbers of guests.
    pub(super) fn vms(&self) -> BTreeSet<u32> {
        self.points.iter().map(|point| point.vms).collect()
    }

    /// Every slot of these, in the order of measurement.
    pub(super) fn all(
        &self,
        path: PathKind,
        frame_bytes: u32,
        vms: u32,
    ) -> impl Iterator<Item = &'a Point> + '_ {
        let key = (path, frame_bytes, vms);
        let points = self.points.iter().copied();
        points.filter(move |point| (point.path, point.frame_bytes, point.vms) == key)
    }

    /// The single point for these: the median by Mpps (the lower of two) of its steady slots, or of
    /// all slots if none is steady.
    pub(super) fn at(&self, path: PathKind, frame_bytes: u32, vms: u32) -> Option<&'a Point> {
        let mut found: Vec<&'a Point> = self.all(path, frame_bytes, vms).collect();
        if found.iter().any(|point| point.is_steady()) {
            found.retain(|point| point.is_steady());
        }
        median_item(&found, |point| point.mpps).copied()
    }

    /// One point per number of guests.
    pub(super) fn line(&self, path: PathKind, frame_bytes: u32) -> Vec<&'a Point> {
        self.vms().into_iter().filter_map(|vms| self.at(path, frame_bytes, vms)).collect()
    }

    /// Every measured configuration once, in the order of frame size, guests, path.
    pub(super) fn grid(&self) -> Vec<&'a Point> {
        let mut keys: Vec<_> =
            self.points.iter().map(|point| (point.frame_bytes, point.vms, point.path)).collect();
        keys.dedup();
        keys.into_iter().filter_map(|(frame, vms, path)| self.at(path, frame, vms)).collect()
    }
}

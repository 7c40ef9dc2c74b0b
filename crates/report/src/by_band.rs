//! Cycles of places that were measured often, by the distance of the CPUs.
//!
//! What a frame costs follows the distance, so a median over all slots of a place tells how often
//! the CPUs were near as much as what the switch does. Of each band with [`SLOTS_MIN`] slots the
//! median is told, of others only how many slots they have.

use super::figure::three;
use super::results::{PathKind, Point};
use super::view::TrafficKind;
use crate::statistics::bands::Band;
use crate::statistics::quantile::median;

/// Fewest slots of a band whose median is told: those of a place in `nfv`.
pub const SLOTS_MIN: usize = 4;

/// A place: one path of one kind of traffic, with one frame size and number of guests.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Traffic.
    pub kind: TrafficKind,
    /// Path.
    pub path: PathKind,
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Guests.
    pub vms: u32,
    /// Every band, nearest first: slots, and the median cycles for a delivered frame.
    pub bands: Vec<(Band, usize, Option<f64>)>,
}

/// Places that have a band with enough slots.
pub fn places(points: &[Point]) -> Vec<Place> {
    let mut keys: Vec<_> = points.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let place = |(kind, frame_bytes, vms, path)| {
        let slots = points.iter().filter(|point| key(point) == (kind, frame_bytes, vms, path));
        let slots = slots.filter(|point| point.is_steady());
        let slots: Vec<&Point> = slots.collect();
        let band = |band: Band| {
            let within = slots
                .iter()
                .filter(|point| point.round_trip_cycles.and_then(Band::of) == Some(band));
            let cycles: Vec<f64> = within.filter_map(|it| it.switch_cycles_per_frame).collect();
            let told = median(&cycles).filter(|_| cycles.len() >= SLOTS_MIN);
            (band, cycles.len(), told)
        };
        Place { kind, path, frame_bytes, vms, bands: Band::ALL.map(band).into() }
    };
    let places = keys.into_iter().map(place);
    places.filter(|place| place.bands.iter().any(|(.., told)| told.is_some())).collect()
}

fn key(point: &Point) -> (TrafficKind, u32, u32, PathKind) {
    (TrafficKind::of(point), point.frame_bytes, point.vms, point.path)
}

/// A band in words: its median, how few slots it has, or that it is empty.
pub(super) fn cell((_, slots, told): &(Band, usize, Option<f64>)) -> String {
    match (slots, told) {
        (slots, Some(cycles)) => format!("{} ({slots})", three(*cycles)),
        (0, None) => "empty".into(),
        (slots, None) => format!("few ({slots})"),
    }
}

/// The places as a table for the terminal; empty without any.
pub fn text(points: &[Point]) -> String {
    let places = places(points);
    if places.is_empty() {
        return String::new();
    }
    let mut text =
        "Cycles a delivered frame by round trip between the CPUs: median (slots)\n".to_owned();
    text += &format!(
        "{:<29}{:>12}{:>12}{:>12}{:>12}\n",
        "", "under 120", "120-300", "300-600", "over 600"
    );
    for place in places {
        let Place { kind, path, frame_bytes, vms, bands } = &place;
        let what = format!("{} {path} {frame_bytes} B x{vms}", kind.id());
        let cells: String = bands.iter().map(|band| format!("{:>12}", cell(band))).collect();
        text += &format!("{what:<29}{cells}\n");
    }
    let left_out = points.iter().filter(|point| !point.is_steady()).count();
    if left_out > 0 {
        text += &format!(
            "Left out: {left_out} slots whose CPUs moved, were used by others, or that lost \
             frames\n"
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::results::Pattern;
    use super::super::samples::point;
    use super::*;

    #[test]
    fn each_band_is_told_with_its_median_or_that_it_has_too_few() {
        let slot = |cycles: f64, distance: f64| {
            let mut slot = point(Pattern::EastWest, PathKind::Vf, 64, 2, 10.0);
            slot.switch_cycles_per_frame = Some(cycles);
            slot.round_trip_cycles = Some(distance);
            slot
        };
        let near = (0..9).map(|n| slot(40.0 + f64::from(n), 100.0));
        let far = (0..3).map(|n| slot(90.0 + f64::from(n), 700.0));
        let points: Vec<Point> = near.chain(far).collect();
        let [place] = &places(&points)[..] else { panic!("one place") };
        let cells: Vec<String> = place.bands.iter().map(cell).collect();
        assert_eq!(cells, ["44.0 (9)", "empty", "empty", "few (3)"]);
        let text = text(&points);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(places(&points[..3]).is_empty(), "three slots are too few");
    }
}

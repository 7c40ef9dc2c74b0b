//! Cycles of repeatedly measured configurations, by CPU distance.
//!
//! The cost of a frame follows the distance, so a median over all slots depends on how often the
//! CPUs were near. Bands with at least [`SLOTS_MIN`] slots show their median, others their number
//! of slots.

use super::format::three;
use super::results::{PathKind, Point};
use super::view::TrafficKind;
use crate::statistics::bands::Band;
use crate::statistics::quantile::median;
use crate::text_table::{Align, TextFormat};

/// Minimum number of slots for a band's median: those of a configuration in `nfv`.
pub const SLOTS_MIN: usize = 4;

/// Configuration: traffic, path, frame size and number of guests, with its distance bands.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigBands {
    /// Kind of traffic.
    pub kind: TrafficKind,
    /// Path.
    pub path: PathKind,
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Number of guests.
    pub vms: u32,
    /// Every band, nearest first: number of slots, and median cycles for each delivered frame.
    pub bands: Vec<(Band, usize, Option<f64>)>,
}

/// Configurations with at least one band of enough slots.
pub fn by_config(points: &[Point]) -> Vec<ConfigBands> {
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
        ConfigBands { kind, path, frame_bytes, vms, bands: Band::ALL.map(band).into() }
    };
    let places = keys.into_iter().map(place);
    places.filter(|place| place.bands.iter().any(|(.., told)| told.is_some())).collect()
}

fn key(point: &Point) -> (TrafficKind, u32, u32, PathKind) {
    (TrafficKind::of(point), point.frame_bytes, point.vms, point.path)
}

/// Text of a band: its median, or its number of slots.
pub(super) fn cell((_, slots, told): &(Band, usize, Option<f64>)) -> String {
    match (slots, told) {
        (slots, Some(cycles)) => format!("{} ({slots})", three(*cycles)),
        (0, None) => "empty".into(),
        (slots, None) => format!("few ({slots})"),
    }
}

/// Table for the terminal; empty without configurations.
pub fn text(points: &[Point], format: TextFormat) -> String {
    let places = by_config(points);
    if places.is_empty() {
        return String::new();
    }
    let mut text =
        "Cycles per delivered frame by round trip between the CPUs: median (slots)\n".to_owned();
    let row = |place: &ConfigBands| {
        let ConfigBands { kind, path, frame_bytes, vms, bands } = place;
        let what = format!("{} {path} {frame_bytes} B x{vms}", kind.id());
        std::iter::once(what).chain(bands.iter().map(cell)).collect()
    };
    let columns = [
        ("configuration", Align::Left),
        ("under 120", Align::Right),
        ("120-300", Align::Right),
        ("300-600", Align::Right),
        ("over 600", Align::Right),
    ];
    text += &format.table(&columns, places.iter().map(row).collect());
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
        let [place] = &by_config(&points)[..] else { panic!("one place") };
        let cells: Vec<String> = place.bands.iter().map(cell).collect();
        assert_eq!(cells, ["44.0 (9)", "empty", "empty", "few (3)"]);
        let text = text(&points, TextFormat::PLAIN);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(by_config(&points[..3]).is_empty(), "three slots are too few");
    }
}

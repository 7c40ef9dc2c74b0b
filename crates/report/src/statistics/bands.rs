//! Distance bands: groups of CPU pairs by the round trip of a cache line between them.
//!
//! Cycles per frame follow the distance of the CPUs that share the rings, which changes from second
//! to second on a virtual machine. Values are compared within a band. The limits are fixed, so that
//! runs of different days and machines have the same bands. They lie between the usual round trips
//! of about 100 cycles (one core), 200 to 300 (one cache) and 1000 (neither).

use std::fmt;

use super::CyclePair;

/// Band of round trips between two CPUs, in time-stamp cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Below 120 cycles.
    Under120,
    /// From 120 to below 300 cycles.
    From120,
    /// From 300 to below 600 cycles.
    From300,
    /// 600 cycles and more.
    From600,
}

impl Band {
    /// All bands, nearest first.
    pub const ALL: [Band; 4] = [Band::Under120, Band::From120, Band::From300, Band::From600];

    /// Band of a round trip in cycles; `None` unless it is a number above 0.
    pub fn of(round_trip_cycles: f64) -> Option<Band> {
        match round_trip_cycles {
            cycles if cycles.is_nan() || cycles <= 0.0 => None,
            cycles if cycles < 120.0 => Some(Band::Under120),
            cycles if cycles < 300.0 => Some(Band::From120),
            cycles if cycles < 600.0 => Some(Band::From300),
            _ => Some(Band::From600),
        }
    }

    /// Band of two round trips of the same CPUs; `None` if these moved in between. Round trips
    /// within the measurement noise belong to one band, that of their mean.
    pub fn of_both(one: f64, other: f64) -> Option<Band> {
        let bands = [Band::of(one)?, Band::of(other)?];
        let is_one_place = bands[0] == bands[1] || one.max(other) <= SAME_PLACE * one.min(other);
        is_one_place.then(|| Band::of(one.midpoint(other))).flatten()
    }
}

/// Maximum ratio of two round trips between CPUs that did not move. A shared virtual machine
/// measured 288 to 353 cycles for one pair.
const SAME_PLACE: f64 = 1.25;

/// Maximum ratio of two round trips that count as one distance outside of bands: for a steady
/// measurement, and for points of one machine.
const NEAR: f64 = 1.5;

/// `true` if two round trips count as one distance outside of bands; [`Band::of_both`] is narrower.
pub fn are_near(one: f64, other: f64) -> bool {
    one.max(other) <= NEAR * one.min(other)
}

/// Distance of a slot in cycles, from the round trips before and after it: their mean, or 0, which
/// is in no band, if the CPUs moved in between.
pub fn around(before: f64, after: f64) -> f64 {
    if Band::of_both(before, after).is_some() { before.midpoint(after) } else { 0.0 }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Band::Under120 => "under 120 cycles",
            Band::From120 => "120-300 cycles",
            Band::From300 => "300-600 cycles",
            Band::From600 => "600 cycles and more",
        })
    }
}

/// One of the two measurements of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotSample {
    /// Cycles per frame.
    pub cycles_per_frame: f64,
    /// Round trip between the CPUs during the measurement, in cycles.
    pub round_trip_cycles: f64,
}

/// Measurements of both builds, one right after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedSlots {
    /// Build A, the baseline.
    pub a: SlotSample,
    /// Build B, the candidate.
    pub b: SlotSample,
}

/// Pairs of one band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandPairs {
    /// The band.
    pub band: Band,
    /// Its pairs, in the order of measurement.
    pub pairs: Vec<CyclePair>,
    /// Minimum number of pairs for a verdict on this band alone.
    pub pairs_min: usize,
}

impl BandPairs {
    /// `true` if there are enough pairs for a verdict on this band alone.
    pub fn is_sufficient(&self) -> bool {
        self.pairs.len() >= self.pairs_min
    }
}

impl fmt::Display for BandPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BandPairs { band, pairs, pairs_min } = self;
        match pairs.len() {
            0 => write!(f, "{band}: no pairs")?,
            1 => write!(f, "{band}: 1 pair")?,
            n => write!(f, "{band}: {n} pairs")?,
        }
        let is_short = !pairs.is_empty() && !self.is_sufficient();
        if is_short { write!(f, ", too few for a verdict (minimum {pairs_min})") } else { Ok(()) }
    }
}

/// All pairs of a comparison, by band.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// Every band, nearest first, also those without pairs.
    pub bands: Vec<BandPairs>,
    /// Number of pairs whose CPUs moved between the slots.
    pub moved: usize,
    /// Number of pairs with a slot of unknown distance.
    pub unknown: usize,
}

impl Grouped {
    /// Groups pairs by band; a verdict on one band alone needs at least `pairs_min`.
    pub fn new(slots: &[PairedSlots], pairs_min: usize) -> Grouped {
        let bands = Band::ALL.map(|band| BandPairs { band, pairs: Vec::new(), pairs_min });
        let mut grouped = Grouped { bands: bands.into(), moved: 0, unknown: 0 };
        for PairedSlots { a, b } in slots {
            let [one, other] = [a.round_trip_cycles, b.round_trip_cycles];
            match Band::of_both(one, other) {
                Some(band) => {
                    let pair = CyclePair { a: a.cycles_per_frame, b: b.cycles_per_frame };
                    grouped.bands[band as usize].pairs.push(pair);
                }
                None if Band::of(one).and(Band::of(other)).is_some() => grouped.moved += 1,
                None => grouped.unknown += 1,
            }
        }
        grouped
    }

    /// Pairs of every non-empty band, for [`super::permutation::compare_stratified`]. Bands too
    /// small for their own verdict count too.
    pub fn strata(&self) -> Vec<&[CyclePair]> {
        let strata = self.bands.iter().map(|band| &band.pairs[..]);
        strata.filter(|pairs| !pairs.is_empty()).collect()
    }
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for band in &self.bands {
            writeln!(f, "{band}")?;
        }
        write!(f, "the CPUs moved: {} pairs; distance unknown: {}", self.moved, self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(round_trip_a: f64, round_trip_b: f64, a: f64) -> PairedSlots {
        let slot = |cycles_per_frame, round_trip_cycles| SlotSample {
            cycles_per_frame,
            round_trip_cycles,
        };
        PairedSlots { a: slot(a, round_trip_a), b: slot(2.0 * a, round_trip_b) }
    }

    #[test]
    fn limits_belong_to_the_band_above() {
        let of = |cycles| Band::of(cycles).unwrap();
        assert_eq!([of(1.0), of(119.9)], [Band::Under120; 2]);
        assert_eq!([of(120.0), of(299.9)], [Band::From120; 2]);
        assert_eq!([of(300.0), of(599.9)], [Band::From300; 2]);
        assert_eq!([of(600.0), of(f64::INFINITY)], [Band::From600; 2]);
        assert_eq!([0.0, -1.0, f64::NAN].map(Band::of), [None; 3]);
        assert!(Band::ALL.is_sorted());
        assert!(Band::ALL.iter().enumerate().all(|(i, band)| *band as usize == i));
    }

    #[test]
    fn a_place_near_a_limit_is_one_place() {
        assert_eq!(Band::of_both(288.0, 310.0), Some(Band::From120));
        assert_eq!(Band::of_both(299.0, 353.0), Some(Band::From300));
        assert_eq!(Band::of_both(288.0, 361.0), None);
        assert_eq!(Band::of_both(130.0, 290.0), Some(Band::From120), "both are in one band");
        assert_eq!(Band::of_both(0.0, 100.0), None);
        assert_eq!(around(288.0, 310.0), 299.0);
        assert_eq!(around(100.0, 300.0), 0.0);
    }

    #[test]
    fn every_pair_is_in_a_band_or_counted() {
        let mut all = vec![slots(100.0, 110.0, 1.0), slots(100.0, 300.0, 2.0)];
        all.extend([slots(119.0, 120.0, 3.0), slots(f64::NAN, 100.0, 4.0)]);
        all.extend((5..8).map(|i| slots(400.0, 500.0, f64::from(i))));
        let grouped = Grouped::new(&all, 3);
        let counts: Vec<usize> = grouped.bands.iter().map(|band| band.pairs.len()).collect();
        assert_eq!((counts, grouped.moved, grouped.unknown), (vec![2, 0, 3, 0], 1, 1));
        assert_eq!(grouped.bands[2].pairs[1], CyclePair { a: 6.0, b: 12.0 });
        assert_eq!(grouped.strata().iter().map(|pairs| pairs.len()).sum::<usize>(), 5);
        let expected = "under 120 cycles: 2 pairs, too few for a verdict (minimum 3)\n\
                        120-300 cycles: no pairs\n\
                        300-600 cycles: 3 pairs\n\
                        600 cycles and more: no pairs\n\
                        the CPUs moved: 1 pairs; distance unknown: 1";
        assert_eq!(grouped.to_string(), expected);
    }

    #[test]
    fn without_pairs_every_band_is_empty() {
        let grouped = Grouped::new(&[], 1);
        assert!(grouped.bands.iter().all(|band| band.pairs.is_empty() && !band.is_sufficient()));
        assert!(grouped.strata().is_empty());
    }
}

//! Compares two builds, or two switches, at one point: is one faster?
//!
//! # Model
//! Both are measured in short slots, each with fresh processes, in the order A B B A, so that drift
//! affects both alike. The first slot of A and the first of B are a pair, and so on. The round trip
//! of a cache line between both CPUs is measured before and after each slot. Pairs are grouped by
//! bands of that distance, and one permutation test, within the bands, separates a difference from
//! noise. Guests and generator are of this program on both sides.
//!
//! Programs are copied into memory every two pairs. While a file is in the page cache, its text has
//! the same physical pages, which makes two identical files differ by some 0.5 % in every slot;
//! with copies this becomes noise.
//!
//! # Limits
//! A pair is excluded, and counted, if the CPUs moved between its slots. A difference below the
//! detectable one is not proof of equality: the result is that no difference was found.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use report::Align::{Left, Right};
use report::statistics::CyclePair;
use report::statistics::bands::{BandPairs, Grouped, PairedSlots, SlotSample};
use report::statistics::permutation::{self, Comparison, PairedVerdict};
use report::statistics::quantile::median;
use report::statistics::random::Random;
use report::{Point, TextFormat};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;

use super::forwarding::{self, PointSpec, SwitchProgram};
use super::step::Machine;
use crate::bench::interrupt;

/// Probability of a difference found between two identical builds.
pub const ALPHA: f64 = 0.01;
/// Minimum pairs of a band whose medians are reported.
pub const PAIRS_MIN: usize = 8;
/// Command-line name of the bare loop.
const BARE: &str = "bare";

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// A program: a build of shunt.
    Program(PathBuf),
    /// The bare loop, which spins so many time-stamp cycles for each frame.
    Bare(u64),
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Side, String> {
        if let Some(rest) = text.strip_prefix(BARE) {
            let cycles = match rest {
                "" => Some(0),
                rest => rest.strip_prefix('+').and_then(|cycles| cycles.parse().ok()),
            };
            let error =
                || format!("{text:?}: bare, or bare+CYCLES; for a program of this name, ./{text}");
            return cycles.map(Side::Bare).ok_or_else(error);
        }
        // A word without a slash is a file here, not a command of PATH.
        let program = std::path::absolute(text).map_err(|error| error.to_string())?;
        match program.is_file() {
            true => Ok(Side::Program(program)),
            false if program.is_dir() => Err(format!(
                "{text:?} is a directory; expected a program. Runs that were measured at different \
                 times are not compared: the machine changes more than builds do"
            )),
            false => Err(format!("{text:?} is no file; expected a program, bare or bare+CYCLES")),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Program(program) => write!(f, "{}", program.display()),
            Side::Bare(0) => f.write_str(BARE),
            Side::Bare(cycles) => write!(f, "{BARE}+{cycles}"),
        }
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug)]
pub struct CompareSettings {
    /// A, the baseline, and B.
    pub sides: [Side; 2],
    /// Point to measure.
    pub point: PointSpec,
    /// Number of pairs; even.
    pub pairs: usize,
}

/// Result: what `shunt lab compare --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// A and B.
    pub sides: [Side; 2],
    /// `faster`: B takes fewer cycles for a delivered frame than A; `slower`: more; `none`: no
    /// difference found.
    pub difference: &'static str,
    /// Cycles of B over those of A.
    pub ratio: f64,
    /// Its 99 % interval; the upper end is `null` with too few pairs.
    pub interval: [f64; 2],
    /// Probability of such a difference or a larger one by chance.
    pub p: f64,
    /// Smallest difference that would have been found, as a share, if known.
    pub detectable: Option<f64>,
    /// Every band, nearest first.
    pub bands: Vec<BandCompared>,
    /// Pairs whose CPUs moved from one band to another.
    pub moved: usize,
    /// Pairs in which frames were lost: no result.
    pub lost: usize,
    /// Points of A and B, pair by pair.
    pub slots: Vec<[Point; 2]>,
}

/// One band of distances.
#[derive(Clone, Debug, Serialize)]
pub struct BandCompared {
    /// Limits of the band.
    pub band: String,
    /// Number of pairs.
    pub pairs: usize,
    /// Median cycles for a delivered frame of A and B; `None` with fewer than [`PAIRS_MIN`] pairs.
    pub cycles_per_frame: Option<[f64; 2]>,
}

/// Measures all pairs; passes the number of pairs so far to `done`.
///
/// # Errors
/// A side cannot be measured, or no pair counts.
pub fn run(
    machine: &Machine<'_>,
    settings: &CompareSettings,
    mut done: impl FnMut(usize),
) -> Result<Compared> {
    let mut slots = Vec::with_capacity(settings.pairs);
    let mut copies = [None, None];
    for pair in 0..settings.pairs {
        if pair % 2 == 0 {
            copies = copied(&settings.sides)?;
        }
        let measure = |side: usize| {
            interrupt::check()?;
            let switch = match &settings.sides[side] {
                Side::Program(_) => {
                    let daemon = &copies[side].as_ref().context("a copy of each program")?.path;
                    SwitchProgram::Shunt { daemon, program: machine.program }
                }
                Side::Bare(cycles) => {
                    SwitchProgram::Bare { program: machine.program, delay_cycles: *cycles }
                }
            };
            let slot = || forwarding::slot(switch, &settings.point, machine.cpus);
            let point = forwarding::until_frames_pass(slot);
            point.with_context(|| settings.sides[side].to_string())
        };
        slots.push(if pair % 2 == 0 {
            let a = measure(0)?;
            [a, measure(1)?]
        } else {
            let b = measure(1)?;
            [measure(0)?, b]
        });
        done(pair + 1);
    }
    conclude(&settings.sides, slots)
}

/// Copy of a program in memory.
struct Copied {
    path: PathBuf,
    _file: File,
}

/// Copies the programs of both sides.
fn copied(sides: &[Side; 2]) -> Result<[Option<Copied>; 2]> {
    let copy = |side: &Side| -> Result<Option<Copied>> {
        let Side::Program(program) = side else { return Ok(None) };
        let text = || format!("cannot copy {}", program.display());
        let mut file = File::from(memfd_create("shunt-lab-program", MemfdFlags::CLOEXEC)?);
        std::io::copy(&mut File::open(program).with_context(text)?, &mut file)
            .with_context(text)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Ok(Some(Copied { path, _file: file }))
    };
    Ok([copy(&sides[0])?, copy(&sides[1])?])
}

fn conclude(sides: &[Side; 2], slots: Vec<[Point; 2]>) -> Result<Compared> {
    let slot = |point: &Point| {
        let cycles = point.switch_cycles_per_frame.context("the switch's cycles are not known")?;
        // A single CPU has no distance; all its slots are in the first band.
        let round_trip_cycles = point.round_trip_cycles.unwrap_or(1.0);
        Ok::<SlotSample, anyhow::Error>(SlotSample { cycles_per_frame: cycles, round_trip_cycles })
    };
    let whole = slots.iter().filter(|pair| !pair.iter().any(Point::lost_in_closed_loop));
    let lost = slots.len() - whole.clone().count();
    let pairs = whole.map(|[a, b]| Ok(PairedSlots { a: slot(a)?, b: slot(b)? }));
    let grouped = Grouped::new(&pairs.collect::<Result<Vec<_>>>()?, PAIRS_MIN);
    let mut random = Random::new(1);
    let tested = permutation::compare_stratified(&grouped.strata(), ALPHA, || random.bits());
    let Comparison { verdict, estimate, p, detectable, .. } = tested.with_context(|| {
        format!(
            "of {} pairs none counts: {lost} lost frames, the CPUs moved in the others",
            slots.len()
        )
    })?;
    let band = |band: &BandPairs| {
        let of = |value: fn(&CyclePair) -> f64| {
            median(&band.pairs.iter().map(value).collect::<Vec<f64>>())
        };
        let medians = of(|pair| pair.a).zip(of(|pair| pair.b));
        BandCompared {
            band: band.band.to_string(),
            pairs: band.pairs.len(),
            cycles_per_frame: medians.filter(|_| band.is_sufficient()).map(|(a, b)| [a, b]),
        }
    };
    Ok(Compared {
        sides: sides.clone(),
        difference: match verdict {
            PairedVerdict::Faster(_) => "faster",
            PairedVerdict::Slower(_) => "slower",
            PairedVerdict::NoDifferenceFound => "none",
        },
        ratio: estimate.ratio,
        interval: [estimate.low, estimate.high],
        p,
        detectable,
        bands: grouped.bands.iter().map(band).collect(),
        moved: grouped.moved + grouped.unknown,
        lost,
        slots,
    })
}

impl Compared {
    /// The result as a sentence.
    pub fn sentence(&self) -> String {
        let [a, b] = &self.sides;
        let (ratio, [low, high]) = (self.ratio, self.interval);
        let percent = 100.0 * (1.0 - ALPHA);
        let interval = format!("{percent:.0} % interval {low:.3} to {high:.3}");
        match (self.difference, self.detectable) {
            ("none", Some(least)) => format!(
                "No difference found: B ({b}) over A ({a}) is {ratio:.3} ({interval}); one of {:.1} % \
                 would have been found.",
                100.0 * least
            ),
            ("none", None) => format!(
                "No difference found: B ({b}) over A ({a}) is {ratio:.3} ({interval}); with so few \
                 pairs none could have been."
            ),
            (word, _) => format!(
                "B ({b}) is {word}: {ratio:.3} times the cycles for a delivered frame of A ({a}); \
                 {interval}."
            ),
        }
    }

    /// Bands as lines of a table.
    pub fn table(&self, format: TextFormat) -> String {
        let row = |BandCompared { band, pairs, cycles_per_frame }: &BandCompared| {
            let [a, b, note] = match cycles_per_frame {
                Some([a, b]) => [format!("{a:.1}"), format!("{b:.1}"), String::new()],
                None if *pairs == 0 => ["-".into(), "-".into(), "empty".into()],
                None => ["-".into(), "-".into(), format!("too few (at least {PAIRS_MIN})")],
            };
            vec![band.to_string(), pairs.to_string(), a, b, note]
        };
        let mut rows: Vec<Vec<String>> = self.bands.iter().map(row).collect();
        for (name, pairs) in [("CPUs moved", self.moved), ("frames lost", self.lost)] {
            rows.push([name, &pairs.to_string(), "-", "-", ""].map(str::to_owned).to_vec());
        }
        let columns =
            [("CPUs apart", Left), ("pairs", Right), ("A", Right), ("B", Right), ("", Left)];
        format.table(&columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{PathKind, Pattern, samples};

    fn slot(cycles: f64, distance: f64) -> Point {
        let mut point = samples::point(Pattern::NorthSouth, PathKind::Vf, 64, 1, 10.0);
        point.switch_cycles_per_frame = Some(cycles);
        point.round_trip_cycles = Some(distance);
        point
    }

    fn compared(pairs: usize, factor: f64) -> Compared {
        let pair = |n: usize| {
            // Noise with the same mean for both builds.
            let noise = |n: usize| 1.0 + 0.002 * ((n * 7 % 11) as f64 - 5.0);
            [slot(50.0 * noise(n), 150.0), slot(50.0 * factor * noise(n + 3), 160.0)]
        };
        conclude(&[Side::Bare(0), Side::Bare(3)], (0..pairs).map(pair).collect()).unwrap()
    }

    /// The table with single blanks.
    fn table(compared: &Compared) -> String {
        let text = compared.table(TextFormat::PLAIN);
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
        text.lines().map(line).collect()
    }

    #[test]
    fn a_difference_is_told_with_its_ratio() {
        let slower = compared(24, 1.05);
        assert_eq!(slower.difference, "slower");
        assert!((slower.ratio - 1.05).abs() < 0.01, "{}", slower.ratio);
        assert!(
            slower.sentence().starts_with("B (bare+3) is slower: 1.0"),
            "{}",
            slower.sentence()
        );
        assert_eq!(compared(24, 0.95).difference, "faster");
        let [_, second, ..] = &slower.bands[..] else { panic!("four bands") };
        assert_eq!((second.pairs, second.cycles_per_frame.is_some()), (24, true));
        assert!(table(&slower).contains("under 120 cycles 0 - - empty"), "{}", table(&slower));
    }

    #[test]
    fn none_is_told_with_what_could_have_been_found() {
        let same = compared(24, 1.0);
        assert_eq!(same.difference, "none");
        assert!(same.sentence().contains("would have been found"), "{}", same.sentence());
        let few = compared(4, 1.5);
        assert_eq!(few.difference, "none");
        assert!(few.sentence().contains("none could have been"), "{}", few.sentence());
        assert!(table(&few).contains("too few"), "{}", table(&few));
    }

    #[test]
    fn pairs_in_two_bands_do_not_count() {
        let slots =
            vec![[slot(50.0, 100.0), slot(90.0, 700.0)], [slot(50.0, 100.0), slot(50.0, 100.0)]];
        let sides = [Side::Bare(0), Side::Bare(0)];
        assert_eq!(conclude(&sides, slots.clone()).unwrap().moved, 1);
        assert!(conclude(&sides, slots[..1].to_vec()).is_err());
    }

    #[test]
    fn pairs_that_lost_frames_do_not_count_and_are_told() {
        let mut slots = vec![[slot(50.0, 100.0), slot(50.0, 100.0)]; 12];
        slots[3][1].lost_frames = 112;
        let found = conclude(&[Side::Bare(0), Side::Bare(0)], slots).unwrap();
        assert_eq!((found.lost, found.bands[0].pairs), (1, 11));
        assert!(table(&found).contains("frames lost 1 "), "{}", table(&found));
    }

    #[test]
    fn sides_are_programs_or_the_bare_loop() {
        assert_eq!("bare".parse(), Ok(Side::Bare(0)));
        assert_eq!("bare+12".parse(), Ok(Side::Bare(12)));
        let program = std::env::current_exe().unwrap();
        assert_eq!(program.to_str().unwrap().parse(), Ok(Side::Program(program)));
        assert!("sh".parse::<Side>().unwrap_err().contains("no file"), "of PATH");
        assert!("bare-1".parse::<Side>().is_err() && "bare+x".parse::<Side>().is_err());
        assert_eq!(
            ["bare", "bare+7"].map(|text| text.parse::<Side>().unwrap().to_string()),
            ["bare", "bare+7"]
        );
    }
}

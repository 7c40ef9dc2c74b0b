//! Frame sizes: one size, or a mix.

use std::fmt;
use std::str::FromStr;

use model::state::{Problem, Problems};
use serde_json::Value;

use crate::units::Bytes;

/// Valid frame sizes of the model, in bytes, FCS included.
const SIZES: std::ops::RangeInclusive<u32> = 64..=9018;
/// "Simple IMIX" as testers use it: 7 of 64, 4 of 570 and 1 of 1518 bytes.
const IMIX: [(u32, f64); 3] = [(64, 7.0), (570, 4.0), (1518, 1.0)];
/// Maximum number of sizes in a mix.
const KINDS_MAX: usize = 16;

/// A mix of frame sizes, FCS included, each with its share of the frames.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameMix(Vec<(f64, f64)>);

/// Allowed values of a frame mix, for messages.
const ALLOWED: &str =
    "bytes with FCS (64 to 9018), `imix`, or sizes with shares, such as 64:7,1518:1";

/// An invalid frame mix.
fn invalid(value: impl Into<Value>, message: impl Into<String>, allowed: &str) -> Problems {
    Problem::new("frames", value, message, format!("write {allowed}")).into()
}

impl FrameMix {
    /// Frames of one size.
    ///
    /// # Errors
    /// The size is out of range.
    pub fn of(bytes: u32) -> Result<Self, Problems> {
        Self::mix([(bytes, 1.0)])
    }

    fn mix(kinds: impl IntoIterator<Item = (u32, f64)>) -> Result<Self, Problems> {
        let kinds: Vec<_> = kinds.into_iter().collect();
        if kinds.len() > KINDS_MAX {
            let message = format!("is a mix of too many sizes, {}", kinds.len());
            return Err(invalid((), message, &format!("at most {KINDS_MAX} sizes")));
        }
        if let Some(&(size, _)) = kinds.iter().find(|(size, _)| !SIZES.contains(size)) {
            return Err(Problem::out_of_range("frames", size, SIZES.start(), SIZES.end()).into());
        }
        let sum: f64 = kinds.iter().map(|(_, share)| share).sum();
        Ok(Self(kinds.into_iter().map(|(size, share)| (f64::from(size), share / sum)).collect()))
    }

    /// Mean cost of a frame, for a cost function of the size.
    pub fn mean<T>(&self, cost: impl Fn(f64) -> T) -> T
    where
        T: std::ops::Mul<f64, Output = T> + std::iter::Sum,
    {
        self.0.iter().map(|&(size, share)| cost(size) * share).sum()
    }

    /// Mean size, FCS included.
    pub fn size(&self) -> Bytes {
        self.mean(Bytes)
    }
}

impl FromStr for FrameMix {
    type Err = Problems;

    fn from_str(text: &str) -> Result<Self, Problems> {
        if text.eq_ignore_ascii_case("imix") {
            return Self::mix(IMIX);
        }
        let form = || invalid(text, "is not a frame size", ALLOWED);
        let kind = |kind: &str| {
            let (size, share) = kind.split_once(':').unwrap_or((kind, "1"));
            let size = size.trim().parse().map_err(|_| form())?;
            let share: f64 = share.trim().parse().map_err(|_| form())?;
            match share > 0.0 && share <= 1e6 {
                true => Ok((size, share)),
                false => Err(invalid(
                    text,
                    "has a share out of range",
                    "shares above 0, at most 1000000",
                )),
            }
        };
        Self::mix(text.split(',').map(kind).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for FrameMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [(size, _)] => write!(f, "{size} B"),
            kinds => {
                for (i, (size, share)) in kinds.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{:.0} % {size} B", share * 100.0)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_mixes_are_read() {
        assert_eq!("64".parse::<FrameMix>().unwrap(), FrameMix::of(64).unwrap());
        let imix: FrameMix = "IMIX".parse().unwrap();
        assert!((imix.size().0 - (64.0 * 7.0 + 570.0 * 4.0 + 1518.0) / 12.0).abs() < 1e-9);
        assert_eq!(
            "64:1, 1518:3".parse::<FrameMix>().unwrap().to_string(),
            "25 % 64 B, 75 % 1518 B"
        );
    }

    #[test]
    fn what_is_no_mix_is_said() {
        for (text, said) in [
            ("", "not a frame size"),
            ("large", "not a frame size"),
            ("0", "frames: 0 is out of range"),
            ("63", "64 to 9018"),
            ("64:0", "above 0"),
            ("64:-1", "above 0"),
            ("64:nan", "above 0"),
            ("64:1e300", "above 0"),
        ] {
            let error = text.parse::<FrameMix>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(vec!["64"; 17].join(",").parse::<FrameMix>().is_err());
    }
}

//! Quantities of the model, one type each, with only the physically valid operations: cycles over a
//! frequency are a time, a bandwidth over bytes is a frame rate.
//!
//! Limits: values may be negative or not finite; file readers check the range.

use std::iter::Sum;
use std::ops::{Add, Div, Mul};

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// The smaller one.
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }

            /// The larger one.
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;

            fn mul(self, times: f64) -> Self {
                Self(self.0 * times)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;

            fn div(self, by: f64) -> Self {
                Self(self.0 / by)
            }
        }

        impl Div for $name {
            type Output = f64;

            fn div(self, by: Self) -> f64 {
                self.0 / by.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), Add::add)
            }
        }
    };
}

quantity!(
    /// Bytes as an expected value: means over a mix of frames have fractions.
    Bytes
);
quantity!(
    /// Cycles of a CPU.
    Cycles
);
quantity!(
    /// Cycles a second.
    Hertz
);
quantity!(
    /// Seconds.
    Seconds
);
quantity!(
    /// Frames a second.
    FrameRate
);
quantity!(
    /// Bits a second.
    BitRate
);

impl Hertz {
    /// From GHz, the unit of data sheets.
    pub const fn ghz(ghz: f64) -> Self {
        Self(ghz * 1e9)
    }
}

impl Seconds {
    /// From nanoseconds.
    pub const fn ns(ns: f64) -> Self {
        Self(ns * 1e-9)
    }

    /// In nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 * 1e9
    }
}

impl FrameRate {
    /// From million frames a second.
    pub const fn mpps(mpps: f64) -> Self {
        Self(mpps * 1e6)
    }

    /// In million frames a second.
    pub fn as_mpps(self) -> f64 {
        self.0 / 1e6
    }
}

impl BitRate {
    /// From Gbit/s.
    pub const fn gbps(gbps: f64) -> Self {
        Self(gbps * 1e9)
    }

    /// In Gbit/s.
    pub fn as_gbps(self) -> f64 {
        self.0 / 1e9
    }
}

impl Div<Hertz> for Cycles {
    type Output = Seconds;

    fn div(self, by: Hertz) -> Seconds {
        Seconds(self.0 / by.0)
    }
}

impl Div<Bytes> for BitRate {
    type Output = FrameRate;

    fn div(self, by: Bytes) -> FrameRate {
        FrameRate(self.0 / (8.0 * by.0))
    }
}

impl Mul<Bytes> for FrameRate {
    type Output = BitRate;

    fn mul(self, each: Bytes) -> BitRate {
        BitRate(self.0 * 8.0 * each.0)
    }
}

impl Mul<Seconds> for FrameRate {
    /// Mean number in service: busy cores, or frames in flight (Little's law).
    type Output = f64;

    fn mul(self, each: Seconds) -> f64 {
        self.0 * each.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_combined_gives_what_it_should() {
        assert_eq!((Cycles(260.0) / Hertz::ghz(2.6)).as_ns().round(), 100.0);
        // 10GBASE at 64 B with preamble and gap: 14.88 million frames.
        assert_eq!((BitRate::gbps(10.0) / Bytes(84.0)).as_mpps(), 10e3 / (84.0 * 8.0));
        assert_eq!((FrameRate::mpps(1.0) * Bytes(1250.0)).as_gbps(), 10.0);
        assert_eq!((FrameRate::mpps(2.0) * Seconds::ns(500.0)).round(), 1.0);
    }
}

//! Axis ticks at round numbers.

/// Ticks of an axis from 0 to just above its largest value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ticks {
    step: f64,
    count: usize,
    decimals: usize,
}

impl Ticks {
    /// Ticks for values of 0 to `max`, in steps of 1, 2 or 5 times a power of ten, at most `wanted`
    /// steps.
    ///
    /// If `max` is not a positive number, the axis is 0 to 1.
    pub(super) fn up_to(max: f64, wanted: usize) -> Ticks {
        let max = if max.is_finite() && max > 1e-9 { max } else { 1.0 };
        let rough = max / wanted.max(1) as f64;
        let mut exponent = rough.log10().floor() as i32;
        // The logarithm may be off by one at a power of ten, in which case the next factor fits.
        let factor = [1.0, 2.0, 5.0]
            .into_iter()
            .find(|factor| factor * power(exponent) >= rough * (1.0 - 1e-9));
        let factor = factor.unwrap_or_else(|| {
            exponent += 1;
            1.0
        });
        let step = factor * power(exponent);
        let count = (max / step - 1e-9).ceil().max(1.0) as usize;
        Ticks { step, count, decimals: usize::try_from(-exponent).unwrap_or(0) }
    }

    /// The largest tick, where the axis ends.
    pub(super) fn end(&self) -> f64 {
        self.step * self.count as f64
    }

    /// Each tick's value and text, from 0 up.
    pub(super) fn each(&self) -> impl Iterator<Item = (f64, String)> {
        let &Ticks { step, count, decimals } = self;
        (0..=count).map(move |tick| {
            let value = step * tick as f64;
            let text = if tick == 0 { "0".to_owned() } else { format!("{value:.decimals$}") };
            (value, text)
        })
    }
}

fn power(exponent: i32) -> f64 {
    10_f64.powi(exponent)
}

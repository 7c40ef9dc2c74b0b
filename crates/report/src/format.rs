//! Number formatting: three significant digits, and lower bounds marked as such.

/// Text of a missing value.
pub(super) const NONE: &str = "n/a";

/// Three significant digits down to a thousandth, e.g. `0.012`, `3.40`, `17.8`, `216`, `1480`.
pub fn three(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // Limits are where rounding would add a digit.
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Three significant digits, marked if the value is a lower bound.
pub(super) fn bounded(value: f64, is_lower_bound: bool) -> String {
    if is_lower_bound { format!("> {}", three(value)) } else { three(value) }
}

/// A rounded number, or [`NONE`].
pub(super) fn whole(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or(NONE.to_owned(), |value| format!("{value:.0}"))
}

/// A share of 0 to 1 in per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", whole(Some(share * 100.0)))
}

/// `1 guest`, `2 guests`.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{NONE, count, list, three, whole};

    #[test]
    fn three_digits_at_every_size() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.1, "0.10"),
            (3.4, "3.40"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (17.84, "17.8"),
            (99.94, "99.9"),
            (99.96, "100"),
            (1480.4, "1480"),
        ];
        for (value, text) in cases {
            assert_eq!(three(value), text);
        }
        assert_eq!(three(f64::NAN), NONE);
        assert_eq!(whole(None), NONE);
    }

    #[test]
    fn words() {
        assert_eq!([count(1, "guest"), count(2, "guest")], ["1 guest", "2 guests"]);
        let words = ["a", "b", "c"].map(String::from);
        assert_eq!(
            [list(&words[..1]), list(&words[..2]), list(&words)],
            ["a", "a and b", "a, b and c"]
        );
    }
}

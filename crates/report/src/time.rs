//! Seconds since 1970 as UTC text, without a time zone database.
//!
//! The day count follows the proleptic Gregorian calendar, computed on years that begin in March so
//! that the leap day is the last one. Limits: leap seconds do not exist, as in POSIX time.

const DAY_S: u64 = 86_400;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// Year, month and day of the day that lies `days` after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, months of 31 and 30 days alternate such that five of them have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// E.g. `2026-03-01T09:30:00Z`.
pub fn utc_text(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / DAY_S);
    let second = unix_s % DAY_S;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc_text;

    #[test]
    fn known_moments() {
        assert_eq!(utc_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc_text(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(utc_text(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(utc_text(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(utc_text(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(utc_text(u64::from(u32::MAX)), "2106-02-07T06:28:15Z");
    }
}

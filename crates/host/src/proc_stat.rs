//! One line of `/proc/PID/stat` or `/proc/PID/task/TID/stat`, as proc(5) describes it.

/// The fields this crate uses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 2: the process's or thread's name, at most 15 bytes.
    pub(crate) name: String,
    /// Field 3: R runs or waits for a CPU, S sleeps, D waits uninterruptibly.
    pub(crate) state: char,
    /// Field 14, in clock ticks.
    pub(crate) user_ticks: u64,
    /// Field 15, in clock ticks.
    pub(crate) system_ticks: u64,
}

/// Parses the line. The name stands in parentheses and may itself contain spaces and parentheses,
/// so it ends at the LAST closing one; `None` for another format.
pub(crate) fn parse(line: &str) -> Option<Stat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let name = line.get(open + 1..close)?.to_owned();
    // The rest starts with field 3; fields 14 and 15 are its 12th and 13th.
    let mut rest = line.get(close + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    let user_ticks = rest.nth(10)?.parse().ok()?;
    let system_ticks = rest.next()?.parse().ok()?;
    Some(Stat { name, state, user_ticks, system_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_line() {
        let line = "10899 (head) R 10882 10882 7467 0 -1 4194304 102 0 0 0 7 3 0 0 20 0 1 0 145018 2998272 423\n";
        let name = "head".to_owned();
        let expected = Stat { name, state: 'R', user_ticks: 7, system_ticks: 3 };
        assert_eq!(parse(line), Some(expected));
    }

    #[test]
    fn names_may_hold_anything() {
        let line = "1 (a) R 2 (b)) S 1 1 1 0 -1 0 0 0 0 0 11 22 0 0 20 0";
        let stat = parse(line).unwrap();
        assert_eq!(stat.name, "a) R 2 (b)");
        assert_eq!((stat.state, stat.user_ticks, stat.system_ticks), ('S', 11, 22));
    }

    #[test]
    fn anything_else_is_none() {
        for bad in ["", "1 (x", "1 x) R", ")(", "1 (x) R 1 2 3", "1 (x) R 1 1 1 0 -1 0 0 0 0 0 a b"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}

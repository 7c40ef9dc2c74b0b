//! "Did you mean": the known word that a mistyped one most likely stood for.

/// Words longer than this are not compared; the work is quadratic.
const MAX_CHARS: usize = 64;

/// The nearest of `known`, if it is near enough to be worth a question.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    if word.is_empty() || word.chars().count() > MAX_CHARS {
        return None;
    }
    let scored = known.into_iter().filter_map(|candidate| {
        let other = plain(candidate);
        let distance = distance(&word, &other);
        // Either a slip or two of the finger, or a word cut short or made longer: `queues`, `vlan_id`.
        let slip = distance <= 1.max(other.len() / 3).min(3) && distance < other.len();
        let part = word.len() >= 2 && (other.starts_with(&word) || word.starts_with(&other));
        (slip || part).then_some((distance, candidate))
    });
    scored.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Case and the kind of separator are what people get wrong without noticing.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours count one each.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "abc", 3), ("mac", "mac", 0), ("mca", "mac", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn slips_find_their_word_and_strangers_do_not() {
        let known = [
            "index",
            "mac",
            "macs",
            "vlan",
            "spoof_check",
            "socket",
            "queue_pairs",
            "mtu",
            "in_order",
        ];
        for (word, meant) in [
            ("spoofcheck", Some("spoof_check")),
            ("spoof-chek", Some("spoof_check")),
            ("MAC", Some("mac")),
            ("mac_address", Some("mac")),
            ("vlan_id", Some("vlan")),
            ("queue", Some("queue_pairs")),
            ("scoket", Some("socket")),
            ("inorder", Some("in_order")),
            ("bandwidth", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"mac".repeat(1000), known), None, "long words cost nothing");
    }
}

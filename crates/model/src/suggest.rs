//! "Did you mean": the known word nearest to a mistyped one.

use strsim::osa_distance;

/// Words longer than this are not compared; the work is quadratic.
const MAX_CHARS: usize = 64;

/// The nearest of `known`; `None` if none is near enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    if word.is_empty() || word.chars().count() > MAX_CHARS {
        return None;
    }
    let scored = known.into_iter().filter_map(|candidate| {
        let other = plain(candidate);
        let distance = osa_distance(&word, &other);
        // Either one or two typing errors, or a shortened or extended word: `queues`, `vlan_id`.
        let slip = distance <= 1.max(other.len() / 3).min(3) && distance < other.len();
        let part = word.len() >= 2 && (other.starts_with(&word) || word.starts_with(&other));
        (slip || part).then_some((distance, candidate))
    });
    scored.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Case and separators do not matter.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

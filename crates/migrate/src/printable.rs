//! Text of other programs, as it may be shown on a terminal.

/// Longest text shown, in characters.
const SHOWN_MAX: usize = 1000;

/// Escapes unprintable characters and truncates: the text of a VMM, or of a daemon on another host,
/// is not trusted with the operator's terminal.
pub(super) fn printable(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    model::state::printable(&cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_write_to_the_terminal() {
        let said = "QEMU's \"disk\"\n\u{1b}]0;moved\u{7} C:\\x \u{202e}\u{9b}31m é";
        assert_eq!(
            printable(said),
            "QEMU's \"disk\"\\n\\u{1b}]0;moved\\u{7} C:\\x \\u{202e}\\u{9b}31m é"
        );
        assert_eq!(printable(&"x".repeat(5000)).len(), SHOWN_MAX);
    }
}

//! Words of a filter's expression.

/// A word, and the column at which it begins, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

/// Operators that are no letters; the longer first.
const OPERATORS: [&str; 7] = ["&&", "||", "(", ")", "!", "&", "|"];

/// Splits an expression into words.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        }
        let rest = &text[at..];
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        let is_end = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '!' | '&' | '|');
        let len = match operator {
            Some(operator) => operator.len(),
            None => rest.find(is_end).unwrap_or(rest.len()),
        };
        let column = text[..at].chars().count() + 1;
        tokens.push(Token { text: &rest[..len], column });
        at += len;
    }
    tokens
}

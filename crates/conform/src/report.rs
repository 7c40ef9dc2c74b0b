//! Results of a suite run.

use comfy_table::{ContentArrangement, LineStyle, Table, presets};
use serde::{Deserialize, Serialize};

/// Maximum width of the table, in columns.
const WIDTH: u16 = 80;

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TestResult {
    /// The NIC does not have the issue.
    #[serde(rename = "pass")]
    Pass,
    /// The NIC has the issue.
    #[serde(rename = "fail")]
    Fail,
    /// The NIC cannot have the issue, or cannot be tested for it.
    #[serde(rename = "n/a")]
    NotApplicable,
}

impl TestResult {
    /// `pass`, `fail` or `n/a`.
    pub const fn word(self) -> &'static str {
        match self {
            TestResult::Pass => "pass",
            TestResult::Fail => "fail",
            TestResult::NotApplicable => "n/a",
        }
    }
}

/// Outcome of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    /// Name of the test.
    pub name: String,
    /// Thread that reports the issue, or the documentation with the gap.
    pub thread: String,
    /// The result.
    pub result: TestResult,
    /// Observation; for `fail` the difference, for `n/a` the reason.
    pub detail: String,
}

/// Outcomes of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Tests, in the order of the catalogue.
    pub tests: Vec<TestReport>,
}

impl SuiteReport {
    /// Number of tests with this result.
    pub fn count(&self, result: TestResult) -> usize {
        self.tests.iter().filter(|test| test.result == result).count()
    }

    /// Table of at most 80 columns, and a summary line.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
        table.load_style(style).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(WIDTH).set_header(["test", "result", "thread and observation"]);
        for test in &self.tests {
            let seen = format!("{}\n{}", test.thread, test.detail);
            table.add_row([&*test.name, test.result.word(), &*printable(&seen)]);
        }
        for column in table.column_iter_mut() {
            column.set_padding((1, 0));
        }
        let of = |result| self.count(result);
        let (pass, fail, none) =
            (of(TestResult::Pass), of(TestResult::Fail), of(TestResult::NotApplicable));
        let table = table.trim_fmt();
        format!("{table}\n{pass} pass, {fail} fail, {none} n/a\n")
    }
}

/// Removes control characters: details quote the manager's answers.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SuiteReport {
        let test = |name: &str, result, detail: &str| TestReport {
            name: name.into(),
            thread: "a-house-with-a-long-name/and-a-repository-with-one#12345".into(),
            result,
            detail: detail.into(),
        };
        let long = "a frame from x arrived at y, expected at z ".repeat(9);
        SuiteReport {
            tests: vec![
                test("one-thing", TestResult::Pass, "seen"),
                test("another-thing-with-quite-a-long-name", TestResult::Fail, &long),
                test("third", TestResult::NotApplicable, "has\u{1b}[2J none"),
            ],
        }
    }

    #[test]
    fn the_json_is_that_of_the_documentation() {
        let json = serde_json::to_value(report()).unwrap();
        let words: Vec<_> =
            json["tests"].as_array().unwrap().iter().map(|test| test["result"].clone()).collect();
        assert_eq!(words, ["pass", "fail", "n/a"]);
        let fields: Vec<_> = json["tests"][0].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["detail", "name", "result", "thread"]);
        assert_eq!(serde_json::from_value::<SuiteReport>(json).unwrap(), report());
    }

    #[test]
    fn the_table_fits_a_terminal_and_counts() {
        let text = report().table();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(WIDTH)), "{text}");
        assert!(text.ends_with("1 pass, 1 fail, 1 n/a\n"), "{text}");
        for word in ["one-thing", "#12345", "expected at z"] {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert!(!text.contains('\u{1b}'), "a control character reached the terminal");
    }

    #[test]
    fn results_are_counted() {
        for result in [TestResult::Pass, TestResult::Fail, TestResult::NotApplicable] {
            assert_eq!(report().count(result), 1);
            assert_eq!(SuiteReport::default().count(result), 0);
        }
    }
}

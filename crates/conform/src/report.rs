//! Results of a suite run.

use serde::{Deserialize, Serialize};

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TestResult {
    /// The NIC does not have the issue.
    #[serde(rename = "pass")]
    Pass,
    /// The NIC has the issue.
    #[serde(rename = "fail")]
    Fail,
    /// A setting is accepted and reported in force, but frames do not show it.
    #[serde(rename = "not-enforced")]
    NotEnforced,
    /// The NIC cannot have the issue, or cannot be tested for it.
    #[serde(rename = "n/a")]
    NotApplicable,
}

impl TestResult {
    /// `pass`, `fail`, `accepted, not enforced` or `n/a`.
    pub const fn word(self) -> &'static str {
        match self {
            TestResult::Pass => "pass",
            TestResult::Fail => "fail",
            TestResult::NotEnforced => "accepted, not enforced",
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
    /// Observation; for `fail` and `not-enforced` the difference, for `n/a` the reason.
    pub detail: String,
}

/// Outcomes of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// NIC that was tested.
    pub nic: String,
    /// Tests, in the order of the catalogue.
    pub tests: Vec<TestReport>,
}

impl SuiteReport {
    /// Number of tests with this result.
    pub fn count(&self, result: TestResult) -> usize {
        self.tests.iter().filter(|test| test.result == result).count()
    }
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
            nic: "card 0000:01:00.0".into(),
            tests: vec![
                test("one-thing", TestResult::Pass, "seen"),
                test("another-thing-with-quite-a-long-name", TestResult::Fail, &long),
                test("third", TestResult::NotApplicable, "has\u{1b}[2J none"),
                test("fourth", TestResult::NotEnforced, "spoof_check: a frame arrived"),
            ],
        }
    }

    #[test]
    fn the_json_is_that_of_the_documentation() {
        let json = serde_json::to_value(report()).unwrap();
        let words: Vec<_> =
            json["tests"].as_array().unwrap().iter().map(|test| test["result"].clone()).collect();
        assert_eq!(words, ["pass", "fail", "n/a", "not-enforced"]);
        let fields: Vec<_> = json["tests"][0].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["detail", "name", "result", "thread"]);
        assert_eq!(serde_json::from_value::<SuiteReport>(json).unwrap(), report());
    }

    #[test]
    fn results_are_counted() {
        use TestResult::{Fail, NotApplicable, NotEnforced, Pass};
        for result in [Pass, Fail, NotEnforced, NotApplicable] {
            assert_eq!(report().count(result), 1);
            assert_eq!(SuiteReport::default().count(result), 0);
        }
    }
}

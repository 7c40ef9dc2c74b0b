//! Conformance suite: known SR-IOV issues as tests of a NIC and its management.
//!
//! # Model
//! A [`Test`] is one issue with its source thread. It sends requests and frames through a
//! [`Subject`], and does not know the implementation; [`soft`] is the soft NIC, [`card`] a card of
//! the machine. [`run`] starts each test on a fresh NIC and gives a [`SuiteReport`]: `pass`, `fail`
//! with the difference, or `n/a` if the subject [lacks](Subject::lacks) a capability. A card can
//! also accept a setting, report it and not enforce it.
//!
//! A frame that must *not* arrive is detected without a timeout: [`Subject::settle`] returns once
//! the NIC has processed all sent frames. Then the arrivals at every station are compared.
//!
//! # Limits
//! One NIC, one queue pair per guest, 256 frames in flight. Tests of rates have a minimum time and
//! no maximum.

pub mod card;
mod cases;
mod context;
mod frame;
mod guest;
mod interrupt;
mod lock;
mod report;
mod request;
pub mod soft;
pub mod subject;
#[cfg(test)]
mod tests;

use anyhow::Result;

use context::{Refused, TestContext, Unseen};
pub use interrupt::Interrupt;
pub use report::{SuiteReport, TestReport, TestResult};
use subject::{Capability, Subject};

/// A known issue as a test.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// Unique name, in kebab-case.
    pub name: &'static str,
    /// Thread that reports the issue, or the documentation with the gap.
    pub thread: &'static str,
    /// Requirement, as a sentence.
    pub promise: &'static str,
    /// Capabilities that the test needs.
    needs: &'static [Capability],
    /// Test function; `None` while no subject has the capabilities.
    test: Option<fn(&mut TestContext<'_>) -> Result<String>>,
}

/// Every test, in the order of the catalogue.
pub fn tests() -> impl Iterator<Item = &'static Test> {
    cases::ALL.iter().copied().flatten()
}

/// Runs the tests that `wanted` accepts, and passes each outcome to `seen` at once.
pub fn run(
    subject: &mut dyn Subject,
    wanted: impl Fn(&Test) -> bool,
    mut seen: impl FnMut(&TestReport),
) -> SuiteReport {
    let mut report = SuiteReport { nic: subject.name(), tests: Vec::new() };
    for test in tests().filter(|test| wanted(test)) {
        let (result, detail) = outcome(test, subject);
        let (name, thread) = (test.name.to_owned(), test.thread.to_owned());
        let outcome = TestReport { name, thread, result, detail };
        seen(&outcome);
        report.tests.push(outcome);
    }
    report
}

fn outcome(test: &Test, subject: &mut dyn Subject) -> (TestResult, String) {
    if let Some(why) = test.needs.iter().find_map(|need| subject.lacks(*need)) {
        return (TestResult::NotApplicable, why);
    }
    let Some(run) = test.test else {
        let why = "no NIC can be tested for it yet";
        return (TestResult::NotApplicable, why.to_owned());
    };
    match run(&mut TestContext::new(subject)) {
        Ok(detail) => (TestResult::Pass, detail),
        Err(error) => judge(&error, subject),
    }
}

/// Result of a test that ended with an error.
fn judge(error: &anyhow::Error, subject: &mut dyn Subject) -> (TestResult, String) {
    let difference = format!("{error:#}");
    if let Some(refused) = error.downcast_ref::<Refused>()
        && let Some(why) = subject.has_no_such_setting(&refused.rejection)
    {
        return (TestResult::NotApplicable, why);
    }
    let Some(Unseen { setting, .. }) = error.downcast_ref() else {
        return (TestResult::Fail, difference);
    };
    match subject.not_enforced(setting) {
        Ok(Some(told)) => (TestResult::NotEnforced, format!("{difference}; {told}")),
        Ok(None) => (TestResult::Fail, difference),
        Err(error) => (TestResult::Fail, format!("{difference}; {error:#}")),
    }
}

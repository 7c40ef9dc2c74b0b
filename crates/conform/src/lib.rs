//! The conformance suite: what users of SR-IOV complain about, each complaint as a test of a NIC
//! and its management.
//!
//! # Model
//! A [`Test`] is one complaint with the thread it comes from. It asks and sends through a
//! [`Subject`], and knows nothing of what that is; [`soft`] is the soft NIC. [`run`] begins each
//! test on a fresh NIC and gives a [`Report`]: `pass`, `fail` with what differed, or `n/a` where
//! the subject [lacks](Subject::lacks) something.
//!
//! That a frame does *not* arrive is seen without waiting for a time: [`Subject::settle`] returns
//! once the NIC has done with all that was sent, and then what arrived is compared as a whole, at
//! every station.
//!
//! # Limits
//! One NIC, one queue pair a guest, 256 frames under way. Tests of rates have a lower bound of time
//! and no upper one.

mod cases;
mod frame;
mod guest;
mod report;
pub mod soft;
pub mod subject;
#[cfg(test)]
mod tests;
mod trial;

use anyhow::Result;

pub use report::{Report, TestReport, TestResult};
use subject::{Capability, Subject};
use trial::Trial;

/// A complaint as a test.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// Its name, in kebab-case; no other test has it.
    pub name: &'static str,
    /// The thread with the complaint, or the documentation that has the gap.
    pub thread: &'static str,
    /// What must hold, as a sentence.
    pub promise: &'static str,
    /// What a subject must be able to do for it.
    needs: &'static [Capability],
    /// The test; none as long as no subject has what it needs.
    test: Option<fn(&mut Trial<'_>) -> Result<String>>,
}

/// Every test, in the order of the catalogue.
pub fn tests() -> impl Iterator<Item = &'static Test> {
    cases::ALL.iter().copied().flatten()
}

/// Runs the tests that `wanted` takes, and hands each outcome to `seen` as it comes.
pub fn run(
    subject: &mut dyn Subject,
    wanted: impl Fn(&Test) -> bool,
    mut seen: impl FnMut(&TestReport),
) -> Report {
    let mut report = Report::default();
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
        let why = "no NIC could be tested for it when this program was made";
        return (TestResult::NotApplicable, why.to_owned());
    };
    match run(&mut Trial::new(subject)) {
        Ok(detail) => (TestResult::Pass, detail),
        Err(error) => (TestResult::Fail, format!("{error:#}")),
    }
}

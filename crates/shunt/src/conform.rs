//! `shunt conform`: the conformance suite.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use conform::card::CardNic;
use conform::soft::SoftNic;
use conform::subject::Subject;
use conform::{Interrupt, SuiteReport, TestReport, TestResult};

use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::run_dir::RunDirArg;
use crate::text::{print, table};

/// Test a NIC against known SR-IOV issues.
///
/// Each test is one reported issue, with its thread; docs/conformance.md lists them. They run on
/// the soft NIC: each starts its own daemon in a temporary directory, acts as guests and wire, and
/// sends real frames. No root, no hardware, less than a minute. The exit code is 1 if a test fails;
/// "n/a" says why the issue does not apply to this NIC, or cannot be tested.
///
/// With --run-dir the tests run in that running daemon, on a NIC, a switch and adapters of their
/// own, which are removed again. Other adapters keep their settings and their traffic. Tests that
/// would restart the daemon are n/a.
///
/// With --nic they run on a card of a running daemon, as root: a NIC of kind pci whose VFs are
/// free, and which is restored. The interfaces of VFs are the guests, and --wire is the wire. A
/// setting that the driver reports in force although frames do not show it is "accepted, not
/// enforced", which does not change the exit code.
#[derive(Debug, clap::Args)]
#[command(add = Title("tests of a NIC against known SR-IOV issues"))]
#[command(after_help = "\
Examples:
  shunt conform                           all tests, as a table
  shunt conform --json                    as JSON
  shunt conform vlan num-vfs              tests with one of these words in their names
  shunt conform --run-dir /run/shunt      in the running daemon, beside its adapters
  shunt conform --nic card0 --wire eth1   on a card whose port is cabled to eth1
  shunt conform --list                    names, threads and requirements")]
pub(crate) struct Conform {
    /// Only tests with one of these words in their names.
    #[arg(value_name = "WORD", add = complete::words(conform::tests().map(|test| test.name)))]
    words: Vec<String>,
    /// Run directory of a running daemon to test, instead of daemons of the suite's own.
    #[arg(long, value_name = "DIR", conflicts_with = "list", add = complete::run_dir())]
    run_dir: Option<PathBuf>,
    /// NIC of kind pci to test; the daemon is that of --run-dir, or the only one that runs.
    #[arg(long, value_name = "NAME", conflicts_with = "list", add = complete::nic())]
    nic: Option<String>,
    /// Interface that is cabled to the port of the card; without it tests of the wire are n/a.
    #[arg(long, value_name = "IFACE", requires = "nic")]
    wire: Option<String>,
    /// Print JSON: an object, with --list an array.
    #[arg(long)]
    json: bool,
    /// Run nothing; print each test's name, thread and requirement.
    #[arg(long)]
    list: bool,
}

impl Conform {
    pub(crate) fn run(self) -> Result<()> {
        let wanted = |test: &conform::Test| {
            self.words.is_empty() || self.words.iter().any(|word| test.name.contains(word.as_str()))
        };
        let count = conform::tests().filter(|test| wanted(test)).count();
        if count == 0 {
            let words = self.words.join(" ");
            let (message, remedy) = ("is in no test's name", "see shunt conform --list");
            return Err(UsageError::option("<WORD>", words, message, remedy).into());
        }
        if self.list {
            return self.list_tests(wanted);
        }
        let interrupt = Interrupt::catch()?;
        let mut nic = self.subject(&interrupt)?;
        let mut done = 0;
        let progress = io::stderr().is_terminal();
        let wanted = |test: &conform::Test| !interrupt.came() && wanted(test);
        let report = conform::run(&mut *nic, wanted, |test| {
            done += 1;
            if progress {
                show(test, done, count);
            }
        });
        nic.finish().context("not all is as before the run; the next run restores it")?;
        if interrupt.came() {
            bail!("interrupted after {done} of {count} tests; nothing of them is left");
        }
        let text = match self.json {
            true => serde_json::to_string_pretty(&report)? + "\n",
            false => shown(&report),
        };
        print(&text)?;
        match report.count(TestResult::Fail) {
            0 => Ok(()),
            failed => bail!("{failed} of {count} tests failed"),
        }
    }

    /// NIC to test.
    fn subject(&self, interrupt: &Interrupt) -> Result<Box<dyn Subject>> {
        let interrupt = interrupt.clone();
        if let Some(nic) = &self.nic {
            let daemon = RunDirArg::of(self.run_dir.clone());
            return Ok(Box::new(CardNic::open(daemon.path()?, nic, self.wire.clone(), interrupt)?));
        }
        Ok(Box::new(match &self.run_dir {
            Some(run_dir) => {
                let run_dir = std::path::absolute(run_dir).context("no working directory")?;
                SoftNic::running_in(&run_dir, interrupt)?
            }
            None => {
                let program = std::env::current_exe();
                let program = program.context("cannot find this program's own file")?;
                SoftNic::new(&program, interrupt)
            }
        }))
    }

    fn list_tests(&self, wanted: impl Fn(&conform::Test) -> bool) -> Result<()> {
        let tests: Vec<_> = conform::tests().filter(|test| wanted(test)).collect();
        if self.json {
            let one = |test: &&conform::Test| {
                let (name, thread, promise) = (test.name, test.thread, test.promise);
                serde_json::json!({"name": name, "thread": thread, "promise": promise})
            };
            let list = tests.iter().map(one).collect::<serde_json::Value>();
            return Ok(print(&format!("{list:#}\n"))?);
        }
        let row = |test: &&conform::Test| [test.name, test.thread, test.promise].map(str::to_owned);
        Ok(print(&table(["test", "thread", "requirement"], tests.iter().map(row).collect()))?)
    }
}

/// Results as a table, and their counts.
pub(crate) fn shown(report: &SuiteReport) -> String {
    let row = |test: &TestReport| {
        let result = test.result.word().to_owned();
        [test.name.clone(), result, test.thread.clone(), test.detail.clone()]
    };
    let rows = report.tests.iter().map(row).collect();
    let results =
        [TestResult::Pass, TestResult::Fail, TestResult::NotEnforced, TestResult::NotApplicable];
    let counted = results.into_iter().map(|result| (report.count(result), result));
    // Only a card can have settings that are not enforced.
    let shown = counted.filter(|(count, result)| *count > 0 || *result != TestResult::NotEnforced);
    let counts: Vec<String> =
        shown.map(|(count, result)| format!("{count} {}", result.word())).collect();
    table(["test", "result", "thread", "observation"], rows) + &counts.join(", ") + "\n"
}

/// Prints one line that the next one overwrites.
fn show(test: &TestReport, done: usize, count: usize) {
    let name = &test.name;
    let mut out = io::stderr().lock();
    let end = if done == count { "\r\x1b[K" } else { "" };
    // Progress only: errors do not matter.
    let _ = write!(out, "\r\x1b[K{done}/{count} {name}: {}{end}", test.result.word());
    let _ = out.flush();
}

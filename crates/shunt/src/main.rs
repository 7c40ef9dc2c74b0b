//! The shunt binary: one command line, one daemon.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong command line or configuration.

mod complete;
mod conform;
mod doctor;
mod error;
mod explain;
mod flat;
mod journal;
mod lab;
mod manage;
mod migrate;
mod pages;
mod plan;
mod rates;
mod run_dir;
mod stats;
mod text;
mod top;
mod up;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use api::ClientError;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use daemon::log::Log;
use error::{UsageError, of_command_line};
use journal::JournalLog;
use model::state::{Problem, Problems};
use pages::Title;
use run_dir::SeveralDaemons;
use rustix::io::Errno;
use tracing::Level;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Network I/O for virtual machines and containers, with SR-IOV at its centre.
#[derive(Debug, Parser)]
#[command(add = Title("network I/O for virtual machines and containers"))]
#[command(name = "shunt", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  shunt lab                               measure this machine, and write a report
  shunt doctor                            what this machine lacks, and how to get it
  shunt up --config shunt.toml            serve the NICs of shunt.toml
  shunt adapter list                      each adapter, its path, and the reason
  shunt apply -f state.toml --dry-run     what a file would change in the running daemon
  shunt stats                             counters of the daemon
  shunt top                               its rates, live in the terminal

Each command has its own help: shunt lab --help")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Nic(manage::nic::Nics),
    Vf(manage::vf::Vfs),
    Switch(manage::switch::Switches),
    Adapter(manage::adapter::Adapters),
    Vpf(Box<manage::vpf::Vpfs>),
    Vm(manage::vm::Vms),
    Apply(manage::apply::Apply),
    Export(manage::apply::Export),
    Events(manage::events::Events),
    Migrate(Box<migrate::Migrate>),
    Stats(stats::Stats),
    Top(top::Top),
    Trace(manage::trace::Trace),
    Capture(Box<manage::capture::Capture>),
    Explain(explain::Explain),
    Doctor(doctor::Doctor),
    Upgrade(manage::upgrade::Upgrade),
    Lab(lab::Lab),
    Plan(plan::Plan),
    Conform(conform::Conform),
    Completions(pages::Completions),
    Man(pages::Man),
}

fn main() -> ExitCode {
    complete::answer(command);
    let as_json = std::env::args().any(|argument| argument == "--json");
    let cli = match command().try_get_matches().and_then(|given| Cli::from_arg_matches(&given)) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return refused(&error, as_json),
        Err(help) => help.exit(),
    };
    let code = match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (text, code) = told(&error, as_json);
            complain(&text);
            ExitCode::from(code)
        }
    };
    daemon::log::flush();
    code
}

/// The command line. A negative number is a value of each option and argument, for an error about
/// its range, and no unknown option.
fn command() -> clap::Command {
    fn with_negative_values(command: clap::Command) -> clap::Command {
        let takes = |one: clap::Arg| match one.get_action().takes_values() {
            true => one.allow_negative_numbers(true),
            false => one,
        };
        command.mut_args(takes).mut_subcommands(with_negative_values)
    }
    with_negative_values(Cli::command())
}

/// Text or JSON of an error, and the exit code.
fn told(error: &anyhow::Error, as_json: bool) -> (String, u8) {
    if let Some(UsageError(problems)) = error.downcast_ref() {
        return (shown(problems, as_json), 2);
    }
    if let Some(several) = error.downcast_ref::<SeveralDaemons>() {
        let text = if as_json { several.json().to_string() } else { several.to_string() };
        return (text + "\n", 2);
    }
    let prefix = if as_json { "" } else { "shunt: " };
    (format!("{prefix}{}", shown(&failure(error), as_json)), 1)
}

/// Reports an error of the command line, with the command's usage.
fn refused(error: &clap::Error, as_json: bool) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && !as_json {
        error.exit(); // with the help, and code 2
    }
    let mut problem = of_command_line(error);
    let is_up = std::env::args().nth(1).is_some_and(|command| command == "up");
    if let (ErrorKind::UnknownArgument, true) = (error.kind(), is_up) {
        problem.remedy = up::remedy_of_setting(&problem.field).unwrap_or(problem.remedy);
    }
    let mut text = shown(&problem.into(), as_json);
    if let (Some(usage), false) = (error.get(ContextKind::Usage), as_json) {
        text += &format!("\n{usage}\n\nFor more information, try --help.\n");
    }
    if !as_json {
        text = format!("error: {text}");
    }
    complain(&text);
    ExitCode::from(2)
}

/// Problems as lines of text, or as one line of JSON.
fn shown(problems: &Problems, as_json: bool) -> String {
    match as_json {
        true => serde_json::to_string(problems).expect("problems are JSON") + "\n",
        false => format!("{problems}\n"),
    }
}

/// Starts the daemon's log.
fn start_log() -> anyhow::Result<()> {
    let log = daemon::log::to_standard_error();
    log_to(Some(log.context("cannot start the log")?));
    Ok(())
}

/// Sends tracing events to `log`, or without one to standard error.
fn log_to(log: Option<Log>) {
    let writer = match log {
        Some(log) if journal::is_standard_error() => BoxMakeWriter::new(JournalLog(log)),
        Some(log) => BoxMakeWriter::new(move || log.clone()),
        None => BoxMakeWriter::new(io::stderr),
    };
    tracing_subscriber::fmt()
        .with_writer(writer)
        // `eprintln!` would report them, and panics if standard error is not writable.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(Level::INFO.into())
                .with_env_var("SHUNT_LOG")
                .from_env_lossy(),
        )
        .init();
}

fn run(command: Command) -> anyhow::Result<()> {
    // The daemon must not block on its log; a command may.
    let command = match command {
        Command::Up(up) => return up.run(start_log),
        command => command,
    };
    log_to(None);
    match command {
        Command::Up(_) => unreachable!("it has run"),
        Command::Nic(nic) => nic.run(),
        Command::Vf(vf) => vf.run(),
        Command::Switch(switch) => switch.run(),
        Command::Adapter(adapter) => adapter.run(),
        Command::Vpf(vpf) => vpf.run(),
        Command::Vm(vm) => vm.run(),
        Command::Apply(apply) => apply.run(),
        Command::Export(export) => export.run(),
        Command::Events(events) => events.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Stats(stats) => stats.run(),
        Command::Top(top) => top.run(),
        Command::Trace(trace) => trace.run(),
        Command::Capture(capture) => capture.run(),
        Command::Explain(explain) => explain.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Upgrade(upgrade) => upgrade.run(),
        Command::Lab(lab) => lab.run(),
        Command::Plan(plan) => plan.run(),
        Command::Conform(conform) => conform.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(Cli::command()),
    }
}

/// Writes an error to the daemon's log, or to standard error. Ignores write errors: the exit code
/// is the same.
fn complain(text: &str) {
    let prefix = if journal::is_standard_error() { journal::prefix(Level::ERROR) } else { "" };
    let text: String = text.lines().map(|line| format!("{prefix}{line}\n")).collect();
    if !daemon::log::say(&text) {
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Problems of a failure: message and remedy apart.
fn failure(error: &anyhow::Error) -> Problems {
    if let Some(problems) = error.chain().next().and_then(|first| first.downcast_ref::<Problems>())
    {
        return problems.clone();
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return error.problems();
    }
    let mut problem = Problem::of_error(error.as_ref());
    if let Some(remedy) = remedy(error).filter(|_| problem.remedy.is_empty()) {
        problem.remedy = remedy.to_owned();
    }
    problem.into()
}

/// Remedy for an exhausted resource, from the error's root cause.
fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    let cause = error.root_cause();
    let code = cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::raw_os_error)
        .or_else(|| Some(cause.downcast_ref::<Errno>()?.raw_os_error()))?;
    match Errno::from_raw_os_error(code) {
        Errno::NOMEM => Some(
            "out of memory: free some, or raise the limit \
             (ulimit -v, the memory.max of its cgroup)",
        ),
        Errno::MFILE => Some("raise this process's limit of open files (ulimit -n)"),
        Errno::NFILE => Some("raise this machine's limit of open files (sysctl fs.file-max)"),
        Errno::NOSPC => Some("free disk space, or choose another directory"),
        Errno::ROFS => Some("choose a directory that can be written"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of each command below `command` that has `--json`.
    fn with_json(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
        if command.get_subcommands().next().is_none()
            && command.get_arguments().any(|argument| argument.get_long() == Some("json"))
        {
            all.push(words.to_vec());
        }
        for below in command.get_subcommands() {
            with_json(below, &[words, &[below.get_name().to_owned()]].concat(), all);
        }
    }

    #[test]
    fn every_command_with_json_reports_a_wrong_option_as_one_line_of_json() {
        let mut command = Cli::command();
        command.build();
        let mut all = Vec::new();
        with_json(&command, &["shunt".to_owned()], &mut all);
        assert!(all.len() > 40, "{all:?}");
        for words in all {
            let line = [&words[..], &["--json".to_owned(), "--no-such-option".to_owned()]].concat();
            let error = Cli::try_parse_from(&line).expect_err("no command has it");
            let text = shown(&of_command_line(&error).into(), true);
            assert!(text.ends_with('\n') && text.lines().count() == 1, "{line:?}: {text}");
            let body: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let told = body["errors"][0].as_object().expect("an error");
            for part in ["object", "field", "value", "message", "allowed", "remedy"] {
                assert!(told[part].is_string(), "{line:?}: no {part} in {text}");
            }
            assert_eq!(told["field"], "--no-such-option", "{line:?}");
        }
    }

    /// Arguments below `command` that read -1 as an option instead of a value.
    fn without_negative_values(command: &clap::Command, words: &[String], found: &mut Vec<String>) {
        for argument in command.get_arguments().filter(|one| one.get_action().takes_values()) {
            let option = argument.get_long().map(|long| format!("--{long}"));
            let line: Vec<String> = words.iter().cloned().chain(option).collect();
            let given = line.iter().cloned().chain(["-1".to_owned()]);
            let error = super::command().try_get_matches_from(given).err();
            let is_unknown = |error: &clap::Error| {
                error.kind() == ErrorKind::UnknownArgument
                    && of_command_line(error).field.starts_with("-1")
            };
            found.extend(error.filter(is_unknown).map(|_| line.join(" ")));
        }
        for below in command.get_subcommands() {
            without_negative_values(
                below,
                &[words, &[below.get_name().to_owned()]].concat(),
                found,
            );
        }
    }

    #[test]
    fn a_negative_number_is_a_value_of_every_option() {
        let mut found = Vec::new();
        without_negative_values(&Cli::command(), &["shunt".to_owned()], &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn what_there_is_no_more_of_is_told_with_a_remedy() {
        let of = |errno: Errno| {
            let kernel = anyhow::Error::new(errno).context("mapping failed");
            let io = Err::<(), _>(io::Error::from(errno)).context("mapping failed");
            let (kernel, io) = (remedy(&kernel), remedy(&io.unwrap_err()));
            assert_eq!(kernel, io);
            io.unwrap_or_default()
        };
        assert!(of(Errno::NOMEM).contains("memory"));
        assert!(of(Errno::MFILE).contains("ulimit -n"));
        assert!(of(Errno::NFILE).contains("fs.file-max"));
        assert!(of(Errno::ROFS).contains("a directory that can be written"));
        assert_eq!(of(Errno::NOENT), "");
    }
}

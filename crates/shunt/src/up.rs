//! `shunt up`: the daemon in the foreground.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use api::Server;
use daemon::{Launch, SandboxMode};
use model::config::{Config, SourceFile};
use model::state::schema;
use serde_json::json;

use crate::error::UsageError;
use crate::pages::Title;
use crate::text::print;

/// Run the daemon in the foreground.
///
/// It serves the NICs, switches and adapters of a TOML file until SIGINT or SIGTERM. Once a command
/// has changed them, the stored state overrides the file. Without a file it has default settings
/// and the stored state, at first none: `shunt apply` fills it. It prints a line "ready" to
/// standard output once all sockets are served, and with `api.tcp` the dashboard's address. It logs
/// to standard error (SHUNT_LOG=debug for more). The file is read only at the start: SIGHUP is
/// logged and ignored.
#[derive(Debug, clap::Args)]
#[command(add = Title("the daemon: software SR-IOV NICs and switches"))]
#[command(after_help = "\
Examples:
  shunt up --config shunt.toml            serve the NICs of shunt.toml
  shunt up --config shunt.toml --check    only check the file
  shunt up                                an empty daemon, for shunt apply and other commands

docs/shunt.example.toml is an annotated example, docs/configuration.md lists every field.")]
pub(crate) struct Up {
    /// Configuration file [default settings if absent].
    #[arg(long, value_name = "FILE", required_if_eq("sandbox", "file"))]
    config: Option<PathBuf>,
    /// Only check the file: exit code 2 and one line per error, if there are any.
    #[arg(long, requires = "config")]
    check: bool,
    /// Print "ready" or the result of --check as JSON, and errors too. The log is text.
    #[arg(long)]
    json: bool,
    /// Give up rights that the daemon does not need, and have a launcher keep them; "file": it
    /// serves only what the file names; "off" only to compare. docs/sandbox.md has the details.
    #[arg(long, value_enum, default_value_t = Sandbox::On, value_name = "on|file|off")]
    #[arg(hide_possible_values = true)]
    sandbox: Sandbox,
    /// End with the parent process; for experiments (internal).
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Take over from the daemon at the other end of standard input; for `shunt upgrade`.
    #[arg(long, hide = true, conflicts_with_all = ["check", "with_parent", "json"])]
    take_over: bool,
    /// Serve requests of the daemon that was started from this file, on standard input (internal).
    #[arg(long, hide = true, value_name = "PROGRAM")]
    launcher: Option<PathBuf>,
}

/// Use of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sandbox {
    On,
    File,
    Off,
}

impl Up {
    /// Runs the daemon, or a process of it; `log` starts the log.
    pub(crate) fn run(self, log: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(program) = self.launcher {
            return daemon::launcher::run(program, self.config, std::io::stdin().as_fd());
        }
        if self.take_over {
            let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
            let sandbox = daemon::Sandbox::enter(self.sandbox_mode()?)?;
            log()?;
            return daemon::take_over(socket, sandbox);
        }
        let source = match &self.config {
            Some(path) => SourceFile::read(path, "--config").map_err(UsageError::from)?,
            None => SourceFile::new("default settings", ""),
        };
        let config = Config::of(&source).map_err(UsageError::from)?;
        if self.check {
            let checked = daemon::check_machine(&config);
            let warnings = checked.map_err(|problems| UsageError(source.tell(problems)))?;
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            let name = source.name();
            let text = match self.json {
                true => format!("{:#}\n", json!({"config": name, "good": true})),
                false => format!("{name}: good\n"),
            };
            return Ok(print(&text)?);
        }
        let sandbox = daemon::Sandbox::enter(self.sandbox_mode()?)?;
        log()?;
        let launch = Launch { config: source, with_parent: self.with_parent, sandbox };
        daemon::run(&config, launch, |server| say_ready(ready(self.json, server)))
    }

    fn sandbox_mode(&self) -> Result<SandboxMode> {
        Ok(match (self.sandbox, &self.config) {
            (Sandbox::On, _) => SandboxMode::On,
            (Sandbox::Off, _) => SandboxMode::Off,
            (Sandbox::File, file) => {
                let file = file.as_deref().context("--sandbox=file needs --config")?;
                SandboxMode::File(std::path::absolute(file)?)
            }
        })
    }
}

/// Remedy for an option that `up` lacks because it is a setting of the file.
pub(crate) fn remedy_of_setting(option: &str) -> Option<String> {
    let name = option.strip_prefix("--")?.replace('-', "_");
    schema::schemas()["DaemonSettings"]["properties"].get(&name)?;
    Some(format!("set {name} in the file of --config"))
}

/// Lines that say that the daemon serves, and where the dashboard is if it is served over TCP. Only
/// a terminal gets the token: logs keep what is written elsewhere.
fn ready(json: bool, server: Option<&Server>) -> String {
    let is_terminal = std::io::stdout().is_terminal();
    let url = server.and_then(|server| server.dashboard_url(is_terminal && !json));
    match (json, url) {
        (true, None) => format!("{}\n", json!({"ready": true})),
        (true, Some(url)) => format!("{}\n", json!({"ready": true, "dashboard": url})),
        (false, None) => "ready\n".to_owned(),
        (false, Some(url)) => format!("ready\ndashboard: {url}\n"),
    }
}

/// Prints lines from a thread: standard output may be a full pipe, and must not block the daemon.
fn say_ready(lines: String) {
    let thread = std::thread::Builder::new().name("ready".into());
    if let Err(error) = thread.spawn(move || drop(print(&lines))) {
        tracing::warn!("cannot start a thread to print \"ready\": {error}");
    }
}

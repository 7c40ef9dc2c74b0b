//! `shunt migrate`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use api::{Client, Token};
use clap::Args;
use migrate::{
    self, MigrateError, MigrationOutcome, MigrationReport, MigrationSpec, PathChange, RecoverySpec,
    StepReport, failover,
};
use model::config::socket_path;
use model::state::{PathInForce, Problem};
use serde_json::{Map, Value};

use crate::complete;
use crate::error::UsageError;
use crate::manage::vm::device_of;
use crate::pages::Title;
use crate::run_dir::RunDirArg;
use crate::text::{print, table};

/// Migrate a running guest, with its adapters, to another host.
///
/// Both hosts run a daemon and a QEMU, the target's started with `-incoming defer` (or with the
/// same uri). The adapters are made at the target first, each on a VF or, with the reason, on the
/// switch. Then QEMU migrates the guest, and its addresses move while it is stopped. Frames for it
/// meanwhile are queued. If any step fails, the guest stays on the source.
///
/// If the migrating command was killed, or could not determine the result, end the migration with
/// --abort (the guest is at the source) or --finish (it is at the target). Both refuse to act on an
/// uncertain state.
#[derive(Debug, Args)]
#[command(add = Title("live migration of a guest with its adapters"))]
#[command(after_help = "\
Examples:
  shunt migrate web --from-qmp /run/web.qmp --to /run/shunt-b --to-qmp /run/web-b.qmp \\
      --uri unix:/run/web.migration --socket web=/run/shunt-b/web.sock
  shunt migrate web --from-qmp /run/web.qmp --to https://b.example:7443 --token-file b.token \\
      --ca b.pem --to-qmp /run/b/web.qmp --uri tcp:b.example:4444 --bandwidth-mbps 8000
  shunt migrate web ... --to-primary web=vfio-pci,host=0000:01:10.0,bus=slot1
  shunt migrate web ... --dry-run         the plan, and its obstacles
  shunt migrate web --abort --from-qmp /run/web.qmp --to /run/shunt-b

--to-qmp and --start are this host's. Where the target's QEMU is on another, bring its socket here before:
  ssh -N -L /run/b/web.qmp:/run/web.qmp b.example")]
pub(crate) struct Migrate {
    /// Name of the guest in QEMU (-name), if it has one; for --abort and --finish also the
    /// identifier of the migration, as in reports.
    vm: String,
    /// QMP socket of the QEMU that runs the guest.
    #[arg(long, value_name = "SOCKET")]
    from_qmp: PathBuf,
    /// QMP socket of the QEMU that waits for the guest.
    #[arg(long, value_name = "SOCKET", required_unless_present_any = ["abort", "finish"])]
    to_qmp: Option<PathBuf>,
    /// Address on which the target's QEMU waits: unix:PATH or tcp:HOST:PORT, in QEMU's syntax.
    #[arg(long, required_unless_present_any = ["abort", "finish"])]
    uri: Option<String>,
    /// The source daemon.
    #[command(flatten)]
    daemon: RunDirArg,
    /// Target daemon: a run directory, http://127.0.0.1:PORT or https://HOST:PORT.
    #[arg(long, value_name = "DAEMON", help_heading = "Daemon", add = complete::run_dir())]
    to: String,
    /// File with the target daemon's token, for http and https.
    #[arg(long, value_name = "FILE", help_heading = "Daemon")]
    token_file: Option<PathBuf>,
    /// PEM file of CA certificates for the target daemon, for https.
    #[arg(long, value_name = "FILE", help_heading = "Daemon")]
    ca: Option<PathBuf>,
    /// Adapter to migrate; repeatable. Default: all adapters of the guest.
    #[arg(long = "adapter", value_name = "NAME", help_heading = "Adapters", add = complete::adapter())]
    adapters: Vec<String>,
    /// Path of an adapter's socket on the target, if it differs; repeatable.
    #[arg(long = "socket", value_name = "NAME=PATH", help_heading = "Adapters", add = complete::adapter_value())]
    sockets: Vec<String>,
    /// Primary to plug at the target, beside an adapter that is a standby, as for QEMU's -device;
    /// repeatable. Without one the guest stays on the standby.
    #[arg(long = "to-primary", value_name = "NAME=DEVICE", help_heading = "Adapters", add = complete::adapter_value())]
    to_primaries: Vec<String>,
    /// Switch on the target, if its name differs.
    #[arg(long, value_name = "SWITCH", help_heading = "Adapters", add = complete::target_switch())]
    to_switch: Option<String>,
    /// NIC on the target for adapters without a switch, if its name differs.
    #[arg(long, value_name = "NIC", help_heading = "Adapters", add = complete::target_nic())]
    to_nic: Option<String>,
    /// Maximum bandwidth of QEMU, in Mbit/s. [default: QEMU's own limit]
    #[arg(long, value_name = "N", help_heading = "Migration")]
    bandwidth_mbps: Option<u64>,
    /// Maximum downtime of the guest, by QEMU's estimate, in ms. [default: QEMU's own, 300]
    #[arg(long, value_name = "MS", help_heading = "Migration")]
    downtime_ms: Option<u64>,
    /// Give up after this time, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600, help_heading = "Migration")]
    timeout: u64,
    /// Command that starts the target's QEMU once its sockets exist; it may return or keep running.
    /// If the migration fails, that QEMU is ended.
    #[arg(long, value_name = "COMMAND", help_heading = "Migration")]
    start: Option<String>,
    /// Longest wait for the target's QEMU to answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = "Migration")]
    start_timeout: u64,
    /// Longest wait for the guest's rings to run at the target, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20, help_heading = "Migration")]
    verify_timeout: u64,
    /// Socket of the guest's agent (QEMU's port org.qemu.guest_agent.0): removes VFs that the guest
    /// has enabled for the time of the migration, as QEMU would leave them dead.
    #[arg(long, value_name = "SOCKET", help_heading = "Migration")]
    guest_agent: Option<PathBuf>,
    /// Agent socket of the target's QEMU, to enable the VFs again.
    #[arg(long, value_name = "SOCKET", help_heading = "Migration")]
    to_guest_agent: Option<PathBuf>,
    /// Longest wait for the guest to release a primary, or to take one, in seconds.
    #[arg(long, value_name = "S", default_value_t = failover::TIMEOUT_S, help_heading = "Migration",
          value_parser = clap::value_parser!(u64).range(1..=failover::TIMEOUT_S_MAX))]
    primary_timeout: u64,
    /// Keep the source's QEMU, with a stopped guest, instead of ending it.
    #[arg(long, help_heading = "Migration")]
    keep_source: bool,
    /// End an abandoned migration, with the guest at the source, where it continues.
    #[arg(long, conflicts_with_all = ["finish", "dry_run"], help_heading = "Abandoned migrations")]
    abort: bool,
    /// End an abandoned migration, with the guest at the target.
    #[arg(long, conflicts_with = "dry_run", help_heading = "Abandoned migrations")]
    finish: bool,
    /// With --abort: even if the guest ran at the target. It is ended there, and continues at the
    /// source from where it stopped: its later writes to shared disks corrupt them.
    #[arg(long, requires_all = ["abort", "to_qmp"], help_heading = "Abandoned migrations")]
    go_back: bool,
    /// Change nothing; show the plan, and its obstacles.
    #[arg(long)]
    dry_run: bool,
    /// Print the plan, or the report, as JSON.
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(crate) fn run(self) -> Result<()> {
        if self.abort || self.finish {
            return self.end();
        }
        let spec = self.spec()?;
        if self.dry_run {
            let plan = migrate::plan(&spec).map_err(told)?;
            let text = if self.json { json(&plan) } else { plan.to_string() };
            print(&text)?;
            return match plan.obstacles.is_empty() {
                true => Ok(()),
                false => {
                    let remedy = "remove the obstacles of the plan";
                    let problem = Problem::new("", (), "cannot be migrated", remedy);
                    Err(UsageError(problem.of(format!("guest {}", self.vm)).into()).into())
                }
            };
        }
        let report = migrate::run(&spec, &mut tell_step(self.json)).map_err(told)?;
        let text = if self.json { json(&report) } else { time_line(&report.time_line) };
        print(&text)?;
        ended(&report)
    }

    /// Ends an abandoned migration.
    fn end(&self) -> Result<()> {
        let ending = RecoverySpec {
            name: self.vm.clone(),
            source: self.daemon.client()?,
            target: self.target()?,
            source_qmp: self.from_qmp.clone(),
            target_qmp: self.to_qmp.clone(),
            go_back: self.go_back,
            guest_agent: if self.abort { &self.guest_agent } else { &self.to_guest_agent }.clone(),
            keep_source: self.keep_source,
        };
        let end = if self.abort { migrate::abort } else { migrate::finish };
        let ended = end(&ending, &mut tell_step(self.json)).map_err(told)?;
        if self.json {
            print(&json(&ended))?;
        }
        match ended.error {
            None => Ok(()),
            Some(why) => anyhow::bail!("the migration is ended, but: {why}"),
        }
    }

    fn spec(&self) -> Result<MigrationSpec> {
        let needed = "clap requires it without --abort and --finish";
        Ok(MigrationSpec {
            vm: self.vm.clone(),
            source: self.daemon.client()?,
            target: self.target()?,
            source_qmp: self.from_qmp.clone(),
            target_qmp: self.to_qmp.clone().expect(needed),
            uri: self.uri.clone().expect(needed),
            adapters: self.adapters.clone(),
            sockets: sockets(&self.sockets)?,
            target_primaries: primaries(&self.to_primaries)?,
            primary_timeout: Duration::from_secs(self.primary_timeout),
            switch: self.to_switch.clone(),
            nic: self.to_nic.clone(),
            bandwidth: self.bandwidth_mbps.map(|mbps| mbps.saturating_mul(125_000)),
            downtime_ms: self.downtime_ms,
            timeout: Duration::from_secs(self.timeout),
            start: self.start.clone(),
            start_timeout: Duration::from_secs(self.start_timeout),
            verify_timeout: Duration::from_secs(self.verify_timeout),
            keep_source: self.keep_source,
            guest_agent: self.guest_agent.clone(),
            target_guest_agent: self.to_guest_agent.clone(),
            interrupted: migrate::interrupted_by_signals()?,
        })
    }

    fn target(&self) -> Result<Client> {
        if !self.to.contains("://") {
            return Ok(Client::new(&socket_path(Path::new(&self.to))));
        }
        let Some(file) = &self.token_file else {
            let value = self.to.as_str();
            return Err(
                UsageError::option("--to", value, "requires a token", "give --token-file").into()
            );
        };
        let mistake = |option: &str, error: anyhow::Error| {
            UsageError::option(option, (), &format!("is not usable: {error:#}"), "correct it")
        };
        let token = Token::read(file).map_err(|error| mistake("--token-file", error))?;
        Ok(Client::at(&self.to, token, self.ca.as_deref())
            .map_err(|error| mistake("--to", error))?)
    }
}

/// Parses `NAME=PATH` pairs.
fn sockets(given: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => {
            Ok((name.to_owned(), path.to_owned()))
        }
        _ => {
            let remedy = "write NAME=/PATH";
            Err(UsageError::option("--socket", text.as_str(), "is not allowed", remedy))
        }
    };
    given.iter().map(pair).collect()
}

/// Parses `NAME=DEVICE` pairs.
fn primaries(given: &[String]) -> Result<BTreeMap<String, Map<String, Value>>, UsageError> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, device)) if !name.is_empty() => {
            Ok((name.to_owned(), device_of("--to-primary", device)?))
        }
        _ => {
            let remedy = "write NAME=DRIVER,PROPERTY=VALUE,...";
            Err(UsageError::option("--to-primary", text.as_str(), "is not allowed", remedy))
        }
    };
    given.iter().map(pair).collect()
}

/// The paths of the adapters over time.
fn time_line(changes: &[PathChange]) -> String {
    let row = |change: &PathChange| {
        let stopped = change.path == PathInForce::None;
        let path = if stopped { "stopped".to_owned() } else { change.path.to_string() };
        [change.at_ms.to_string(), change.host.clone(), change.adapter.clone(), path]
    };
    let rows = changes.iter().map(row).collect();
    format!("\n{}", table(["at ms", "guest at", "adapter", "path"], rows))
}

/// Prints each completed step, unless the result is printed as JSON at the end.
pub(crate) fn tell_step(silent: bool) -> impl FnMut(&StepReport) {
    move |done| {
        if !silent {
            let StepReport { step, text, ms } = done;
            // the reader may have closed it
            let _ = writeln!(std::io::stdout(), "{step:8} {ms:6} ms  {text}");
        }
    }
}

pub(crate) fn told(failed: MigrateError) -> anyhow::Error {
    match failed {
        MigrateError::Refused(problems) => UsageError(problems).into(),
        failed => failed.into(),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    format!("{:#}\n", serde_json::to_value(value).expect("a report is JSON"))
}

/// Exit status for the report.
fn ended(report: &MigrationReport) -> Result<()> {
    let why = report.error.as_deref().unwrap_or_default();
    match report.outcome {
        MigrationOutcome::Moved if why.is_empty() => Ok(()),
        MigrationOutcome::Moved => anyhow::bail!("{why}"),
        MigrationOutcome::RolledBack => anyhow::bail!("the guest was not migrated: {why}"),
        MigrationOutcome::Unclear => anyhow::bail!("the guest's host is uncertain: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_pairs_of_a_name_and_a_path() {
        let given = ["web=/run/a.sock".to_owned(), "db=/x=y".to_owned()];
        let read = sockets(&given).unwrap();
        assert_eq!(read["web"], "/run/a.sock");
        assert_eq!(read["db"], "/x=y");
        for wrong in ["web", "=/run/a", "web=run/a"] {
            assert!(sockets(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn primaries_are_pairs_of_a_name_and_a_device() {
        let read = primaries(&["web=vfio-pci,host=0000:01:10.0,bus=slot1".to_owned()]).unwrap();
        assert_eq!(read["web"]["host"], "0000:01:10.0");
        for wrong in ["web", "=vfio-pci", "web=", "web=host=0000:01:10.0"] {
            let refused = primaries(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(refused.contains("--to-primary"), "{refused}");
        }
    }

    #[test]
    fn a_time_line_says_where_the_guest_was_and_on_which_path() {
        let change = |at_ms, host: &str, path| PathChange {
            at_ms,
            adapter: "web".to_owned(),
            host: host.to_owned(),
            path,
        };
        let changes = [
            change(43, "source", PathInForce::Vf),
            change(2767, "source", PathInForce::None),
            change(3005, "target", PathInForce::Synthetic),
        ];
        let lines: Vec<String> = time_line(&changes).lines().map(words).collect();
        let all = [
            "",
            "at ms guest at adapter path",
            "43 source web vf",
            "2767 source web stopped",
            "3005 target web synthetic",
        ];
        assert_eq!(lines, all);
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

//! `shunt migrate`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use api::{Client, Token};
use clap::Args;
use migrate::{
    self, MigrateError, MigrationOutcome, MigrationReport, MigrationSpec, RecoverySpec, StepReport,
};
use model::config::socket_path;

use crate::{UsageError, say};

/// Move a running guest, with its adapters, to another host.
///
/// Both hosts run a daemon and a QEMU, the target's started with `-incoming defer` (or with the
/// same uri). The adapters are made at the target first, each on a VF or, with the reason, on the
/// switch; then QEMU moves the guest, and while it stands still its addresses. What arrives for it
/// meanwhile waits. If anything fails the guest stays where it is.
///
/// A move whose mover was killed, or could not tell how it ended, is ended by --abort (the guest is
/// at the source) or --finish (it is at the target); what is not certain is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt migrate web --from-qmp /run/web.qmp --to /run/shunt-b --to-qmp /run/web-b.qmp \\
      --uri unix:/run/web.migration --socket web=/run/shunt-b/web.sock
  shunt migrate web --from-qmp /run/web.qmp --to https://b.example:7443 --token-file b.token \\
      --ca b.pem --to-qmp /run/b/web.qmp --uri tcp:b.example:4444 --bandwidth-mbps 8000
  shunt migrate web ... --dry-run         what each adapter would get there, and what is in the way
  shunt migrate web --abort --from-qmp /run/web.qmp --to /run/shunt-b

--to-qmp and --start are this host's. Where the target's QEMU is on another, bring its socket here before:
  ssh -N -L /run/b/web.qmp:/run/web.qmp b.example")]
pub(crate) struct Migrate {
    /// The guest, as its QEMU was named (-name), if it was; for --abort and --finish also the move,
    /// as reports name it.
    vm: String,
    /// QMP of the QEMU that the guest runs in.
    #[arg(long, value_name = "SOCKET")]
    from_qmp: PathBuf,
    /// QMP of the QEMU that waits for it.
    #[arg(long, value_name = "SOCKET", required_unless_present_any = ["abort", "finish"])]
    to_qmp: Option<PathBuf>,
    /// Where that one waits: unix:PATH or tcp:HOST:PORT, as QEMU writes it.
    #[arg(long, required_unless_present_any = ["abort", "finish"])]
    uri: Option<String>,
    /// The daemon that the guest is on: its run directory.
    #[arg(long, value_name = "DIR", help_heading = "Daemons")]
    run_dir: Option<PathBuf>,
    /// The daemon that it goes to: a run directory, http://127.0.0.1:PORT or https://HOST:PORT.
    #[arg(long, value_name = "DAEMON", help_heading = "Daemons")]
    to: String,
    /// The file with that daemon's token, for http and https.
    #[arg(long, value_name = "FILE", help_heading = "Daemons")]
    token_file: Option<PathBuf>,
    /// Certificates that vouch for that daemon's, as PEM, for https.
    #[arg(long, value_name = "FILE", help_heading = "Daemons")]
    ca: Option<PathBuf>,
    /// An adapter to move; may be given several times. None: all that the guest has.
    #[arg(long = "adapter", value_name = "NAME", help_heading = "Adapters")]
    adapters: Vec<String>,
    /// Where an adapter's socket is on the target, if not in the same place; may be given several
    /// times.
    #[arg(long = "socket", value_name = "NAME=PATH", help_heading = "Adapters")]
    sockets: Vec<String>,
    /// The target's switch, if it has another name.
    #[arg(long, value_name = "SWITCH", help_heading = "Adapters")]
    to_switch: Option<String>,
    /// The target's NIC, for adapters without a switch, if it has another name.
    #[arg(long, value_name = "NIC", help_heading = "Adapters")]
    to_nic: Option<String>,
    /// The most that QEMU sends, in Mbit/s; left out: QEMU's own limit.
    #[arg(long, value_name = "N", help_heading = "Migration")]
    bandwidth_mbps: Option<u64>,
    /// How long the guest may stand still, by QEMU's estimate, in ms; left out: QEMU's own, 300.
    #[arg(long, value_name = "MS", help_heading = "Migration")]
    downtime_ms: Option<u64>,
    /// Give up when it takes longer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600, help_heading = "Migration")]
    timeout: u64,
    /// A command that starts the target's QEMU once its sockets are there; it must return, or stay.
    /// If the guest is not moved, that QEMU is ended.
    #[arg(long, value_name = "COMMAND", help_heading = "Migration")]
    start: Option<String>,
    /// How long the target's QEMU may take until it answers, in seconds.
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = "Migration")]
    start_timeout: u64,
    /// How long the guest's rings may take to run at the target, in seconds.
    #[arg(long, value_name = "S", default_value_t = 20, help_heading = "Migration")]
    verify_timeout: u64,
    /// The socket of the guest's agent (QEMU's port org.qemu.guest_agent.0): VFs that the guest has
    /// enabled are taken away for the time of the move, as QEMU would leave them dead.
    #[arg(long, value_name = "SOCKET", help_heading = "Migration")]
    guest_agent: Option<PathBuf>,
    /// The same of the target's QEMU, to give them back there.
    #[arg(long, value_name = "SOCKET", help_heading = "Migration")]
    to_guest_agent: Option<PathBuf>,
    /// Leave the source's QEMU, with a guest that stands still, instead of ending it.
    #[arg(long, help_heading = "Migration")]
    keep_source: bool,
    /// End a move whose mover is gone, with the guest at the source, where it runs on.
    #[arg(long, conflicts_with_all = ["finish", "dry_run"], help_heading = "Moves that did not end")]
    abort: bool,
    /// End it with the guest at the target.
    #[arg(long, conflicts_with = "dry_run", help_heading = "Moves that did not end")]
    finish: bool,
    /// With --abort: also if the guest ran at the target. It is ended there, and runs again from
    /// where it stopped at the source: what it wrote since to disks that both see damages them.
    #[arg(long, requires_all = ["abort", "to_qmp"], help_heading = "Moves that did not end")]
    go_back: bool,
    /// Change nothing; show what would be done, and what is in the way.
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
            say(&text)?;
            return match plan.obstacles.is_empty() {
                true => Ok(()),
                false => Err(UsageError("nothing would be moved".into()).into()),
            };
        }
        let report = migrate::run(&spec, &mut self.teller()).map_err(told)?;
        if self.json {
            say(&json(&report))?;
        }
        ended(&report)
    }

    /// Shows each step when it is done, unless all is shown as JSON at the end.
    fn teller(&self) -> impl FnMut(&StepReport) {
        let silent = self.json;
        move |done| {
            if !silent {
                let StepReport { step, text, ms } = done;
                let _ = writeln!(std::io::stdout(), "{step:8} {ms:6} ms  {text}"); // a reader may have gone
            }
        }
    }

    /// Ends a move that its mover did not end.
    fn end(&self) -> Result<()> {
        let ending = RecoverySpec {
            name: self.vm.clone(),
            source: self.source(),
            target: self.target()?,
            source_qmp: self.from_qmp.clone(),
            target_qmp: self.to_qmp.clone(),
            go_back: self.go_back,
            guest_agent: if self.abort { &self.guest_agent } else { &self.to_guest_agent }.clone(),
            keep_source: self.keep_source,
        };
        let end = if self.abort { migrate::abort } else { migrate::finish };
        let ended = end(&ending, &mut self.teller()).map_err(told)?;
        if self.json {
            say(&json(&ended))?;
        }
        match ended.error {
            None => Ok(()),
            Some(why) => anyhow::bail!("the move is ended, but: {why}"),
        }
    }

    fn source(&self) -> Client {
        let run_dir = self.run_dir.clone().unwrap_or_else(model::config::default_run_dir);
        Client::new(&socket_path(&run_dir))
    }

    fn spec(&self) -> Result<MigrationSpec> {
        let needed = "clap requires it of whoever ends no move";
        Ok(MigrationSpec {
            vm: self.vm.clone(),
            source: self.source(),
            target: self.target()?,
            source_qmp: self.from_qmp.clone(),
            target_qmp: self.to_qmp.clone().expect(needed),
            uri: self.uri.clone().expect(needed),
            adapters: self.adapters.clone(),
            sockets: sockets(&self.sockets)?,
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
            return Err(
                UsageError(format!("{} needs its token; give --token-file", self.to)).into()
            );
        };
        let mistake = |error: anyhow::Error| UsageError(format!("{error:#}"));
        let token = Token::read(file).map_err(mistake)?;
        Ok(Client::at(&self.to, token, self.ca.as_deref()).map_err(mistake)?)
    }
}

/// `NAME=PATH` as a pair.
fn sockets(given: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => {
            Ok((name.to_owned(), path.to_owned()))
        }
        _ => Err(UsageError(format!("--socket {text} is none; write NAME=/PATH"))),
    };
    given.iter().map(pair).collect()
}

fn told(failed: MigrateError) -> anyhow::Error {
    if failed.is_usage_error { UsageError(failed.to_string()).into() } else { failed.into() }
}

fn json(value: &impl serde::Serialize) -> String {
    format!("{:#}\n", serde_json::to_value(value).expect("a report is JSON"))
}

/// What the report means for whoever called.
fn ended(report: &MigrationReport) -> Result<()> {
    let why = report.error.as_deref().unwrap_or_default();
    match report.outcome {
        MigrationOutcome::Moved if why.is_empty() => Ok(()),
        MigrationOutcome::Moved => anyhow::bail!("{why}"),
        MigrationOutcome::RolledBack => anyhow::bail!("the guest was not moved: {why}"),
        MigrationOutcome::Unclear => anyhow::bail!("it is not clear where the guest is: {why}"),
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
}

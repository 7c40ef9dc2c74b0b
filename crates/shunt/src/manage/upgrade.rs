//! `shunt upgrade`: hot restart without loss.

use crate::pages::Title;
use std::path::PathBuf;

use anyhow::Result;
use api::{Method, Upgraded};
use serde_json::json;

use super::client::DaemonArgs;

/// Hot-restart the daemon: a new process takes over, and no frame is lost.
///
/// The new process gets sockets, guest memory, rings and tables; guests see only a gap of some
/// milliseconds. Without --binary, it runs the current content of the daemon's program file. If it
/// fails for any reason, the old process continues, and the error says why.
#[derive(Debug, clap::Args)]
#[command(add = Title("hot restart of the daemon, without loss"))]
#[command(after_help = "\
Examples:
  shunt upgrade                                  restart with the installed program
  shunt upgrade --binary /opt/shunt-2/bin/shunt  another program (as root or the daemon's user)
  shunt upgrade --json                           its process, version, and the gap in microseconds")]
pub(crate) struct Upgrade {
    /// Program to run: beside the daemon's own, or below /usr or /opt.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    target: DaemonArgs,
}

impl Upgrade {
    pub(crate) fn run(self) -> Result<()> {
        let binary = self.binary.as_deref().map(std::path::absolute).transpose()?;
        let order = match &binary {
            Some(binary) => json!({ "binary": binary }),
            None => json!({}),
        };
        let reply = self.target.send(Method::POST, "/v1/upgrade", Some(&order), None)?;
        let done: Upgraded = serde_json::from_value(reply.body.clone())?;
        self.target.show(&reply.body, |_| {
            let Upgraded { pid, version, binary, total_ms, .. } = &done;
            let times = [done.silent_us, done.release_us, done.transfer_us, done.attach_us];
            let [silent, release, transfer, attach] = times.map(|us| us as f64 / 1e3);
            // A daemon of an earlier version does not measure the phases.
            let phases = match release + transfer + attach {
                0.0 => String::new(),
                _ => format!(
                    ": rings released in {release:.1} ms, state sent in {transfer:.1} ms, rings \
                     attached in {attach:.1} ms"
                ),
            };
            format!(
                "process {pid} has taken over: shunt {version}, {binary}\n\
                 duration {total_ms} ms; frames waited {silent:.1} ms{phases}\n"
            )
        })
    }
}

//! `shunt upgrade`: another process takes over, and no frame is lost.

use std::path::PathBuf;

use anyhow::Result;
use api::{Method, Upgraded};
use serde_json::json;

use super::Target;

/// Hot-restart the daemon: a new process takes over, and no frame is lost.
///
/// The new process gets sockets, guests' memory, rings and tables; guests notice nothing but a gap
/// of some milliseconds. Without --binary it is started from the file that the daemon was started
/// from, as that is now. If it fails, for whatever reason, the old one serves on, and the error
/// says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shunt upgrade                                  start the installed program anew
  shunt upgrade --binary /opt/shunt-2/bin/shunt  go over to another one (root, or the daemon's user)
  shunt upgrade --json                           its process, version, and the gap in microseconds")]
pub(crate) struct Upgrade {
    /// The program that takes over.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
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
            let Upgraded { pid, version, binary, silent_us, total_ms } = done;
            let silent = silent_us as f64 / 1e3;
            format!(
                "process {pid} has taken over: shunt {version}, {binary}\n\
                 it took {total_ms} ms, and frames waited for {silent:.1} ms of it\n"
            )
        })
    }
}

//! Parameters of a migration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api::Client;
use serde_json::{Map, Value};

use super::daemon::HOLD_S;

/// Parameters of a migration.
#[derive(Debug)]
pub struct MigrationSpec {
    /// Guest to migrate.
    pub vm: String,
    /// Source daemon.
    pub source: Client,
    /// Target daemon.
    pub target: Client,
    /// QMP socket of the source's QEMU.
    pub source_qmp: PathBuf,
    /// QMP socket of the target's QEMU, which waits for the guest.
    pub target_qmp: PathBuf,
    /// Address at which the target's QEMU waits, as a QEMU migration URI.
    pub uri: String,
    /// Adapters to migrate; empty: all adapters of the guest.
    pub adapters: Vec<String>,
    /// Socket paths on the target, by adapter, if they differ.
    pub sockets: BTreeMap<String, String>,
    /// Primaries to plug at the target, by adapter: QEMU's device with these properties.
    pub target_primaries: BTreeMap<String, Map<String, Value>>,
    /// Time for the guest to take or to release a primary.
    pub primary_timeout: Duration,
    /// Name of the target's switch, if it differs.
    pub switch: Option<String>,
    /// Name of the target's NIC for adapters without a switch, if it differs.
    pub nic: Option<String>,
    /// Maximum bandwidth of QEMU's migration, in bytes a second.
    pub bandwidth: Option<u64>,
    /// Maximum downtime by QEMU's estimate, in milliseconds.
    pub downtime_ms: Option<u64>,
    /// Timeout of the memory copy; then the migration is undone.
    pub timeout: Duration,
    /// Command that starts the target's QEMU, run once the sockets exist.
    pub start: Option<String>,
    /// Timeout for the target's QEMU to answer.
    pub start_timeout: Duration,
    /// Timeout for the guest's rings to run at the target.
    pub verify_timeout: Duration,
    /// Leave the source's QEMU running, with its guest stopped.
    pub keep_source: bool,
    /// Guest agent at the source, to disable enabled VFs; `None`: they are an obstacle.
    pub guest_agent: Option<PathBuf>,
    /// Guest agent at the target, to re-enable them.
    pub target_guest_agent: Option<PathBuf>,
    /// Request to undo the migration. Ignored once the guest may be at the target.
    pub interrupted: Arc<AtomicBool>,
}

impl MigrationSpec {
    /// Time that daemons hold the migration without a message, in seconds: none is sent while a
    /// guest releases its primary.
    pub(super) fn hold_s(&self) -> u32 {
        HOLD_S + self.primary_timeout.as_secs() as u32
    }
}

/// Returns a flag that SIGINT and SIGTERM set, so that they do not end the process amid a
/// migration.
///
/// # Errors
/// The system rejects the handler.
pub fn interrupted_by_signals() -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

//! The daemon's own settings in a configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{SocketPermissions, State};

/// A configuration file: the daemon's own settings, and the state at its first start.
#[derive(ToSchema)]
#[schema(as = Configuration)]
#[expect(dead_code, reason = "the schema is what it is for; the parts are read one by one")]
pub(super) struct Configuration {
    #[serde(flatten)]
    daemon: DaemonSettings,
    #[serde(flatten)]
    state: State,
}

/// The daemon's own settings; read at every start, and only then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonSettings {
    /// Directory of counters, relative sockets and ring records. Left out: `/run/shunt`, or a
    /// directory of the user.
    #[schema(value_type = String, format = "directory")]
    pub run_dir: Option<PathBuf>,
    /// Directory of the stored desired state; not `run_dir`. The default depends on `run_dir`.
    #[schema(value_type = String, format = "directory")]
    pub state_dir: Option<PathBuf>,
    /// Group that may connect to the sockets of guests. Left out: the daemon's own.
    #[schema(value_type = String, format = "group")]
    pub socket_group: Option<String>,
    /// Permissions of the sockets of guests. Left out: "0660" with `socket_group`, else "0600".
    pub socket_mode: Option<SocketPermissions>,
    /// Addresses of the API.
    pub api: ApiSettings,
    /// The polling threads.
    pub lanes: Lanes,
    /// Limits on the machine's resources that guests use.
    pub limits: Limits,
}

/// The API, which the commands talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSettings {
    /// Serve the API; if false, the state cannot change after the start.
    #[schema(default = true)]
    pub enabled: bool,
    /// UNIX socket. Left out: `api.sock` in `run_dir`, the commands' default.
    #[schema(value_type = String, format = "path")]
    pub socket: Option<PathBuf>,
    /// Address and port for serving the API over TCP too; port 0: any free one. Needs `token_file`.
    #[schema(value_type = String, format = "socket-address")]
    pub tcp: Option<SocketAddr>,
    /// File whose first line is the token, 16 to 512 visible ASCII characters. Only its owner may
    /// have access.
    #[schema(value_type = String, format = "file")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the certificate chain. Without one, `tcp` must be a loopback address.
    #[schema(value_type = String, format = "file")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    #[schema(value_type = String, format = "file")]
    pub tls_key: Option<PathBuf>,
    /// Let clients over TCP read without the token: figures, state, events. Changes and captures
    /// need it.
    #[schema(default = false)]
    pub public_read: bool,
}

impl Default for ApiSettings {
    fn default() -> ApiSettings {
        ApiSettings {
            enabled: true,
            socket: None,
            tcp: None,
            token_file: None,
            tls_certificate: None,
            tls_key: None,
            public_read: false,
        }
    }
}

/// The lanes: threads that poll and forward frames.
///
/// A lane polls. After `poll_us` without a frame it yields the CPU between polls; after `yield_us`
/// more it sleeps until a guest kicks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lanes {
    /// One lane for each CPU, pinned to it. Left out: one lane, not pinned.
    #[schema(schema_with = cpus)]
    pub cpus: Vec<usize>,
    /// Time of polling after the last frame before a lane yields, in microseconds.
    #[schema(minimum = 0, maximum = 1_000_000, default = 50)]
    pub poll_us: u32,
    /// Time of yielding between polls before a lane sleeps, in microseconds.
    #[schema(minimum = 0, maximum = 1_000_000, default = 50)]
    pub yield_us: u32,
    /// Let idle lanes sleep; if false, they keep yielding, whatever `yield_us` says.
    #[schema(default = true)]
    pub sleep: bool,
    /// Limit of the wake-up latency of all CPUs of the machine, in microseconds. Left out:
    /// unchanged.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub cpu_latency_us: Option<u32>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { cpus: Vec::new(), poll_us: 50, yield_us: 50, sleep: true, cpu_latency_us: None }
    }
}

impl Lanes {
    /// Number of lanes, at least one.
    pub fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

/// Limits on the machine's resources that guests use. Requests beyond them are rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory that a front-end or vDPA driver may map, in MiB, with its log. Left out: the
    /// machine's memory.
    #[schema(minimum = 1, maximum = 134_217_728)]
    pub session_memory_mib: Option<u64>,
    /// Memory that all sessions together may map, in MiB. Left out: 64 times the machine's, at most
    /// 64 TiB.
    #[schema(minimum = 1, maximum = 134_217_728)]
    pub guest_memory_mib: Option<u64>,
}

/// Schema of a list of CPUs.
fn cpus() -> utoipa::openapi::schema::Array {
    use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
    let cpu = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(1023));
    ArrayBuilder::new()
        .description(Some("One lane for each CPU, pinned to it. Left out: one lane, not pinned."))
        .items(cpu)
        .min_items(Some(1))
        .max_items(Some(64))
        .unique_items(true)
        .build()
}

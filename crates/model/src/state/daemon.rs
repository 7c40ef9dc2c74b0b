//! What a configuration file says of the daemon itself, beside the objects that it starts with.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::State;

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
    /// Directory of the counters, of sockets with a relative path, and of what packed rings need to
    /// outlive the daemon. No symbolic link; this user's or root's. Left out:
    /// `$XDG_RUNTIME_DIR/shunt`, else `/run/shunt` for root, else `/tmp/shunt-UID`.
    #[schema(value_type = String, format = "file")]
    pub run_dir: Option<PathBuf>,
    /// Directory in which the desired state is kept; not `run_dir`. Left out: changes last until
    /// the daemon ends.
    #[schema(value_type = String, format = "file")]
    pub state_dir: Option<PathBuf>,
    /// Where the API is served.
    pub api: ApiSettings,
    /// The polling threads.
    pub lanes: Lanes,
    /// What guests may use of the machine.
    pub limits: Limits,
}

/// The API, which the commands talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSettings {
    /// Whether it is served at all; if not, the state stays as it is at the start.
    #[schema(default = true)]
    pub enabled: bool,
    /// The UNIX socket. Left out: `api.sock` in `run_dir`, where the commands look for it.
    #[schema(value_type = String, format = "path")]
    pub socket: Option<PathBuf>,
    /// Serve it at this address and port, too; port 0: any that is free. Needs `token_file`.
    #[schema(value_type = String, format = "socket-address")]
    pub tcp: Option<SocketAddr>,
    /// The file whose first line is the token, of 16 to 512 visible ASCII characters; only its
    /// owner may have access to it.
    #[schema(value_type = String, format = "file")]
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate and those that vouch for it. Without one, `tcp` must be a
    /// loopback address.
    #[schema(value_type = String, format = "file")]
    pub tls_certificate: Option<PathBuf>,
    /// A PEM file with the certificate's key.
    #[schema(value_type = String, format = "file")]
    pub tls_key: Option<PathBuf>,
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
        }
    }
}

/// The lanes: threads that poll and move frames.
///
/// A lane polls; when no frame has come for `poll_us` it yields the CPU between polls; when none
/// has come for `yield_us` more it sleeps until a guest kicks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lanes {
    /// One lane for each CPU, pinned to it. Left out: one lane, not pinned.
    #[schema(schema_with = cpus)]
    pub cpus: Vec<usize>,
    /// How long a lane polls on after the last frame before it yields, in microseconds.
    #[schema(minimum = 0, maximum = 1_000_000, default = 50)]
    pub poll_us: u32,
    /// How long it then yields between polls before it sleeps, in microseconds.
    #[schema(minimum = 0, maximum = 1_000_000, default = 50)]
    pub yield_us: u32,
    /// Whether a lane sleeps at all; if not, it goes on yielding, whatever `yield_us` says.
    #[schema(default = true)]
    pub sleep: bool,
    /// While the daemon runs, no CPU of the machine sleeps so deep that waking takes longer, in
    /// microseconds. Left out: the machine is left alone.
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub cpu_latency_us: Option<u32>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { cpus: Vec::new(), poll_us: 50, yield_us: 50, sleep: true, cpu_latency_us: None }
    }
}

impl Lanes {
    /// How many there are; at least one.
    pub fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

/// What guests may use of the machine. What would exceed it is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory that one front-end, or the driver of one vDPA device, may have mapped, in MiB, a
    /// dirty log included. Raise it for guests that have more memory than the machine. Left out:
    /// the machine's memory.
    #[schema(minimum = 1, maximum = 134_217_728)]
    pub session_memory_mib: Option<u64>,
    /// Memory that all of them together may have mapped, in MiB; each adapter of a guest counts the
    /// guest's memory once more. Left out: 64 times the machine's memory, at most 64 TiB.
    #[schema(minimum = 1, maximum = 134_217_728)]
    pub guest_memory_mib: Option<u64>,
}

/// The schema of a list of CPUs.
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

//! Requests to a daemon's API.

use std::path::Path;

use anyhow::{Context, Result, bail};
use api::{Client, ClientError, Method};
use model::config::socket_path;
use serde_json::Value;

use crate::subject::Rejection;

/// Answer of the manager.
pub(crate) type ManagerReply = std::result::Result<Value, Rejection>;

/// Sends a request to the daemon with this run directory.
///
/// # Errors
/// No daemon answers, or it has an internal error.
pub(crate) fn ask(
    run_dir: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<ManagerReply> {
    match Client::new(&socket_path(run_dir)).send(method, path, body, None) {
        Ok(reply) => Ok(Ok(reply.body)),
        Err(ClientError::Refused(rejection)) if (400..500).contains(&rejection.status) => {
            let first = rejection.first();
            let others = rejection.body.problems.iter().skip(1);
            let more = others.map(|problem| format!("; {problem}"));
            Ok(Err(Rejection {
                object: first.object,
                field: first.field,
                value: first.value,
                error: first.message,
                allowed: first.remedy + &more.collect::<String>(),
            }))
        }
        Err(other) => Err(other).with_context(|| format!("asked for {path}")),
    }
}

/// Gets the resource at a path.
///
/// # Errors
/// As [`ask`], or the daemon rejects the request.
pub(crate) fn get(run_dir: &Path, path: &str) -> Result<Value> {
    match ask(run_dir, Method::GET, path, None)? {
        Ok(body) => Ok(body),
        Err(rejection) => bail!("{path} was refused: {}", rejection.text()),
    }
}

/// Path for a removal, with the token of the VF's owner if given.
pub(crate) fn released(path: String, owner: Option<u64>) -> String {
    owner.map_or(path.clone(), |token| format!("{path}?owner={token}"))
}

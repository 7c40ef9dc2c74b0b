//! Requests to the daemon, over the socket in its directory.

use std::path::Path;
use std::time::Duration;

use api::{Client, ClientError, Method};
use model::config::socket_path;
use serde_json::Value;

/// Limit for an answer of the daemon: those who wait for a pod wait some minutes.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The daemon of this node.
#[derive(Clone, Debug)]
pub struct Daemon(Client);

impl Daemon {
    /// The daemon whose directory is `run_dir`.
    pub fn at(run_dir: &Path) -> Daemon {
        Daemon(Client::new(&socket_path(run_dir)).within(ANSWER_LIMIT))
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.0
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects it.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        self.0.send(method, path, body, None).map(|reply| reply.body)
    }

    /// Sends a request without a body; `None` if the daemon does not know the object.
    ///
    /// # Errors
    /// The daemon does not answer, or rejects it.
    pub fn find(&self, method: Method, path: &str) -> Result<Option<Value>, ClientError> {
        match self.ask(method, path, None) {
            Ok(body) => Ok(Some(body)),
            Err(ClientError::Refused(refusal)) if refusal.status == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

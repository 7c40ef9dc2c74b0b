//! IPAM plugins: they run as the runtime runs this one, with the same environment and
//! configuration.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use serde_json::Value;

use crate::environment::Environment;
use crate::error::{CniError, Code};

/// An IPAM plugin of a network.
#[derive(Debug)]
pub struct Delegate<'a> {
    program: PathBuf,
    plugin: &'a str,
    variables: &'a [(&'static str, String)],
    config: &'a [u8],
}

impl<'a> Delegate<'a> {
    /// Finds the plugin in the directories of `CNI_PATH`.
    ///
    /// # Errors
    /// It is in none of them.
    pub fn find(
        plugin: &'a str,
        environment: &'a Environment,
        config: &'a [u8],
    ) -> Result<Delegate<'a>, CniError> {
        let is_name = !plugin.contains('/');
        let mut all = environment.plugins.iter().map(|directory| directory.join(plugin));
        let program = all.find(|path| is_name && path.is_file()).ok_or_else(|| {
            let message = format!("the IPAM plugin {plugin} is in no directory of CNI_PATH");
            let remedy = "install it, such as containernetworking-plugins, or correct ipam.type";
            CniError::new(Code::Config, message, remedy)
        })?;
        Ok(Delegate { program, plugin, variables: &environment.variables, config })
    }

    /// Runs it for a command; returns what it printed.
    ///
    /// # Errors
    /// Its own, or it cannot be run.
    pub fn run(&self, command: &str) -> Result<Value, CniError> {
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("IPAM plugin {}, {command}: {error}", self.plugin);
            CniError::new(Code::Delegate, message, "see its documentation")
        };
        let mut child = Process::new(&self.program)
            .envs(self.variables.iter().map(|(name, value)| (*name, value)))
            .env("CNI_COMMAND", command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin may end before it has read all: its answer says more.
            let _ = stdin.write_all(self.config);
        }
        let output = child.wait_with_output().map_err(|error| failed(&error))?;
        if !output.status.success() {
            let own = CniError::printed(&output.stdout);
            return Err(own.unwrap_or_else(|| failed(&output.status)));
        }
        match output.stdout.iter().all(u8::is_ascii_whitespace) {
            true => Ok(Value::Null),
            false => serde_json::from_slice(&output.stdout).map_err(|error| failed(&error)),
        }
    }
}

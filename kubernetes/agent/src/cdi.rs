//! CDI files (Container Device Interface 0.5.0): what a container runtime adds to a container that
//! has a device of a claim.
//!
//! Each device has a `createRuntime` hook, without whose success no container starts. A device with
//! a vhost-user socket also has the socket's directory as a mount, and the first device of a
//! request the request's [`metadata`]. The files are in a run directory, which a reboot empties:
//! [`Cdi::rewrite`] writes all of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use crate::checkpoint::{Claim, Claims};
use crate::metadata;
use crate::options::Options;

/// Time that the hook has, in seconds: it waits for the daemon.
const HOOK_TIMEOUT: u32 = 45;

/// Writer of the files.
#[derive(Debug)]
pub struct Cdi {
    directory: PathBuf,
    /// Directory of the claims' metadata.
    metadata: PathBuf,
    driver: String,
    hook: String,
    run_dir: String,
}

impl Cdi {
    /// A writer for that agent.
    pub fn new(options: &Options) -> Cdi {
        Cdi {
            directory: options.cdi_dir.clone(),
            metadata: options.plugin_dir().join("metadata"),
            driver: options.driver.clone(),
            hook: options.hook.clone(),
            run_dir: options.run_dir.display().to_string(),
        }
    }

    /// Name of a device for the kubelet.
    pub fn id(driver: &str, adapter: &Value) -> String {
        format!("{driver}/adapter={}", adapter["name"].as_str().unwrap_or_default())
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{}-claim-{uid}.json", self.driver))
    }

    /// Writes the file of a claim; none for a claim without adapters of the agent's.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, claim: &Claim) -> anyhow::Result<()> {
        let mut requests = metadata::requests(claim);
        let mut devices = Vec::new();
        for device in &claim.devices {
            let Some(adapter) = &device.adapter else { continue };
            let request = metadata::base(&device.request);
            let is_first = requests.remove(request);
            let mount = is_first.then(|| self.metadata_mount(claim, request));
            devices.push(self.device(adapter, mount));
        }
        if devices.is_empty() {
            return self.remove(&claim.uid);
        }
        let spec = json!({
            "cdiVersion": "0.5.0", "kind": format!("{}/adapter", self.driver), "devices": devices,
        });
        let path = self.path(&claim.uid);
        let new = path.with_extension("new"); // runtimes read only .json and .yaml
        let write = || {
            let directory = self.metadata_of(&claim.uid);
            fs::create_dir_all(&directory)?;
            for request in metadata::requests(claim) {
                let contents = metadata::contents(claim, request, &self.driver);
                fs::write(directory.join(file_of(request)), contents.to_string())?;
            }
            fs::create_dir_all(&self.directory)?;
            fs::write(&new, spec.to_string())?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("{} cannot be written", path.display()))
    }

    /// A device with its hook, and with mounts of its socket's directory and of `metadata`.
    fn device(&self, adapter: &Value, metadata: Option<Value>) -> Value {
        let name = adapter["name"].as_str().unwrap_or_default();
        let socket = adapter["attachment"]["socket"].as_str().map(|socket| {
            json!({
                "hostPath": Path::new(socket).parent(), "options": ["rbind", "rw"],
                "containerPath": metadata::socket_directory(adapter),
            })
        });
        let mut edits = json!({"hooks": [{
            "hookName": "createRuntime", "path": self.hook, "timeout": HOOK_TIMEOUT,
            "args": ["shunt-cni", "attach", self.run_dir, name],
        }]});
        let mounts: Vec<Value> = socket.into_iter().chain(metadata).collect();
        if !mounts.is_empty() {
            edits["mounts"] = json!(mounts);
        }
        json!({"name": name, "containerEdits": edits})
    }

    fn metadata_mount(&self, claim: &Claim, request: &str) -> Value {
        json!({
            "hostPath": self.metadata_of(&claim.uid).join(file_of(request)),
            "containerPath": metadata::container_path(claim, request, &self.driver),
            "options": ["bind", "ro"],
        })
    }

    /// Directory of a claim's metadata.
    fn metadata_of(&self, uid: &str) -> PathBuf {
        self.metadata.join(uid)
    }

    /// Removes the files of a claim, if there are any.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, uid: &str) -> anyhow::Result<()> {
        let _ = fs::remove_dir_all(self.metadata_of(uid)); // no container has it
        let path = self.path(uid);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context(format!("{} cannot be removed", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the files of all claims, and removes those of claims that are no more.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn rewrite(&self, claims: &Claims) -> anyhow::Result<()> {
        claims.values().try_for_each(|claim| self.write(claim))?;
        let prefix = format!("{}-claim-", self.driver);
        let Ok(files) = fs::read_dir(&self.directory) else { return Ok(()) };
        for file in files.filter_map(Result::ok) {
            let name = file.file_name();
            let uid = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            let uid = uid.and_then(|rest| rest.split('.').next());
            if let Some(uid) = uid.filter(|uid| !claims.contains_key(*uid)) {
                let _ = fs::remove_dir_all(self.metadata_of(uid));
                let _ = fs::remove_file(file.path()); // removed with its claim next time
            }
        }
        Ok(())
    }
}

/// Name of the file with a request's metadata.
fn file_of(request: &str) -> String {
    format!("{request}.json")
}

//! The claims of this node, in a file that survives a crash: a claim is in it before the kubelet
//! hears that it is prepared, and until the kubelet hears that it is not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the file's format.
const VERSION: u32 = 1;

/// A claim that is prepared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// UID, by which the kubelet knows it.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Name that the pod has for a claim made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim: Option<String>,
    /// UIDs of the pods for which it was prepared.
    pub pods: Vec<String>,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// A device of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Request that it is for.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device in its pool.
    pub device: String,
    /// Identity of the claim's share of a device that several claims have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Its adapter, as in the daemon's document; `None` if `shunt-cni` makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Value>,
}

impl Claim {
    /// Adapters of its devices.
    pub fn adapters(&self) -> impl Iterator<Item = &Value> {
        self.devices.iter().filter_map(|device| device.adapter.as_ref())
    }
}

/// Claims by UID.
pub type Claims = BTreeMap<String, Claim>;

#[derive(Serialize, Deserialize)]
struct Contents<C> {
    version: u32,
    claims: C,
}

/// The file.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
}

impl Checkpoint {
    /// The file `claims.json` in `directory`, and its claims; none if there is no such file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(directory: &Path) -> anyhow::Result<(Checkpoint, Claims)> {
        let path = directory.join("claims.json");
        fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Checkpoint { path }, Claims::new()));
            }
            Err(error) => return Err(error).context(format!("{}: not readable", path.display())),
        };
        let contents: Contents<Claims> = serde_json::from_slice(&text).with_context(|| {
            let path = path.display();
            format!("{path} is damaged: remove it once no pod of this node has a claim of Shunt")
        })?;
        if contents.version != VERSION {
            let (path, version) = (path.display(), contents.version);
            bail!("{path} has version {version}, not {VERSION}: run the agent that wrote it");
        }
        Ok((Checkpoint { path }, contents.claims))
    }

    /// Replaces the claims in the file. They are on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written; then it is as before.
    pub fn save(&self, claims: &Claims) -> anyhow::Result<()> {
        let new = self.path.with_extension("new");
        let write = || {
            let contents = Contents { version: VERSION, claims };
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(&contents)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        write().with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_as_they_were_saved() {
        let directory = tempfile::tempdir().unwrap();
        let (checkpoint, none) = Checkpoint::open(&directory.path().join("new")).unwrap();
        assert!(none.is_empty());
        let device = Device {
            request: "net1".to_owned(),
            pool: "node1".to_owned(),
            device: "sw0-port".to_owned(),
            share: Some("s1".to_owned()),
            adapter: Some(serde_json::json!({"name": "dra-1"})),
        };
        let claim = Claim {
            uid: "u1".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            pod_claim: None,
            pods: vec!["p1".to_owned()],
            devices: vec![device],
        };
        let claims = Claims::from([("u1".to_owned(), claim)]);
        checkpoint.save(&claims).unwrap();
        let open = || Checkpoint::open(&directory.path().join("new"));
        assert_eq!(open().unwrap().1, claims);
        for (text, expected) in [("{", "is damaged"), (r#"{"version":2,"claims":{}}"#, "version 2")]
        {
            fs::write(&checkpoint.path, text).unwrap();
            let error = format!("{:#}", open().unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}

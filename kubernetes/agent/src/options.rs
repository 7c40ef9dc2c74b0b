//! Options of the command line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

/// Text for `--help`.
pub const HELP: &str = "\
Usage: shunt-agent [OPTION VALUE]...

The node agent of Shunt: a DRA driver of Kubernetes. docs/kubernetes.md has more.

  --node NAME             name of this node; default: the variable NODE_NAME
  --driver NAME           name of the driver [shunt.dev]
  --run-dir DIR           directory of the daemon [/run/shunt]
  --kubelet-dir DIR       directory of the kubelet [/var/lib/kubelet]
  --cdi-dir DIR           directory of CDI files that containerd reads [/var/run/cdi]
  --hook FILE             shunt-cni, as the node's container runtime finds it [/opt/cni/bin/shunt-cni]
  --interval SECONDS      time until an adapter without its pod is released, 2 to 3600 [60]
  --node-config DIR       documents for the daemon: NODE.toml, or default.toml for other nodes
  --physical-network NIC=NAME   physical network behind a NIC; may be repeated
";

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of this node.
    pub node: String,
    /// Name of the driver.
    pub driver: String,
    /// Directory of the daemon.
    pub run_dir: PathBuf,
    /// Directory of the kubelet.
    pub kubelet_dir: PathBuf,
    /// Directory of CDI files.
    pub cdi_dir: PathBuf,
    /// Path of `shunt-cni` on the node.
    pub hook: String,
    /// Time until an adapter without its pod is released.
    pub interval: Duration,
    /// Directory of documents for the daemons of nodes.
    pub node_config: Option<PathBuf>,
    /// Physical networks, by NIC.
    pub physical_networks: BTreeMap<String, String>,
    /// The kernel's tree of devices.
    pub sysfs: PathBuf,
    /// Time for which a call of the kubelet waits for the daemon or the API server: it gives up
    /// after 45 s.
    pub patience: Duration,
}

impl Options {
    /// The defaults, for a node of that name.
    pub fn of(node: &str) -> Options {
        Options {
            node: node.to_owned(),
            driver: "shunt.dev".to_owned(),
            run_dir: "/run/shunt".into(),
            kubelet_dir: "/var/lib/kubelet".into(),
            cdi_dir: "/var/run/cdi".into(),
            hook: "/opt/cni/bin/shunt-cni".to_owned(),
            interval: Duration::from_secs(60),
            node_config: None,
            physical_networks: BTreeMap::new(),
            sysfs: "/sys".into(),
            patience: Duration::from_secs(30),
        }
    }

    /// Reads the command line; `node` is `NODE_NAME`.
    ///
    /// # Errors
    /// An option is unknown or has an invalid value, or the node has no name.
    pub fn read(
        arguments: impl IntoIterator<Item = String>,
        node: Option<String>,
    ) -> anyhow::Result<Options> {
        let mut options = Options::of(&node.unwrap_or_default());
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next();
            let value = value.with_context(|| format!("{name} has no value; see --help"))?;
            match name.as_str() {
                "--node" => options.node = value,
                "--driver" => options.driver = value,
                "--run-dir" => options.run_dir = value.into(),
                "--kubelet-dir" => options.kubelet_dir = value.into(),
                "--cdi-dir" => options.cdi_dir = value.into(),
                "--hook" => options.hook = value,
                "--interval" => {
                    let seconds = value.parse().ok().filter(|it| (2..=3600).contains(it));
                    let seconds = seconds.with_context(|| {
                        format!("--interval {value}: write whole seconds, 2 to 3600")
                    })?;
                    options.interval = Duration::from_secs(seconds);
                }
                "--node-config" => options.node_config = Some(value.into()),
                "--physical-network" => {
                    let Some((nic, network)) = value.split_once('=') else {
                        bail!("--physical-network {value}: write NIC=NAME, such as nic0=physnet1");
                    };
                    options.physical_networks.insert(nic.to_owned(), network.to_owned());
                }
                _ => bail!("{name} is no option; see --help"),
            }
        }
        if options.node.is_empty() {
            bail!("the node has no name: give --node, or set NODE_NAME from spec.nodeName");
        }
        Ok(options)
    }

    /// Directory of the driver in that of the kubelet: its socket and its checkpoint.
    pub fn plugin_dir(&self) -> PathBuf {
        self.kubelet_dir.join("plugins").join(&self.driver)
    }

    /// Directory of the sockets of claims.
    pub fn socket_dir(&self) -> PathBuf {
        self.run_dir.join("dra")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, node: Option<&str>) -> Result<Options, String> {
        let arguments = text.split_whitespace().map(str::to_owned);
        Options::read(arguments, node.map(str::to_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options = read(
            "--driver nets.example --interval 2 --physical-network nic0=physnet1",
            Some("node1"),
        );
        let options = options.unwrap();
        assert_eq!((options.node.as_str(), options.interval.as_secs()), ("node1", 2));
        assert_eq!(options.physical_networks["nic0"], "physnet1");
        assert!(options.plugin_dir().ends_with("plugins/nets.example"));
        for (text, expected) in [
            ("--interval 1", "2 to 3600"),
            ("--interval", "has no value"),
            ("--speed 1", "no option"),
            ("--physical-network nic0", "NIC=NAME"),
        ] {
            let error = read(text, Some("node1")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(read("", None).unwrap_err().contains("NODE_NAME"));
    }
}

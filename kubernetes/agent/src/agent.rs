//! The agent: its sockets, and the loop that watches the daemon and the API server.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::Method;
use common::Daemon;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::checkpoint::Claims;
use crate::cluster::{Cluster, is_final, reason};
use crate::health::{self, Health};
use crate::inventory::{self, Node, Taint};
use crate::keeper::{Keeper, Work};
use crate::log;
use crate::node_config::{self, Nodes};
use crate::options::Options;
use crate::plugin::Plugin;
use crate::proto::dra::dra_plugin_server::DraPluginServer;
use crate::proto::health::NodeWatchResourcesResponse;
use crate::proto::health::dra_resource_health_server::DraResourceHealthServer;
use crate::proto::registration::PluginInfo;
use crate::reconcile::Suspects;
use crate::registration;
use crate::slices::Pool;

/// Longest time between two requests to the daemon.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Most characters of an error of the kubelet that are logged.
const LOGGED_MAX: usize = 300;
/// The kubelet's interfaces to the driver.
const SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"];

/// An agent.
pub struct Agent {
    options: Arc<Options>,
    cluster: Cluster,
    keeper: Keeper,
    changed: Arc<Notify>,
    /// Addresses of the cluster's nodes; empty until they are known.
    nodes: watch::Sender<Nodes>,
    health: watch::Sender<NodeWatchResourcesResponse>,
}

impl Agent {
    /// An agent with the claims of its checkpoint; their CDI files are written.
    ///
    /// # Errors
    /// A file cannot be read or written, or the API server's address is invalid.
    pub fn new(options: Options, config: kube::Config) -> anyhow::Result<Agent> {
        let cluster = Cluster::connect(config, &options)?;
        let keeper = Keeper::start(&options)?;
        let (changed, nodes) = (Arc::default(), watch::Sender::default());
        let health = watch::Sender::default();
        Ok(Agent { options: Arc::new(options), cluster, keeper, changed, nodes, health })
    }

    /// Serves the kubelet until `stop`; then the kubelet unregisters the driver.
    ///
    /// # Errors
    /// A socket cannot be made, or fails.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let socket = self.options.plugin_dir().join("dra.sock");
        let plugin = Plugin {
            options: self.options.clone(),
            cluster: self.cluster.clone(),
            keeper: self.keeper.clone(),
            changed: self.changed.clone(),
        };
        let calls = UnixListenerStream::new(listen(&socket)?);
        let calls = Server::builder()
            .add_service(DraPluginServer::new(plugin))
            .add_service(DraResourceHealthServer::new(Health(self.health.subscribe())))
            .serve_with_incoming(calls);
        let registry = self.options.kubelet_dir.join("plugins_registry");
        let registry = registry.join(format!("{}-reg.sock", self.options.driver));
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.options.driver.clone(),
            endpoint: socket.display().to_string(),
            supported_versions: SERVICES.map(str::to_owned).to_vec(),
        };
        let changed = self.changed.clone();
        // The kubelet has deleted the slices of a driver that was away.
        let registered = registration::serve(listen(&registry)?, info, move |status| {
            match status.plugin_registered {
                true => log("registered with the kubelet"),
                false => {
                    let error: String = status.error.chars().take(LOGGED_MAX).collect();
                    log(&format!("the kubelet does not register it: {error}"));
                }
            }
            changed.notify_one();
        });
        let _removed = Removed(registry);
        tokio::select! {
            done = calls => done.context("the socket of the driver has failed"),
            done = registered => done.context("the socket of the registration has failed"),
            () = self.watch() => Ok(()),
            () = self.follow_nodes() => Ok(()),
            () = stop => Ok(()),
        }
    }

    /// Follows the addresses of nodes, for tunnels between them.
    async fn follow_nodes(&self) {
        if self.options.node_config.is_none() {
            return std::future::pending().await;
        }
        let mut nodes = self.nodes.subscribe();
        let follow = async {
            loop {
                if let Err(error) = self.cluster.follow_nodes(&self.nodes).await {
                    let error = reason(error).context("the nodes are not known");
                    self.changed.notify_one(); // what is known holds
                    log(&format!("{error:#}"));
                }
                tokio::time::sleep(POLL_INTERVAL.min(self.options.interval / 2)).await;
            }
        };
        let tell = async {
            while nodes.changed().await.is_ok() {
                self.changed.notify_one();
            }
        };
        tokio::join!(follow, tell);
    }

    /// Compares the daemon's adapters with the claims every few seconds and at each change, and
    /// with the API server twice an interval.
    async fn watch(&self) {
        let mut watch = Watch {
            pool: Pool::new(self.cluster.clone(), &self.options),
            suspects: Suspects::default(),
            reported: BTreeSet::new(),
            configured: None,
            next_check: Instant::now(),
            next_pass: Instant::now(),
        };
        let mut last_error = String::new();
        loop {
            let done = self.compare(&mut watch).await;
            let error = done.map_or_else(|error| format!("{error:#}"), |()| String::new());
            if !error.is_empty() && error != last_error {
                log(&error);
            }
            last_error = error;
            let pause = tokio::time::sleep(POLL_INTERVAL.min(self.options.interval / 2));
            tokio::select! {
                () = pause => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Does all that is to be done now, each part of it whatever becomes of the others; returns the
    /// first error.
    async fn compare(&self, watch: &mut Watch) -> anyhow::Result<()> {
        let daemon = Daemon::at(&self.options.run_dir);
        let read = spawn_blocking(move || {
            let document = daemon.ask(Method::GET, "/v1/state", None)?;
            let actual = daemon.ask(Method::GET, "/v1/actual", None)?;
            Ok::<Node, api::ClientError>(Node { document, actual })
        });
        let node = read.await.context("the daemon cannot be asked")?;
        let claims = self.keeper.claims();
        let configured = self.configure(watch, node.as_ref().ok()).await;
        let published = self.publish(watch, node.as_ref().ok(), &claims).await;
        let reported = self.report(&mut watch.reported).await;
        let adapters = node.map(|mut node| match node.document["adapter"].take() {
            Value::Array(adapters) => adapters,
            _ => Vec::new(),
        });
        let adapters = adapters?;
        let collected = self.collect(watch, &claims, &adapters).await;
        let restored = self.restore(&claims, &adapters).await;
        configured.and(published).and(reported).and(collected).and(restored)
    }

    /// Gives the daemon the document of the node, if that or the list of nodes is new, or if the
    /// daemon has lost objects.
    async fn configure(&self, watch: &mut Watch, node: Option<&Node>) -> anyhow::Result<()> {
        let (Some(directory), Some(node)) = (&self.options.node_config, node) else {
            return Ok(());
        };
        let nodes = self.nodes.borrow().clone();
        let Some(wanted) = node_config::read(directory, &self.options, &nodes)? else {
            return Ok(());
        };
        let driver = self.options.driver.clone();
        if watch.configured.as_ref() == Some(&wanted)
            && node_config::is_complete(&node.document, &wanted, &driver)
        {
            return Ok(());
        }
        let daemon = Daemon::at(&self.options.run_dir);
        let (document, applied) = (node.document.clone(), wanted.clone());
        let apply = move || node_config::apply(&daemon, &document, &applied, &driver);
        spawn_blocking(apply).await.context("the daemon cannot be asked")??;
        log("the daemon has the document of the node");
        watch.configured = Some(wanted);
        self.changed.notify_one(); // there are other devices
        Ok(())
    }

    /// Publishes the devices, and their health.
    async fn publish(
        &self,
        watch: &mut Watch,
        node: Option<&Node>,
        claims: &Claims,
    ) -> anyhow::Result<()> {
        let devices = match node {
            Some(node) => inventory::devices(node, claims, &self.options),
            None => {
                let mut devices = watch.pool.devices().await.map_err(reason)?;
                let taint = Taint::DaemonDown.of(&self.options.driver);
                devices.iter_mut().for_each(|device| device.taints = Some(vec![taint.clone()]));
                devices
            }
        };
        let now = Timestamp::now().as_second();
        self.health.send_replace(health::of(&devices, &self.options, now));
        if Instant::now() >= watch.next_check || !watch.pool.is(&devices) {
            let done = watch.pool.publish(devices).await;
            done.map_err(reason).context("slices are not published")?;
            watch.next_check = Instant::now() + self.options.interval / 2;
        }
        Ok(())
    }

    /// Releases what has no pod.
    async fn collect(
        &self,
        watch: &mut Watch,
        claims: &Claims,
        adapters: &[Value],
    ) -> anyhow::Result<()> {
        if Instant::now() < watch.next_pass {
            return Ok(());
        }
        let garbage = watch.suspects.pass(&self.cluster, claims, adapters).await;
        let garbage = garbage.map_err(reason).context("pods cannot be listed")?;
        watch.next_pass = Instant::now() + self.options.interval / 2;
        if let Some(garbage) = garbage {
            log(&format!("released without a pod: {}", garbage.names()));
            self.keeper.change(garbage).await.map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    /// Has the daemon make adapters again that it has lost.
    async fn restore(&self, claims: &Claims, adapters: &[Value]) -> anyhow::Result<()> {
        let kept = self.keeper.change(Work::KeepNamespaces(adapters.to_vec())).await;
        kept.map_err(anyhow::Error::msg)?;
        let is_lost = |adapter: &Value| !adapters.iter().any(|it| it["name"] == adapter["name"]);
        let mut restored = JoinSet::new();
        for (uid, claim) in claims.iter().filter(|(_, claim)| claim.adapters().any(is_lost)) {
            let (keeper, work) = (self.keeper.clone(), Work::Restore(uid.clone()));
            let name = format!("claim {}/{} is not restored", claim.namespace, claim.name);
            restored.spawn(async move {
                keeper.change(work).await.map_err(anyhow::Error::msg).context(name)
            });
        }
        restored.join_all().await.into_iter().collect()
    }

    /// Writes the status of claims that have none yet.
    async fn report(&self, reported: &mut BTreeSet<String>) -> anyhow::Result<()> {
        let claims = self.keeper.claims();
        reported.retain(|uid| claims.contains_key(uid));
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for (uid, claim) in &claims {
            if reported.contains(uid) {
                continue;
            }
            if let Err(error) = self.cluster.report(claim, &now).await {
                let claim = format!("status of claim {}/{}", claim.namespace, claim.name);
                let is_final = is_final(&error);
                let error = reason(error).context(claim);
                if !is_final {
                    return Err(error);
                }
                log(&format!("{error:#}")); // such as a claim that has just been deleted
            }
            reported.insert(uid.clone());
        }
        Ok(())
    }
}

/// State of the loop.
struct Watch {
    pool: Pool,
    suspects: Suspects,
    /// Claims whose status is written, by UID.
    reported: BTreeSet<String>,
    /// Document of the node that the daemon has got.
    configured: Option<Value>,
    /// Time of the next look at the slices of the API server.
    next_check: Instant,
    /// Time of the next look for what has no pod.
    next_pass: Instant,
}

/// Removes a socket at the end: the kubelet unregisters a driver whose socket is gone.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the kubelet finds nothing behind it
    }
}

/// A listener at a path, in place of one that a killed process has left.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let listen = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => UnixListener::bind(path),
        }
    };
    listen().with_context(|| format!("{}: no socket can be made", path.display()))
}

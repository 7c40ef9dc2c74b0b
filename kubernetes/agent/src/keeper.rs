//! Keeper of the claims: the one thread that changes the checkpoint, the daemon's adapters and the
//! CDI files, so that these agree.
//!
//! # Model
//! All that waits is one change: one PUT of the daemon's state, and one write of the checkpoint.
//! An adapter has its claim's UID in its owner's labels, so a change of a claim says which adapters
//! have that UID. Repeated, it makes no difference. If the daemon rejects the change, each part of
//! it is tried alone, so that one claim's mistake is no other's.
//!
//! The order is daemon, CDI files, checkpoint, answer. After a crash in between, the kubelet asks
//! again, or the adapters are found without their claim and released.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::{ClientError, Method};
use common::Daemon;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cdi::Cdi;
use crate::checkpoint::{Checkpoint, Claim, Claims};
use crate::options::Options;

/// Pause before the daemon is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Largest number of changes at once.
const BATCH_MAX: usize = 128;

/// A change.
#[derive(Clone, Debug)]
pub enum Work {
    /// A claim is to have its adapters.
    Prepare(Claim),
    /// The claim of that UID is to have none.
    Unprepare(String),
    /// These are garbage: claims, unless they have changed since, and adapters without a claim of
    /// the checkpoint, by name.
    Release(Vec<Claim>, BTreeSet<String>),
    /// Adapters of the claim of that UID are made again if the daemon has lost them.
    Restore(String),
    /// Namespaces that hooks have given to these adapters of the daemon are remembered.
    KeepNamespaces(Vec<Value>),
}

impl Work {
    /// Names of what a release is of.
    pub fn names(&self) -> String {
        let Work::Release(claims, adapters) = self else { return String::new() };
        let claims = claims.iter().map(|it| format!("claim {}/{}", it.namespace, it.name));
        let adapters = adapters.iter().map(|name| format!("adapter {name}"));
        claims.chain(adapters).collect::<Vec<_>>().join(", ")
    }
}

struct Job {
    work: Work,
    since: Instant,
    reply: oneshot::Sender<Result<(), String>>,
}

/// Handle of the keeper; its thread ends with the last one.
#[derive(Clone, Debug)]
pub struct Keeper {
    jobs: mpsc::Sender<Job>,
    claims: Arc<Mutex<Claims>>,
}

impl Keeper {
    /// Reads the checkpoint, writes the CDI files, and starts the thread.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn start(options: &Options) -> anyhow::Result<Keeper> {
        let keeper = KeeperThread::open(options)?;
        let claims = keeper.claims.clone();
        let (jobs, queue) = mpsc::channel();
        thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keeper.run(&queue))
            .context("cannot start a thread; raise the limit of tasks")?;
        Ok(Keeper { jobs, claims })
    }

    /// Makes a change, and waits until it lasts.
    ///
    /// # Errors
    /// It is not made, for the reason given.
    pub async fn change(&self, work: Work) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let ended = || "the agent ends".to_owned();
        self.jobs.send(Job { work, since: Instant::now(), reply }).map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// The claims.
    pub fn claims(&self) -> Claims {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All that the thread has.
struct KeeperThread {
    options: Options,
    daemon: Daemon,
    checkpoint: Checkpoint,
    cdi: Cdi,
    claims: Arc<Mutex<Claims>>,
}

impl KeeperThread {
    fn open(options: &Options) -> anyhow::Result<KeeperThread> {
        let (checkpoint, claims) = Checkpoint::open(&options.plugin_dir())?;
        let cdi = Cdi::new(options);
        cdi.rewrite(&claims)?;
        let daemon = Daemon::at(&options.run_dir);
        let claims = Arc::new(Mutex::new(claims));
        Ok(KeeperThread { options: options.clone(), daemon, checkpoint, cdi, claims })
    }

    fn run(&self, queue: &mpsc::Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let until = first.since + self.options.patience;
            let mut jobs = vec![first];
            jobs.extend(queue.try_iter().take(BATCH_MAX - 1));
            let all: Vec<&Work> = jobs.iter().map(|job| &job.work).collect();
            let done: Vec<Result<(), String>> = match self.change(&all, until) {
                Err(error) if jobs.len() > 1 && is_rejected(&error) => {
                    all.iter().map(|work| text(self.change(&[work], until))).collect()
                }
                done => vec![text(done); jobs.len()],
            };
            for (job, done) in jobs.into_iter().zip(done) {
                let _ = job.reply.send(done); // the call may have been given up
            }
        }
    }

    fn change(&self, works: &[&Work], until: Instant) -> anyhow::Result<()> {
        let before = self.claims.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut after = before.clone();
        let (mut changed, mut garbage) = (BTreeSet::new(), BTreeSet::new());
        let mut lasting = BTreeSet::new();
        for work in works {
            match work {
                Work::Prepare(claim) => {
                    changed.insert(claim.uid.clone());
                    after.insert(claim.uid.clone(), claim.clone());
                }
                Work::Unprepare(uid) => {
                    changed.insert(uid.clone());
                    after.remove(uid);
                }
                Work::Release(claims, adapters) => {
                    for claim in claims {
                        if after.get(&claim.uid) == Some(claim) {
                            changed.insert(claim.uid.clone());
                            after.remove(&claim.uid);
                        }
                    }
                    garbage.extend(adapters.iter().cloned());
                }
                Work::Restore(uid) => drop(lasting.insert(uid.clone())),
                Work::KeepNamespaces(adapters) => keep_namespaces(&mut after, adapters),
            }
        }
        let added: Vec<&Claim> = changed.iter().filter_map(|uid| after.get(uid)).collect();
        added.iter().try_for_each(|claim| self.make_socket_dirs(claim))?;
        if !(changed.is_empty() && garbage.is_empty() && lasting.is_empty()) {
            self.edit(until, |adapters| edit(adapters, &after, &changed, &garbage, &lasting))?;
        }
        for uid in &changed {
            match after.get(uid) {
                Some(claim) => self.cdi.write(claim)?,
                None => self.cdi.remove(uid)?,
            }
        }
        if before != after {
            self.checkpoint.save(&after)?;
        }
        for claim in changed.iter().filter(|uid| !after.contains_key(*uid)) {
            self.remove_socket_dirs(before.get(claim));
        }
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }

    /// Has the daemon's list of adapters changed by `edit`.
    fn edit(&self, until: Instant, edit: impl Fn(&mut Vec<Value>)) -> Result<(), ClientError> {
        let client = self.daemon.client();
        let attempt = || {
            let read = client.send(Method::GET, "/v1/state", None, None)?;
            let mut document = read.body;
            let before = document["adapter"].as_array().cloned().unwrap_or_default();
            let mut adapters = before.clone();
            edit(&mut adapters);
            if adapters != before {
                let stays = |name: &Value| adapters.iter().any(|it| it["name"] == *name);
                let gone = before.iter().map(|it| it["name"].clone());
                let gone: Vec<Value> = gone.filter(|name| !stays(name)).collect();
                document["adapter"] = json!(adapters);
                forget(&mut document, &gone);
                let path = "/v1/state?prune=true";
                client.send(Method::PUT, path, Some(&document), read.generation)?;
            }
            Ok(())
        };
        loop {
            match attempt() {
                Err(ClientError::Refused(refusal)) if refusal.status == 412 => {}
                Err(error) if !is_refusal(&error) && Instant::now() < until => {}
                done => return done,
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Makes the directories of a claim's sockets, for the user of the daemon.
    fn make_socket_dirs(&self, claim: &Claim) -> anyhow::Result<()> {
        for (directory, is_client) in socket_dirs(claim) {
            // The pod makes the socket itself, as any user.
            let mode = if is_client { 0o777 } else { 0o755 };
            let make = || {
                let top = self.options.socket_dir();
                fs::create_dir_all(&directory)?;
                // Users of the node do not reach sockets of pods.
                fs::set_permissions(&top, Permissions::from_mode(0o700))?;
                fs::set_permissions(&directory, Permissions::from_mode(mode))?;
                let user = fs::metadata(&self.options.run_dir)?;
                [top.as_path(), &directory]
                    .into_iter()
                    .try_for_each(|it| chown(it, Some(user.uid()), Some(user.gid())))
            };
            make().with_context(|| format!("{} cannot be made", directory.display()))?;
        }
        Ok(())
    }

    fn remove_socket_dirs(&self, claim: Option<&Claim>) {
        for (directory, _) in claim.into_iter().flat_map(socket_dirs) {
            if directory.starts_with(self.options.socket_dir()) {
                let _ = fs::remove_dir_all(&directory); // a stray one is empty
            }
        }
    }
}

/// Directories of a claim's sockets; `true` if the daemon is the client.
fn socket_dirs(claim: &Claim) -> impl Iterator<Item = (PathBuf, bool)> + '_ {
    claim.adapters().map(|it| &it["attachment"]).filter_map(|attachment| {
        let socket = Path::new(attachment["socket"].as_str()?);
        Some((socket.parent()?.to_owned(), attachment["mode"] == "client"))
    })
}

/// Removes what is said of ports that go: their settings, and the static entries and mirrors that
/// name them. A document that still has it is invalid.
pub(crate) fn forget(document: &mut Value, gone: &[Value]) {
    match document {
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, gone)),
        Value::Object(fields) => {
            if fields.get("mirror").is_some_and(|mirror| gone.contains(&mirror["adapter"])) {
                fields.remove("mirror");
            }
            for (list, port) in [("port", "adapter"), ("static", "port")] {
                if let Some(entries) = fields.get_mut(list).and_then(Value::as_array_mut) {
                    entries.retain(|entry| !gone.contains(&entry[port]));
                }
            }
            fields.values_mut().for_each(|field| forget(field, gone));
        }
        _ => {}
    }
}

/// Brings a list of adapters to what the claims are: exactly for those that `changed`, without
/// `garbage`, and for the `lasting` ones with what is missing.
fn edit(
    adapters: &mut Vec<Value>,
    claims: &Claims,
    changed: &BTreeSet<String>,
    garbage: &BTreeSet<String>,
    lasting: &BTreeSet<String>,
) {
    let is_gone = |adapter: &mut Value| {
        is_in(garbage, &adapter["name"]) || is_in(changed, &adapter["owner"]["claim"])
    };
    let gone: Vec<Value> = adapters.extract_if(.., is_gone).collect();
    let wanted = changed.union(lasting).filter_map(|uid| claims.get(uid));
    for adapter in wanted.flat_map(Claim::adapters) {
        if adapters.iter().any(|it| it["name"] == adapter["name"]) {
            continue;
        }
        let mut adapter = adapter.clone();
        // A pod that has its interface keeps it.
        take_namespace(&mut adapter, &gone);
        adapters.push(adapter);
    }
}

/// Remembers the namespaces that hooks have given to adapters, for a daemon that forgets them.
fn keep_namespaces(claims: &mut Claims, adapters: &[Value]) {
    let devices = claims.values_mut().flat_map(|claim| &mut claim.devices);
    for adapter in devices.filter_map(|device| device.adapter.as_mut()) {
        take_namespace(adapter, adapters);
    }
}

/// Gives an adapter with an interface the namespace of the one of its name among `others`.
fn take_namespace(adapter: &mut Value, others: &[Value]) {
    let same = others.iter().find(|it| it["name"] == adapter["name"]);
    let netns = same.map(|it| it["attachment"]["netns"].clone()).filter(Value::is_string);
    if let Some(netns) = netns.filter(|_| adapter["attachment"]["netns"].is_string()) {
        adapter["attachment"]["netns"] = netns;
    }
}

/// `true` if a value is a text of the set.
pub(crate) fn is_in(set: &BTreeSet<String>, it: &Value) -> bool {
    it.as_str().is_some_and(|it| set.contains(it))
}

/// `true` if the daemon has answered that it does not make the change.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(_) | ClientError::NotOwner(_))
}

fn is_rejected(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ClientError>().is_some_and(is_refusal)
}

/// A result as the kubelet shows it.
fn text(done: anyhow::Result<()>) -> Result<(), String> {
    done.map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Device;
    use api::testing::Site;

    /// A claim with an adapter.
    fn claim(number: usize) -> Claim {
        let uid = format!("u{number}");
        let adapter = json!({
            "name": format!("dra-{number}"), "owner": {"claim": uid}, "switch": "sw0",
            "mac": format!("02:00:00:00:00:{number:02x}"),
            "attachment": {"kind": "tap", "interface": "net1", "netns": format!("/run/netns/{uid}")},
        });
        Claim {
            uid,
            namespace: "default".to_owned(),
            name: format!("claim-{number}"),
            pod_claim: None,
            pods: vec![format!("p{number}")],
            devices: vec![Device {
                request: "net1".to_owned(),
                pool: "node1".to_owned(),
                device: "sw0-port".to_owned(),
                share: None,
                adapter: Some(adapter),
            }],
        }
    }

    fn site() -> (Site, tempfile::TempDir, KeeperThread) {
        let site = Site::new();
        site.apply(json!({
            "version": 1, "nic": [{"name": "nic0", "num_vfs": 2}],
            "switch": [{"name": "sw0", "nic": "nic0"}],
        }));
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            run_dir: site.dir.path().to_owned(),
            kubelet_dir: directory.path().to_owned(),
            cdi_dir: directory.path().join("cdi"),
            patience: Duration::ZERO,
            ..Options::of("node1")
        };
        let keeper = KeeperThread::open(&options).unwrap();
        (site, directory, keeper)
    }

    fn adapters(site: &Site) -> usize {
        site.get("/v1/adapters").as_array().unwrap().len()
    }

    #[test]
    fn settings_of_ports_go_with_their_adapters() {
        let switch = json!({
            "name": "sw0", "port": [{"adapter": "web"}, {"adapter": "db"}],
            "static": [{"mac": "02:00:00:00:00:01", "port": "web"}],
        });
        let mirrors = |to: &str| json!([{"index": 0, "mirror": {"adapter": to}}, {"index": 1}]);
        let nics = json!([
            {"name": "a", "pf": {"mirror": {"adapter": "web"}}, "vf": mirrors("web")},
            {"name": "b", "pf": {"mirror": {"file": "f"}}, "vf": mirrors("db")},
        ]);
        let mut document = json!({"switch": [switch, {"name": "sw1"}], "nic": nics});
        forget(&mut document, &[json!("web")]);
        let left =
            json!([{"name": "sw0", "port": [{"adapter": "db"}], "static": []}, {"name": "sw1"}]);
        assert_eq!(document["switch"], left);
        assert_eq!(
            document["nic"],
            json!([
                {"name": "a", "pf": {}, "vf": [{"index": 0}, {"index": 1}]},
                {"name": "b", "pf": {"mirror": {"file": "f"}}, "vf": mirrors("db")},
            ])
        );
    }

    #[test]
    fn all_that_waits_is_one_change() {
        let (site, _directory, keeper) = site();
        let generation = || site.does("GET", "/v1/state", Value::Null).generation.unwrap();
        let before = generation();
        let prepare: Vec<Work> = (1..=20).map(|it| Work::Prepare(claim(it))).collect();
        keeper.change(&prepare.iter().collect::<Vec<_>>(), Instant::now()).unwrap();
        assert_eq!((generation(), adapters(&site)), (before + 1, 20));
        let unprepare: Vec<Work> = (1..=20).map(|it| Work::Unprepare(format!("u{it}"))).collect();
        for _ in 0..2 {
            keeper.change(&unprepare.iter().collect::<Vec<_>>(), Instant::now()).unwrap();
            assert_eq!((generation(), adapters(&site)), (before + 2, 0), "once is enough");
        }
        let both = [&prepare[0], &unprepare[0], &prepare[1]];
        keeper.change(&both, Instant::now()).unwrap();
        assert_eq!(keeper.claims.lock().unwrap().keys().collect::<Vec<_>>(), ["u2"]);
    }

    #[test]
    fn a_claim_that_has_changed_is_not_released() {
        let (site, _directory, keeper) = site();
        let change = |work: Work| keeper.change(&[&work], Instant::now()).unwrap();
        let judged = claim(1);
        change(Work::Prepare(judged.clone()));
        let again = Claim { pods: vec!["p9".to_owned()], ..judged.clone() };
        change(Work::Prepare(again.clone()));
        change(Work::Release(vec![judged], BTreeSet::new()));
        assert_eq!(adapters(&site), 1);
        change(Work::Release(vec![again], BTreeSet::new()));
        assert_eq!(adapters(&site), 0);
    }

    #[test]
    fn a_claim_whose_adapter_is_rejected_is_not_promised() {
        let (site, _directory, keeper) = site();
        let mut wrong = claim(1);
        let adapter = wrong.devices[0].adapter.as_mut().unwrap();
        adapter["switch"] = json!("sw9");
        let error = keeper.change(&[&Work::Prepare(wrong)], Instant::now()).unwrap_err();
        assert!(is_rejected(&error), "{error:#}");
        assert!(keeper.claims.lock().unwrap().is_empty() && adapters(&site) == 0);
        let (_, saved) = Checkpoint::open(&keeper.options.plugin_dir()).unwrap();
        assert!(saved.is_empty());
    }
}

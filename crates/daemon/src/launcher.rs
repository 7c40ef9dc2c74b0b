//! The launcher's process: the requests that it serves.
//!
//! This is the one list of what the daemon may have done with rights that it does not have itself.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use host::launcher::{Handler, Named, PF, keep_to, serve};
use model::config::{Config, default_state_dir};
use model::state::{Attachment, Nic, NicMode};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};
use serde_json::Value;
use sriov::PciNic;

use super::sandbox::SandboxMode;
use super::upgrade::{self, OwnProgram};

/// Requests of the daemon.
pub(super) const REQUESTS: &[Handler] = &[
    Handler::of::<host::netns::OpenNamespace>(),
    Handler::of::<host::netns::IdentifyNamespace>(),
    Handler::of::<host::tun::OpenTap>(),
    Handler::of::<host::socket::OpenSocket>(),
    Handler::of::<host::socket::SetBuffers>(),
    Handler::of::<host::interface::ChangeInterface>(),
    Handler::of::<host::links::ChangeLink>(),
    Handler::of::<host::group::FindGroup>(),
    Handler::of::<host::latency::HoldLatency>(),
    Handler::of::<xdp::CreateMap>(),
    Handler::of::<xdp::LoadRedirect>(),
    Handler::of::<xdp::AttachProgram>(),
    Handler::of::<xdp::PreferBusyPoll>(),
    Handler::of::<xdp::ChangeFlowRule>(),
    Handler::of::<xdp::KeepTags>(),
    Handler::of::<sriov::ChangeVfs>(),
    Handler::of::<sriov::ChangeVf>(),
    Handler::of::<sriov::BindDriver>(),
    Handler::of::<sriov::EswitchMode>(),
    Handler::of::<sriov::PlaceNetdev>(),
    Handler::of::<vduse::ChangeDevices>(),
    Handler::of::<vduse::OpenDevice>(),
    Handler::of::<vduse::ChangeBus>(),
    Handler::of::<vhost_user::SocketFile>(),
    Handler::of::<port::capture::OpenCapture>(),
    Handler::of::<port::pcap::OpenRecording>(),
    Handler::of::<upgrade::NameFiles>(),
    Handler::of::<upgrade::StartProgram>(),
    Handler::of::<upgrade::EndProgram>(),
];

/// Signals that are for the daemon, and end the launcher only with it.
const IGNORED: [i32; 5] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGUSR2,
];

/// Serves the daemon at the other end of `socket`, which was started from `program`, until it has
/// ended. It serves only what the configuration in `file` names, if given.
///
/// # Errors
/// The socket is none; the file cannot be read, or is wrong.
pub fn run(program: PathBuf, file: Option<PathBuf>, socket: BorrowedFd<'_>) -> Result<()> {
    // Its name in lists of processes.
    let _ = rustix::thread::set_name(c"shunt-launcher");
    // Its socket may be in other processes, which would keep it.
    host::process::end_with_parent(Signal::KILL)?;
    // Processes of the same user cannot trace it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for signal in IGNORED {
        // Programs that it starts have the default action: they inherit no handler.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    if let Some(file) = &file {
        keep_to(read_named(file).context("--sandbox=file cannot limit the daemon")?);
    }
    // The programs that it starts have this sandbox, whatever the daemon asks.
    let sandbox = file.map_or(SandboxMode::On, SandboxMode::File);
    upgrade::set_own_program(OwnProgram { path: program, sandbox });
    serve(socket, REQUESTS).context("the daemon's launcher cannot read its requests")
}

/// Resources of the host that the objects of a configuration use.
fn named(config: &Config) -> Named {
    let Config { run_dir, api, state, .. } = config;
    let mut named = Named { run_dir: run_dir.clone(), ..Named::default() };
    let representors = state.nics.iter().flat_map(representors);
    for attachment in state.attachments().cloned().chain(representors) {
        let (kind, place) = (attachment.kind().word().to_owned(), attachment.place().to_owned());
        named.resources.insert((kind, place));
        let netns = attachment.interface().and_then(|(_, netns)| netns);
        named.namespaces.extend(netns.map(PathBuf::from));
    }
    let cards = state.nics.iter().filter_map(|nic| nic.device.as_deref());
    let devices = cards.clone().map(str::to_owned);
    // An interface may change its name.
    let addresses = cards.filter_map(|device| PciNic::address_of(device).ok());
    let all = devices.chain(addresses.map(|pf| pf.to_string()));
    named.resources.extend(all.map(|device| (PF.to_owned(), device)));
    add_paths(&mut named.files, serde_json::to_value(state).unwrap_or_default());
    named.files.extend(api.socket.clone());
    named
}

/// Attachments of the representors that a soft NIC may have, by default taps.
fn representors(nic: &Nic) -> Vec<Attachment> {
    let (num_vfs, mode) = (nic.total_vfs, NicMode::Switchdev);
    let all = Nic { num_vfs, mode, ..nic.clone() }.representors();
    all.into_iter().map(|(_, attachment, _)| attachment).collect()
}

/// Adds all texts of a value that are absolute paths.
fn add_paths(paths: &mut BTreeSet<PathBuf>, value: Value) {
    match value {
        Value::String(text) if text.starts_with('/') => drop(paths.insert(text.into())),
        Value::Array(all) => all.into_iter().for_each(|one| add_paths(paths, one)),
        Value::Object(mut all) => {
            all.remove("owner"); // labels of others
            all.into_iter().for_each(|(_, one)| add_paths(paths, one));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads the resources that a file names. The daemon must not be able to have them changed: by the
/// file, or by a link.
fn read_named(file: &Path) -> Result<Named> {
    let config = Config::load(file)?;
    let run_dir = &config.run_dir;
    let state_dir = config.state_dir.clone().unwrap_or_else(|| default_state_dir(run_dir));
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(run_dir).starts_with(real(&state_dir)) {
        bail!("run_dir is in state_dir: name another directory");
    }
    let mut own = upgrade::directories_before();
    own.extend([real(run_dir), real(&state_dir)]);
    let is_within = |path: &Path| {
        let real = path.ancestors().find_map(|one| one.canonicalize().ok());
        let both = [Some(path), real.as_deref()];
        both.into_iter().flatten().any(|path| own.iter().any(|own| path.starts_with(own)))
    };
    if is_within(file) {
        bail!("the daemon can change {}: move it out of run_dir and state_dir", file.display());
    }
    let named = named(&config);
    // Of others the last part of the path is never a link.
    let mut may_be_links: BTreeSet<&Path> = named.namespaces.iter().map(PathBuf::as_path).collect();
    may_be_links.extend(config.state.played().map(Path::new));
    let is_safe = |path: &&PathBuf| {
        !is_within(path)
            || (path.parent() == Some(run_dir) && !may_be_links.contains(path.as_path()))
    };
    if let Some(path) = named.files.iter().chain(&named.namespaces).find(|path| !is_safe(path)) {
        bail!(
            "the daemon can put a link in place of {} or its directory: move it out of run_dir and \
             state_dir",
            path.display()
        );
    }
    Ok(named)
}

/// Starts the launcher of this process.
pub(super) fn start(program: &Path, mode: &SandboxMode) -> io::Result<()> {
    let mut arguments = vec!["up".as_ref(), "--launcher".as_ref(), program.as_os_str()];
    if let SandboxMode::File(file) = mode {
        arguments.extend(["--config".as_ref(), file.as_os_str()]);
    }
    host::launcher::start(&arguments)
}

#[cfg(test)]
mod tests {
    use model::config::SourceFile;

    use super::*;

    #[test]
    fn a_configuration_names_what_its_objects_use() {
        let text = r#"
            run_dir = "/run/test"
            api = { socket = "/srv/api.sock" }
            nic = [
                { name = "rep", mode = "switchdev", total_vfs = 2, uplink = "packet:eth7" },
                { name = "soft" },
                { name = "third", pf = { mac = "02:00:00:00:00:01", attachment = "vhost-user:/srv/pf.sock" } },
            ]
            switch = [{ name = "sw0", nic = "soft" }]
            [[adapter]]
            name = "web"
            switch = "sw0"
            mac = "02:00:00:00:00:02"
            owner = { runtime = "/run/containerd.sock" }
            attachment = { kind = "tap", interface = "net0", netns = "blue" }
            mirror = { direction = "both", file = "/srv/web.pcapng" }
        "#;
        let config = Config::of(&SourceFile::new("a test", text)).unwrap();
        let named = named(&config);
        for (kind, name, is_named) in [
            ("tap", "repp0", true),
            ("tap", "reppf0vf1", true),
            ("tap", "reppf0vf2", false),
            ("packet", "eth7", true),
            ("xdp", "eth7", false),
            ("vhost-user", "/srv/pf.sock", true),
            ("tap", "net0", true),
            ("tap", "web", false),
        ] {
            let resource = (kind.to_owned(), name.to_owned());
            assert_eq!(named.resources.contains(&resource), is_named, "{kind} {name}");
        }
        let files = ["/srv/api.sock", "/srv/pf.sock", "/srv/web.pcapng"].map(PathBuf::from);
        assert_eq!(named.files, files.into());
        assert_eq!(named.namespaces, [PathBuf::from("/run/netns/blue")].into());
        assert_eq!(named.run_dir, Path::new("/run/test"));
    }

    #[test]
    fn the_daemon_cannot_change_what_limits_it() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        std::fs::create_dir_all(run_dir.join("state")).unwrap();
        std::os::unix::fs::symlink(&run_dir, dir.path().join("link")).unwrap();
        let read = |file: &str, attachment: &str| {
            let file = dir.path().join(file);
            let (kind, path) = attachment.split_once(':').unwrap_or(("vhost-user", attachment));
            let attachment = format!("{kind}:{}", dir.path().join(path).display());
            let pf = format!("mac = \"02:00:00:00:00:01\", attachment = {attachment:?}");
            let text =
                format!("run_dir = {run_dir:?}\nnic = [{{ name = \"n\", pf = {{ {pf} }} }}]\n");
            std::fs::write(&file, text).unwrap();
            read_named(&file).map(|named| named.files).map_err(|error| error.to_string())
        };
        for socket in ["pf.sock", "run/pf.sock"] {
            assert_eq!(read("good.toml", socket), Ok([dir.path().join(socket)].into()));
        }
        for file in ["run/shunt.toml", "run/state/shunt.toml"] {
            let refused = read(file, "pf.sock").unwrap_err();
            assert!(refused.contains("move it out of run_dir"), "{refused}");
        }
        for path in
            ["run/state/pf.sock", "run/vms/pf.sock", "link/vms/pf.sock", "pcap:run/played.pcap"]
        {
            let refused = read("good.toml", path);
            assert!(
                refused.clone().is_err_and(|it| it.contains("put a link in place")),
                "{refused:?}"
            );
        }
    }
}

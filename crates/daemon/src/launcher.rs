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
    let pfs = cards.filter_map(|device| PciNic::address_of(device).ok());
    named.resources.extend(pfs.map(|pf| (PF.to_owned(), pf.to_string())));
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
        Value::Object(all) => all.into_iter().for_each(|(_, one)| add_paths(paths, one)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads the resources that a file names. The daemon must not be able to have them changed: by the
/// file, or by a link in place of a directory.
fn read_named(file: &Path) -> Result<Named> {
    let config = Config::load(file)?;
    let (run_dir, default) = (&config.run_dir, default_state_dir(&config.run_dir));
    let own = [run_dir, config.state_dir.as_ref().unwrap_or(&default)];
    let named = named(&config);
    let own = own.map(|own| own.canonicalize().unwrap_or_else(|_| own.clone()));
    let is_below = |path: &Path| own.iter().any(|own| path.starts_with(own));
    let is_within = |path: &Path| {
        let real = path.ancestors().filter_map(|one| one.canonicalize().ok()).next();
        is_below(path) || real.is_some_and(|real| is_below(&real))
    };
    if is_within(file) {
        bail!("the daemon can change {}: move it out of run_dir and state_dir", file.display());
    }
    let below = |path: &&PathBuf| is_within(path) && path.parent() != Some(run_dir);
    if let Some(path) = named.files.iter().find(below) {
        bail!(
            "the daemon can put a link in place of a directory of {}: name a file in run_dir \
             itself, or outside of it and state_dir",
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
        let text = |socket: &str| {
            format!(
                "run_dir = {run_dir:?}\n\
                 nic = [{{ name = \"n\", pf = {{ mac = \"02:00:00:00:00:01\", attachment = {{ \
                 socket = {:?} }} }} }}]\n",
                dir.path().join(socket)
            )
        };
        let read = |file: &str, socket: &str| {
            let file = dir.path().join(file);
            std::fs::write(&file, text(socket)).unwrap();
            read_named(&file).map(|named| named.files).map_err(|error| error.to_string())
        };
        for socket in ["pf.sock", "run/pf.sock"] {
            assert_eq!(read("good.toml", socket), Ok([dir.path().join(socket)].into()));
        }
        for file in ["run/shunt.toml", "run/state/shunt.toml"] {
            let refused = read(file, "pf.sock").unwrap_err();
            assert!(refused.contains("move it out of run_dir"), "{refused}");
        }
        for socket in ["run/state/pf.sock", "run/vms/pf.sock", "link/vms/pf.sock"] {
            let refused = read("good.toml", socket);
            assert!(refused.clone().is_err_and(|it| it.contains("a link in place")), "{refused:?}");
        }
    }
}

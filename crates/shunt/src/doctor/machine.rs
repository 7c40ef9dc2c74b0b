//! Facts about this machine beyond its PCI NICs.
//!
//! Limits: a missing or unreadable file makes its fact `None` or absent, never an error. Programs
//! are asked for their version, each for at most [`PROGRAM_TIME`].

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// Limit of time for a program's version.
const PROGRAM_TIME: Duration = Duration::from_secs(5);
/// Address family of AF_XDP sockets.
const AF_XDP: u16 = 44;
/// Modules that functions of Shunt need.
const MODULES: [&str; 6] = ["kvm", "tun", "vduse", "vfio-pci", "vhost-vdpa", "virtio-vdpa"];
/// Files by which the kernel offers them.
const FILES: [&str; 4] = ["/dev/kvm", "/dev/net/tun", "/dev/vduse/control", "/dev/vfio/vfio"];
/// Settings of the kernel about user namespaces.
const SYSCTLS: [&str; 3] = [
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
];

/// A machine and the rights of this user on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostFacts {
    /// Release of the kernel.
    pub(crate) kernel: Option<String>,
    /// Instruction set.
    pub(crate) architecture: String,
    /// `vmx`, `svm` and `hypervisor`, if the CPUs have these flags.
    pub(crate) cpu_flags: Vec<String>,
    /// Number of CPUs that this process may use.
    pub(crate) cpus_allowed: usize,
    /// CPUs that the scheduler leaves alone, such as `2-7`.
    pub(crate) cpus_isolated: Option<String>,
    /// Hugepages by size in KiB: reserved, and free.
    pub(crate) hugepages: BTreeMap<u64, [u64; 2]>,
    /// State of modules: `loaded`, `available` or `absent`; without an entry it is not known.
    pub(crate) modules: BTreeMap<String, String>,
    /// Files that exist: `true` if this user may read and write them.
    pub(crate) files: BTreeMap<String, bool>,
    /// Values of sysctls that exist.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// Error number of an AF_XDP socket, 0 for none.
    pub(crate) af_xdp_errno: i32,
    /// Effective user is root.
    pub(crate) is_root: bool,
    /// Effective capabilities, as in `/proc/self/status`.
    pub(crate) capabilities: Option<String>,
    /// Limit of locked memory in bytes; `None` for no limit.
    pub(crate) memlock_bytes: Option<u64>,
    /// `true` if this user may make the run directory, or has it.
    pub(crate) run_dir_usable: bool,
    /// First line that programs print about their version.
    pub(crate) programs: BTreeMap<String, String>,
}

impl HostFacts {
    /// This machine.
    pub(crate) fn read() -> HostFacts {
        let kernel = line("/proc/sys/kernel/osrelease");
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let has = |flag: &&str| flags.split_whitespace().any(|one| one == *flag);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        HostFacts {
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_flags: ["hypervisor", "svm", "vmx"]
                .iter()
                .filter(|it| has(it))
                .map(|&it| it.into())
                .collect(),
            cpus_allowed: host::cpu::allowed().len(),
            cpus_isolated: line("/sys/devices/system/cpu/isolated"),
            hugepages: hugepages(),
            modules: modules(kernel.as_deref()),
            files: existing(),
            sysctls: sysctls(),
            af_xdp_errno: af_xdp(),
            is_root: rustix::process::geteuid().is_root(),
            capabilities: capabilities.map(|it| it.trim().to_owned()),
            memlock_bytes: getrlimit(Resource::Memlock).current,
            run_dir_usable: is_run_dir_usable(),
            programs: programs(),
            kernel,
        }
    }

    /// Returns `true` if this process has the capability of this number.
    pub(crate) fn has_capability(&self, number: u32) -> bool {
        let set = self.capabilities.as_deref().and_then(|it| u64::from_str_radix(it, 16).ok());
        set.is_some_and(|set| set >> number & 1 == 1)
    }
}

/// First line of a file, if it is not empty.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn hugepages() -> BTreeMap<u64, [u64; 2]> {
    let directories = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let sizes = directories.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let number = |file: &str| line(entry.path().join(file))?.parse::<u64>().ok();
        Some((kib, [number("nr_hugepages")?, number("free_hugepages")?]))
    });
    sizes.collect()
}

/// A module is loaded or built in, or a file in the kernel's directory, if that can be read.
fn modules(kernel: Option<&str>) -> BTreeMap<String, String> {
    let read =
        |file: &str| fs::read_to_string(Path::new("/lib/modules").join(kernel?).join(file)).ok();
    let (builtin, files) = (read("modules.builtin"), read("modules.dep"));
    let state = |name: &str| {
        let file = |name: &str| format!("/{name}.ko");
        let is_in = |list: &str| {
            [file(name), file(&name.replace('-', "_"))].iter().any(|it| list.contains(it.as_str()))
        };
        let is_loaded = Path::new("/sys/module").join(name.replace('-', "_")).exists();
        match (&builtin, &files) {
            _ if is_loaded => Some("loaded"),
            (Some(list), _) if is_in(list) => Some("loaded"),
            (_, Some(list)) if is_in(list) => Some("available"),
            (_, Some(_)) => Some("absent"),
            _ => None,
        }
    };
    MODULES.iter().filter_map(|&name| Some((name.to_owned(), state(name)?.to_owned()))).collect()
}

fn existing() -> BTreeMap<String, bool> {
    let files = FILES.iter().filter(|file| Path::new(file).exists());
    let usable = |file: &str| access(file, Access::READ_OK | Access::WRITE_OK).is_ok();
    files.map(|&file| (file.to_owned(), usable(file))).collect()
}

fn sysctls() -> BTreeMap<String, String> {
    let value = |name: &str| line(Path::new("/proc/sys").join(name));
    SYSCTLS.iter().filter_map(|&name| Some((name.to_owned(), value(name)?))).collect()
}

fn af_xdp() -> i32 {
    let opened = socket(AddressFamily::from_raw(AF_XDP), SocketType::RAW, None);
    opened.map_or_else(Errno::raw_os_error, |_| 0)
}

/// The first directory of the path that exists must be writable.
fn is_run_dir_usable() -> bool {
    let run_dir = model::config::default_run_dir();
    let existing = run_dir.ancestors().find(|path| path.exists());
    existing.is_some_and(|path| access(path, Access::WRITE_OK).is_ok())
}

fn programs() -> BTreeMap<String, String> {
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    let qemu = version(&qemu).or_else(|| version("/usr/libexec/qemu-kvm"));
    let found = [("qemu", qemu), ("virsh", version("virsh"))];
    found.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?))).collect()
}

/// First line of `PROGRAM --version`.
fn version(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version");
    first_line(command)
}

/// First line of a command's output; `None` if it is missing, fails or takes too long.
fn first_line(mut command: Command) -> Option<String> {
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + PROGRAM_TIME;
    // A version is shorter than a pipe's buffer, so the program ends without a reader.
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status.filter(|status| status.success())?;
    let mut text = String::new();
    child.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text.lines().next()?.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read_and_written_as_json() {
        let machine = HostFacts::read();
        assert!(machine.cpus_allowed > 0 && machine.kernel.is_some(), "{machine:?}");
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), machine);
    }

    #[test]
    fn capabilities_are_bits_of_a_hexadecimal_number() {
        let machine =
            HostFacts { capabilities: Some("0000000000003000".into()), ..HostFacts::default() };
        let has = [11, 12, 13, 14].map(|number| machine.has_capability(number));
        assert_eq!(has, [false, true, true, false]);
        assert!(!HostFacts::default().has_capability(0));
    }

    #[test]
    fn a_program_that_is_missing_fails_or_never_ends_has_no_version() {
        let line = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            first_line(command)
        };
        assert_eq!(line("echo 'emulator 9.1 (x)'; echo more").as_deref(), Some("emulator 9.1 (x)"));
        assert_eq!(line("echo 1; exit 1"), None);
        assert_eq!(line("exec sleep 60"), None);
        assert_eq!(version("no-such-program-of-shunt"), None);
    }
}

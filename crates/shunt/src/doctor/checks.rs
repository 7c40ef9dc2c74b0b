//! Table of the checks.

use std::fmt;

use model::state::Reason;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sriov::discovery::Listing;

use super::report::Report;

/// Least locked memory for an AF_XDP socket with its frames, in bytes.
const MEMLOCK_MIN: u64 = 64 << 20;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_BPF: u32 = 39;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// The check.
    pub(crate) name: String,
    /// Its result.
    pub(crate) state: State,
    /// Facts that decided.
    pub(crate) found: String,
    /// Functions of Shunt that are lost if it is missing.
    pub(crate) costs: String,
    /// Way to get it.
    pub(crate) remedy: String,
    /// `true` if root sees more.
    pub(crate) needs_root: bool,
}

/// State of what is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It is there, or nothing needs it.
    Ok,
    /// It is missing.
    Missing,
    /// This user cannot see it.
    Unknown,
}
use State::{Missing, Ok, Unknown};

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ok => "ok",
            Missing => "missing",
            Unknown => "unknown",
        })
    }
}

/// A check: name, function over the facts, cost and remedy.
struct Check {
    name: &'static str,
    of: fn(&Report) -> (State, String),
    costs: &'static str,
    remedy: &'static str,
    needs_root: bool,
}

/// A row; root sees no more.
const fn check(
    name: &'static str,
    of: fn(&Report) -> (State, String),
    costs: &'static str,
    remedy: &'static str,
) -> Check {
    Check { name, of, costs, remedy, needs_root: false }
}

const CHECKS: [Check; 20] = [
    check(
        "kvm",
        kvm,
        "speed of VMs: QEMU emulates the CPU",
        "switch on VT-x or AMD-V in the firmware setup (in a VM: nested virtualisation), modprobe \
         kvm_intel or kvm_amd, and join the group kvm",
    ),
    check(
        "cpus",
        |it| {
            (
                at_least(2, it.machine.cpus_allowed),
                format!("{} may be used", it.machine.cpus_allowed),
            )
        },
        "throughput: a lane shares its CPU with the guests",
        "give the machine or its container 2 CPUs or more",
    ),
    check(
        "cpu-isolation",
        |it| match &it.machine.cpus_isolated {
            Some(cpus) => (Ok, format!("isolated: {cpus}")),
            None => (Missing, "no CPU is isolated".to_owned()),
        },
        "steady latency: other processes run on the CPUs of lanes",
        "boot with isolcpus=2-7 nohz_full=2-7, and name these CPUs in lanes.cpus",
    ),
    check(
        "hugepages",
        hugepages,
        "some throughput of VMs: small pages need more address translation",
        "sysctl vm.nr_hugepages=512 (1 GiB in pages of 2 MiB), or hugepages=512 at boot",
    ),
    check(
        "memlock",
        memlock,
        "AF_XDP uplinks and attachments (xdp:eth0)",
        "ulimit -l unlimited; LimitMEMLOCK=infinity in a systemd unit",
    ),
    check(
        "capabilities",
        capabilities,
        "taps, AF_XDP, packet sockets and VFs of PCI NICs; vhost-user sockets need none",
        "run the daemon as root: it keeps only the rights that its configuration needs",
    ),
    check(
        "run-dir",
        |it| match it.machine.run_dir_usable {
            true => (Ok, "can be made or written".to_owned()),
            false => (Missing, "cannot be made by this user".to_owned()),
        },
        "a daemon of this user with the default run_dir",
        "run the daemon as root, or set run_dir to a directory of this user",
    ),
    check(
        "user-namespaces",
        user_namespaces,
        "taps and bridges in `shunt lab` without root",
        "sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 \
         kernel.apparmor_restrict_unprivileged_userns=0; or run the lab as root",
    ),
    check(
        "tun",
        |it| feature(it, "tun", "/dev/net/tun"),
        "taps: adapters of containers and of the host",
        "modprobe tun; in a container, give it /dev/net/tun",
    ),
    check(
        "af-xdp",
        af_xdp,
        "AF_XDP uplinks; packet:eth0 is slower",
        "use a kernel with CONFIG_XDP_SOCKETS",
    ),
    check(
        "vduse",
        |it| feature(it, "vduse", "/dev/vduse/control"),
        "attachments of kind vduse",
        "use Linux 6.10 or later, modprobe vduse; run the daemon as root",
    ),
    check(
        "vhost-vdpa",
        |it| module(it, "vhost-vdpa"),
        "QEMU on a vDPA device",
        "modprobe vhost-vdpa, with a kernel that has it (CONFIG_VHOST_VDPA)",
    ),
    check(
        "vfio",
        |it| feature(it, "vfio-pci", "/dev/vfio/vfio"),
        "VFs of PCI NICs in VMs",
        "modprobe vfio-pci; give the user of QEMU access to /dev/vfio",
    ),
    check(
        "iommu",
        |it| match it.pci.platform.iommu_groups {
            0 => (Missing, "no IOMMU groups".to_owned()),
            groups => (Ok, format!("{groups} groups")),
        },
        "VFs of PCI NICs in VMs; containers can have VFs",
        "switch on VT-d, AMD-Vi or SMMU in the firmware setup, and boot with intel_iommu=on iommu=pt",
    ),
    check(
        "pcie-control",
        |it| match it.pci.platform.pcie_services {
            0 => (Unknown, "no PCI Express service; dmesg has _OSC".to_owned()),
            services => (Ok, format!("{services} services, granted by _OSC")),
        },
        "hot plug and error reports of PCI Express devices",
        "run dmesg | grep _OSC as root; boot without pcie_ports=compat, or update the firmware",
    ),
    Check {
        name: "acs",
        of: acs,
        costs: "isolation: VFs of a NIC without ACS above are no VM's alone",
        remedy: "use another slot, or switch on ACS in the firmware setup",
        needs_root: true,
    },
    check(
        "vf-registers",
        |it| against(it, &[Reason::NoVfBarSpace, Reason::NoBusResources, Reason::NoOscSupport]),
        "VFs of that NIC",
        "boot with pci=realloc, pci=assign-busses; switch on \"Above 4G decoding\"",
    ),
    check(
        "sriov-nic",
        sriov_nic,
        "NICs of kind pci; NICs of kind soft need no card",
        "use a card with SR-IOV; `shunt nic show eth0` has the reason of a card that is there",
    ),
    check(
        "qemu",
        |it| program(it, "qemu"),
        "VMs of QEMU; containers and other VMMs do not need it",
        "install qemu-system: 8.0 or later has igb, 10.0 or later virtio PFs with VFs",
    ),
    check(
        "libvirt",
        |it| program(it, "virsh"),
        "VMs of libvirt; QEMU can be started without it",
        "install libvirt-clients and libvirt-daemon-system",
    ),
];

/// Runs all checks.
pub(super) fn run(report: &Report) -> Vec<Finding> {
    let each = CHECKS.iter().map(|check| {
        let (state, found) = (check.of)(report);
        Finding {
            name: check.name.to_owned(),
            state,
            found,
            costs: check.costs.to_owned(),
            remedy: check.remedy.to_owned(),
            needs_root: check.needs_root,
        }
    });
    each.collect()
}

fn at_least(least: usize, found: usize) -> State {
    if found >= least { Ok } else { Missing }
}

fn kvm(it: &Report) -> (State, String) {
    let has_flag = it.machine.cpu_flags.iter().any(|flag| flag == "vmx" || flag == "svm");
    match (it.machine.files.get("/dev/kvm"), has_flag) {
        (Some(true), _) => (Ok, "/dev/kvm".to_owned()),
        (Some(false), _) => (Missing, "/dev/kvm is not for this user".to_owned()),
        (None, true) => (Missing, "the CPUs could, but there is no /dev/kvm".to_owned()),
        (None, false) => (Missing, "neither CPU flag nor /dev/kvm".to_owned()),
    }
}

fn hugepages(it: &Report) -> (State, String) {
    let sizes = it.machine.hugepages.iter().filter(|(_, [total, _])| *total > 0);
    let told = sizes
        .map(|(kib, [total, free])| format!("{free} of {total} free ({} MiB each)", kib / 1024));
    let told: Vec<String> = told.collect();
    match told.is_empty() {
        true => (Missing, "none reserved".to_owned()),
        false => (Ok, told.join(", ")),
    }
}

fn memlock(it: &Report) -> (State, String) {
    match it.machine.memlock_bytes {
        _ if it.machine.has_capability(CAP_IPC_LOCK) => (Ok, "CAP_IPC_LOCK".to_owned()),
        None => (Ok, "unlimited".to_owned()),
        Some(bytes) => {
            let state = if bytes >= MEMLOCK_MIN { Ok } else { Missing };
            (state, format!("{} MiB", bytes >> 20))
        }
    }
}

fn capabilities(it: &Report) -> (State, String) {
    let wanted =
        [(CAP_NET_ADMIN, "CAP_NET_ADMIN"), (CAP_NET_RAW, "CAP_NET_RAW"), (CAP_BPF, "CAP_BPF")];
    let lacking = wanted.iter().filter(|(number, _)| !it.machine.has_capability(*number));
    let lacking: Vec<&str> = lacking.map(|(_, name)| *name).collect();
    match (lacking.is_empty(), it.machine.is_root) {
        (true, true) => (Ok, "root".to_owned()),
        (true, false) => (Ok, "all that are needed".to_owned()),
        _ => (Missing, lacking.join(", ")),
    }
}

fn user_namespaces(it: &Report) -> (State, String) {
    let value = |name: &str| it.machine.sysctls.get(name).map(String::as_str);
    let forbids = [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    let found = forbids.iter().find(|(name, no)| value(name) == Some(*no));
    match (found, value("user/max_user_namespaces")) {
        (Some((name, no)), _) => (Missing, format!("{}={no}", name.replace('/', "."))),
        (None, None) => (Missing, "the kernel has none".to_owned()),
        (None, Some(_)) => (Ok, "allowed".to_owned()),
    }
}

fn af_xdp(it: &Report) -> (State, String) {
    match it.machine.af_xdp_errno {
        0 => (Ok, "a socket was opened".to_owned()),
        // The kernel has the family, and asks for CAP_NET_RAW.
        errno if errno == Errno::PERM.raw_os_error() => (Ok, "the kernel has it".to_owned()),
        errno if errno == Errno::AFNOSUPPORT.raw_os_error() => {
            (Missing, "the kernel has none".to_owned())
        }
        errno => (Unknown, format!("error {errno} for a socket")),
    }
}

/// A module that is loaded, or can be.
fn module(it: &Report, name: &str) -> (State, String) {
    match it.machine.modules.get(name).map(String::as_str) {
        Some("loaded") => (Ok, format!("{name} is loaded")),
        Some("available") => (Missing, format!("{name} is not loaded")),
        Some(_) => (Missing, format!("the kernel has no {name}")),
        None => (Unknown, format!("{name} is not loaded; /lib/modules is unreadable")),
    }
}

/// A module with a file that this user can open.
fn feature(it: &Report, name: &str, file: &str) -> (State, String) {
    match it.machine.files.get(file) {
        Some(true) => (Ok, file.to_owned()),
        Some(false) => (Missing, format!("{file} is not for this user")),
        None => match module(it, name) {
            (Ok, _) => (Missing, format!("there is no {file}")),
            other => other,
        },
    }
}

/// A program with its version, the first word of its answer that begins with a digit.
fn program(it: &Report, name: &str) -> (State, String) {
    let Some(answer) = it.machine.programs.get(name) else {
        return (Missing, format!("no {name} in PATH"));
    };
    let mut words = answer.split_whitespace();
    let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    (Ok, version.unwrap_or(answer).to_owned())
}

/// NICs that could have VFs.
fn pfs(it: &Report) -> Vec<Listing> {
    Listing::all(&it.pci).into_iter().filter(|one| one.support.is_some()).collect()
}

fn acs(it: &Report) -> (State, String) {
    let pfs = pfs(it);
    let named = |is_meant: fn(&Listing) -> bool| {
        let meant = pfs.iter().filter(|one| is_meant(one));
        meant.map(|one| one.address.to_string()).collect::<Vec<_>>().join(", ")
    };
    // A group tells more than the registers: some bridges isolate without ACS.
    let lacking = named(|one| match one.iommu_group {
        Some(_) => one.passthrough == Some(Reason::MissingAcs),
        None => one.acs == Some(false),
    });
    let unseen = named(|one| one.iommu_group.is_none() && one.acs.is_none());
    match (lacking.is_empty(), unseen.is_empty()) {
        _ if pfs.is_empty() => (Ok, "no SR-IOV NIC needs it".to_owned()),
        (false, _) => (Missing, format!("not above {lacking}")),
        (true, false) => (Unknown, format!("run as root to see it above {unseen}")),
        (true, true) => (Ok, "each SR-IOV NIC is isolated".to_owned()),
    }
}

/// NICs with one of these reasons against VFs.
fn against(it: &Report, reasons: &[Reason]) -> (State, String) {
    let all = Listing::all(&it.pci);
    let blocked = all.iter().filter(|one| one.support.is_some_and(|it| reasons.contains(&it)));
    let blocked: Vec<String> =
        blocked.map(|one| format!("{} {}", one.address, one.verdict())).collect();
    match blocked.is_empty() {
        true => (Ok, "no NIC lacks them".to_owned()),
        false => (Missing, blocked.join(", ")),
    }
}

fn sriov_nic(it: &Report) -> (State, String) {
    let usable = pfs(it).into_iter().filter(|one| one.support == Some(Reason::Supported));
    let named = usable.map(|one| one.interface.unwrap_or_else(|| one.address.to_string()));
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => (Missing, format!("none of {} PCI NICs", it.pci.nics.len())),
        false => (Ok, named.join(", ")),
    }
}

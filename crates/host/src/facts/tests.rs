//! The parsers on files of real machines, and the reader on a fixture tree.

use super::*;

const EPYC: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n\
    model name\t: AMD EPYC\nstepping\t: 1\ncpu MHz\t\t: 2596.124\ncpu cores\t: 2\n\
    flags\t\t: fpu vme constant_tsc rep_good nonstop_tsc hypervisor lahf_lm\npower management:\n\n\
    processor\t: 1\nmodel name\t: another\ncpu MHz\t\t: 1.0\n";

const GRAVITON: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes\n\
    CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";

const MEMINFO: &str = "MemTotal:       24684100 kB\nMemFree:        23608776 kB\nHugePages_Total:     512\n\
    HugePages_Free:      500\nHugePages_Rsvd:        0\nHugepagesize:       2048 kB\n";

#[test]
fn cpuinfo_of_x86_and_arm() {
    assert_eq!(parse::cpu_model(EPYC).as_deref(), Some("AMD EPYC"));
    assert_eq!(parse::cpu_mhz(EPYC), Some(2596.124));
    assert_eq!(parse::cpu_flag(EPYC, "hypervisor"), Some(true));
    assert_eq!(parse::cpu_flag(EPYC, "hyper"), Some(false), "whole words only");
    assert_eq!(parse::cpu_model(GRAVITON), None);
    assert_eq!(parse::cpu_mhz(GRAVITON), None);
    assert_eq!(parse::cpu_flag(GRAVITON, "hypervisor"), None, "Arm does not tell");
    assert_eq!(
        parse::cpu_model("cpu\t\t: POWER9, altivec supported\n").unwrap(),
        "POWER9, altivec supported"
    );
}

#[test]
fn meminfo_numbers() {
    assert_eq!(parse::meminfo(MEMINFO, "MemTotal"), Some(24_684_100));
    assert_eq!(parse::meminfo(MEMINFO, "HugePages_Free"), Some(500));
    assert_eq!(parse::meminfo(MEMINFO, "Mem"), None, "a key is matched whole");
    assert_eq!(parse::meminfo("MemTotal: x kB\n", "MemTotal"), None);
}

#[test]
fn the_choice_in_brackets() {
    let text = "always within_size advise [never] deny force\n";
    assert_eq!(parse::chosen(text).as_deref(), Some("never"));
    assert_eq!(parse::chosen("never\n"), None);
    assert_eq!(parse::chosen("[never"), None);
}

#[test]
fn only_telling_kernel_options_are_kept() {
    let line = "root=/dev/vda1 console=ttyS0 isolcpus=2-3 quiet mitigations=off token=secret nopti";
    assert_eq!(parse::kernel_options(line), "isolcpus=2-3 mitigations=off nopti");
    assert_eq!(parse::kernel_options("root=/dev/vda1"), "");
}

#[test]
fn mitigations_in_one_line() {
    let pair = |name: &str, verdict: &str| (name.to_owned(), verdict.to_owned());
    let found = [
        pair("l1tf", "Not affected"),
        pair("spectre_v1", "Mitigation: usercopy/swapgs barriers"),
        pair("spectre_v2", "Mitigation: Retpolines"),
        pair("srso", "Vulnerable: Safe RET, no microcode"),
    ];
    assert_eq!(parse::mitigations(&found), "mitigated: spectre_v1, spectre_v2; vulnerable: srso");
    assert_eq!(parse::mitigations(&found[..1]), "none needed");
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_whole_tree() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root, "proc/cpuinfo", EPYC);
    write(root, "proc/meminfo", MEMINFO);
    write(root, "proc/cmdline", "root=/dev/vda1 isolcpus=1\n");
    write(root, "proc/sys/kernel/hostname", "rack7\n");
    write(root, "proc/sys/kernel/osrelease", "6.12.57+deb13-amd64\n");
    write(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never\n");
    write(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    for (cpu, siblings) in [("cpu0", "0,2"), ("cpu1", "1,3"), ("cpu2", "0,2"), ("cpu3", "1,3")] {
        let file = format!("sys/devices/system/cpu/{cpu}/topology/thread_siblings_list");
        write(root, &file, siblings);
    }
    write(root, "sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable\n");

    let facts = read_from(&Root(root.to_owned()), "rustc 1.95.0", "0.1.0");
    assert_eq!(facts.hostname.as_deref(), Some("rack7"));
    assert_eq!(facts.cores, Some(2), "four threads, two cores");
    assert_eq!(facts.kernel.as_deref(), Some("6.12.57+deb13-amd64"));
    assert_eq!(facts.kernel_options.as_deref(), Some("isolcpus=1"));
    assert_eq!(facts.memory_mib, Some(24_105));
    assert_eq!((facts.hugepages_total, facts.hugepages_free), (Some(512), Some(500)));
    assert_eq!(facts.hugepage_kib, Some(2048));
    assert_eq!(facts.thp_mode, None, "that file is missing");
    assert_eq!(facts.shmem_thp_mode.as_deref(), Some("advise"));
    assert_eq!(facts.governor.as_deref(), Some("performance"));
    assert_eq!(facts.mitigations.as_deref(), Some("vulnerable: mds"));
    assert_eq!((facts.rustc.as_str(), facts.version.as_str()), ("rustc 1.95.0", "0.1.0"));
}

#[test]
fn nothing_readable_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let facts = read_from(&Root(dir.path().to_owned()), "", "");
    let json = serde_json::to_value(&facts).unwrap();
    for field in ["hostname", "cpu_model", "cores", "memory_mib", "hypervisor", "mitigations"] {
        assert!(json[field].is_null(), "{field}: {json}");
    }
    assert!(json["unix_time_s"].as_u64().unwrap() > 1_700_000_000);
    assert!(json["tsc_mhz"].as_f64().unwrap() > 100.0);
}

#[test]
fn this_machine() {
    let facts = MachineFacts::read("rustc", "0");
    assert!(facts.cpus_online >= 1 && facts.cpus_allowed >= 1, "{facts:?}");
    assert!(facts.memory_mib.is_some_and(|mib| mib > 16), "{facts:?}");
    assert!(facts.kernel.is_some(), "{facts:?}");
}

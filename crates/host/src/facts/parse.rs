//! Parsers of files under `/proc` and `/sys`. Each takes the text and returns `None` for a missing
//! entry.

/// The first value of `key` in `/proc/cpuinfo`, which has `key<tabs>: value` lines, one paragraph a
/// CPU.
fn cpuinfo<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        (name.trim_end() == key && !value.is_empty()).then_some(value)
    })
}

/// The CPU's own name: `model name` on x86; `cpu` on POWER, `Model` on Arm boards, `uarch` on
/// RISC-V.
pub(super) fn cpu_model(text: &str) -> Option<String> {
    ["model name", "cpu", "Model", "uarch"]
        .iter()
        .find_map(|key| cpuinfo(text, key))
        .map(str::to_owned)
}

/// The first CPU's clock in MHz.
pub(super) fn cpu_mhz(text: &str) -> Option<f64> {
    cpuinfo(text, "cpu MHz")?.parse().ok()
}

/// Returns `true` if the first CPU has a flag; `None` without a flags line (Arm has `Features`,
/// with other names).
pub(super) fn cpu_flag(text: &str, flag: &str) -> Option<bool> {
    Some(cpuinfo(text, "flags")?.split_ascii_whitespace().any(|name| name == flag))
}

/// A number of `/proc/meminfo`, in its own unit: KiB for sizes, pages for `HugePages_*`.
pub(super) fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// The bracketed choice of a file such as `always within_size advise [never] deny force`.
pub(super) fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (choice, _) = rest.split_once(']')?;
    Some(choice.to_owned())
}

/// Kernel command line options that affect measurements. The rest (root device, console, perhaps a
/// secret) does not belong in a report.
pub(super) fn kernel_options(line: &str) -> String {
    const TELLING: [&str; 17] = [
        "isolcpus",
        "nohz_full",
        "nohz",
        "rcu_nocbs",
        "mitigations",
        "spectre_v2",
        "spec_store_bypass_disable",
        "pti",
        "nopti",
        "idle",
        "intel_idle.max_cstate",
        "processor.max_cstate",
        "hugepages",
        "hugepagesz",
        "default_hugepagesz",
        "transparent_hugepage",
        "iommu",
    ];
    let telling = |option: &&str| TELLING.contains(&option.split('=').next().unwrap_or_default());
    line.split_ascii_whitespace().filter(telling).collect::<Vec<_>>().join(" ")
}

/// One line from pairs of vulnerability and the kernel's verdict.
pub(super) fn mitigations(found: &[(String, String)]) -> String {
    let with = |prefix: &str| {
        let names = found.iter().filter(|(_, verdict)| verdict.starts_with(prefix));
        names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let parts = [("mitigated", with("Mitigation")), ("vulnerable", with("Vulnerable"))];
    let told: Vec<String> = parts
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(word, names)| format!("{word}: {names}"))
        .collect();
    if told.is_empty() { "none needed".to_owned() } else { told.join("; ") }
}

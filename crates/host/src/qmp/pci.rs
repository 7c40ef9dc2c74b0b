//! Devices listed by `query-pci`.

use serde_json::Value;

/// Most nested bridges that are followed; an untrusted answer may nest without end.
pub const BRIDGES_MAX: usize = 8;

/// The PCI address of a device if it is a VF that the guest has enabled.
///
/// QEMU lists all VFs that a PF could have. Their vendor and device read 0xffff (PCIe 5.0, section
/// 9.3.4.1). Registers of VFs that the guest has enabled are mapped; for the others `address` is -1
/// (tried with QEMU 11.1).
pub fn enabled_vf(device: &Value) -> Option<String> {
    const NO_DEVICE: u64 = 0xffff;
    let is_vf = device["id"]["vendor"] == NO_DEVICE && device["id"]["device"] == NO_DEVICE;
    let number = |field: &str| device[field].as_u64().unwrap_or_default();
    let address =
        || format!("{:02x}:{:02x}.{:x}", number("bus"), number("slot"), number("function"));
    (is_vf && is_mapped(device)).then(address)
}

/// `true` if some registers of a device are mapped: a driver of the guest has enabled it.
pub fn is_mapped(device: &Value) -> bool {
    let is_mapped = |region: &Value| region["address"].as_i64().is_some_and(|at| at != -1);
    device["regions"].as_array().into_iter().flatten().any(is_mapped)
}

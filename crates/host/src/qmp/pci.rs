//! The devices that `query-pci` tells of.

use serde_json::Value;

/// Bridges behind one another that are followed; what answers is not trusted to have an end.
pub const BRIDGES_MAX: usize = 8;

/// The PCI address of a device if it is a VF that the guest has enabled.
///
/// QEMU lists all VFs that a PF could have. Their vendor and device read 0xffff (PCIe 5.0, section
/// 9.3.4.1), and the registers of those that the guest has enabled are mapped, of the others not:
/// `address` is -1 then (tried with QEMU 11.1).
pub fn enabled_vf(device: &Value) -> Option<String> {
    const NOBODY: u64 = 0xffff;
    let is_vf = device["id"]["vendor"] == NOBODY && device["id"]["device"] == NOBODY;
    let is_mapped = |region: &Value| region["address"].as_i64().is_some_and(|at| at != -1);
    let mut regions = device["regions"].as_array().into_iter().flatten();
    let number = |field: &str| device[field].as_u64().unwrap_or_default();
    let address =
        || format!("{:02x}:{:02x}.{:x}", number("bus"), number("slot"), number("function"));
    (is_vf && regions.any(is_mapped)).then(address)
}

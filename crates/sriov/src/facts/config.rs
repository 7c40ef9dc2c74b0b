//! Configuration space of a PCI function: the registers that SR-IOV depends on.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bytes of the configuration space of a conventional PCI function.
const CONVENTIONAL: u32 = 256;
/// Bytes of that of a PCI Express function.
const EXTENDED: u64 = 4096;
/// Extended capability: Access Control Services.
const ACS: u16 = 0x000d;
/// Extended capability: Single Root I/O Virtualization.
const SRIOV: u16 = 0x0010;

/// Registers in the configuration space of a function. The kernel gives 64 bytes to a user without
/// CAP_SYS_ADMIN, which hold no capability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigSpace {
    /// Its size in bytes: 256, or 4096 with the extended part.
    pub size: u32,
    /// Bytes that this user could read.
    pub read: u32,
    /// Access Control Services; `None` if absent or not readable.
    pub acs: Option<AcsRegisters>,
    /// SR-IOV; `None` if absent or not readable.
    pub sriov: Option<SriovRegisters>,
}

/// Registers of Access Control Services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcsRegisters {
    /// Services that the function has.
    pub capability: u16,
    /// Services that are enabled.
    pub control: u16,
}

/// Registers of the SR-IOV capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SriovRegisters {
    /// SR-IOV Capabilities.
    pub capabilities: u32,
    /// SR-IOV Control.
    pub control: u16,
    /// InitialVFs.
    pub initial_vfs: u16,
    /// TotalVFs: 0 if the card's firmware has SR-IOV off.
    pub total_vfs: u16,
    /// NumVFs.
    pub num_vfs: u16,
    /// First VF Offset.
    pub offset: u16,
    /// VF Stride.
    pub stride: u16,
    /// VF Device ID.
    pub vf_device: u16,
    /// Supported Page Sizes.
    pub page_sizes: u32,
    /// System Page Size.
    pub page_size: u32,
    /// VF BARs.
    pub vf_bars: [u32; 6],
}

impl ConfigSpace {
    /// Reads the attribute `config` as far as this user may.
    pub(super) fn read(attribute: &Path) -> Option<ConfigSpace> {
        let file = File::open(attribute).ok()?;
        let size = file.metadata().ok()?.len().min(EXTENDED);
        let mut bytes = Vec::new();
        file.take(EXTENDED).read_to_end(&mut bytes).ok()?;
        Some(ConfigSpace { size: size as u32, ..ConfigSpace::of(&bytes) })
    }

    fn of(bytes: &[u8]) -> ConfigSpace {
        ConfigSpace {
            size: bytes.len() as u32,
            read: bytes.len() as u32,
            acs: extended(bytes, ACS).map(|at| AcsRegisters {
                capability: u16_at(bytes, at + 4),
                control: u16_at(bytes, at + 6),
            }),
            sriov: extended(bytes, SRIOV).map(|at| SriovRegisters {
                capabilities: u32_at(bytes, at + 0x04),
                control: u16_at(bytes, at + 0x08),
                initial_vfs: u16_at(bytes, at + 0x0c),
                total_vfs: u16_at(bytes, at + 0x0e),
                num_vfs: u16_at(bytes, at + 0x10),
                offset: u16_at(bytes, at + 0x14),
                stride: u16_at(bytes, at + 0x16),
                vf_device: u16_at(bytes, at + 0x1a),
                page_sizes: u32_at(bytes, at + 0x1c),
                page_size: u32_at(bytes, at + 0x20),
                vf_bars: [0, 1, 2, 3, 4, 5].map(|bar| u32_at(bytes, at + 0x24 + 4 * bar)),
            }),
        }
    }

    /// Returns `true` if the extended part was read, so that a capability that is `None` is absent.
    pub fn has_capabilities(&self) -> bool {
        self.read > CONVENTIONAL
    }

    /// Returns `true` if the function has no extended part, where SR-IOV and ACS are.
    pub fn is_conventional(&self) -> bool {
        self.size <= CONVENTIONAL
    }
}

/// Offset of an extended capability: a list from byte 256 on, each with its ID, version and the
/// offset of the next.
fn extended(bytes: &[u8], id: u16) -> Option<usize> {
    let mut at = CONVENTIONAL as usize;
    // A list of more entries than there is room for is a loop.
    for _ in 0..EXTENDED as usize / 8 {
        let header = u32_at(bytes, at);
        if header == 0 || header == u32::MAX {
            return None;
        }
        if header as u16 == id {
            return Some(at);
        }
        at = (header >> 20) as usize & !3;
        if at < CONVENTIONAL as usize {
            return None;
        }
    }
    None
}

/// Little-endian number; 0 beyond the end.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..).and_then(|rest| rest.first_chunk());
    two.map_or(0, |two| u16::from_le_bytes(*two))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configuration space with these extended capabilities: offset, ID, next.
    fn space(capabilities: &[(usize, u16, usize)]) -> Vec<u8> {
        let mut bytes = vec![0; EXTENDED as usize];
        for (at, id, next) in capabilities {
            let header = u32::from(*id) | 1 << 16 | (*next as u32) << 20;
            bytes[*at..*at + 4].copy_from_slice(&header.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn registers_are_found_behind_other_capabilities() {
        let mut bytes = space(&[(0x100, 0x0001, 0x140), (0x140, ACS, 0x160), (0x160, SRIOV, 0)]);
        bytes[0x144..0x148].copy_from_slice(&[0x5f, 0, 0x1d, 0]);
        bytes[0x16e..0x172].copy_from_slice(&[7, 0, 2, 0]);
        bytes[0x174..0x178].copy_from_slice(&[0x80, 0, 2, 0]);
        bytes[0x17a..0x17c].copy_from_slice(&[0xca, 0x10]);
        bytes[0x184..0x188].copy_from_slice(&[0x0c, 0, 0, 0xfe]);
        let read = ConfigSpace::of(&bytes);
        assert_eq!(read.acs, Some(AcsRegisters { capability: 0x5f, control: 0x1d }));
        let sriov = read.sriov.unwrap();
        assert_eq!((sriov.total_vfs, sriov.num_vfs, sriov.offset, sriov.stride), (7, 2, 128, 2));
        assert_eq!((sriov.vf_device, sriov.vf_bars), (0x10ca, [0xfe00_000c, 0, 0, 0, 0, 0]));
        assert!(read.has_capabilities() && !read.is_conventional());
    }

    #[test]
    fn nothing_is_found_in_what_was_not_read_is_absent_or_is_a_loop() {
        let whole = space(&[(0x100, SRIOV, 0)]);
        for len in [0, 64, 256] {
            let read = ConfigSpace::of(&whole[..len]);
            assert!(read.sriov.is_none() && !read.has_capabilities(), "{len} bytes");
        }
        for list in [&[][..], &[(0x100, 1, 0x100)], &[(0x100, 1, 0xfff)], &[(0x100, 1, 0x40)]] {
            assert_eq!(ConfigSpace::of(&space(list)).sriov, None, "{list:?}");
        }
        assert_eq!(ConfigSpace::of(&[0xff; 4096]).sriov, None, "a device that is gone");
        // A capability that the file cuts off has zeros.
        let cut = ConfigSpace::of(&whole[..0x102]);
        assert!(cut.sriov.is_none_or(|sriov| sriov == SriovRegisters::default()));
    }
}

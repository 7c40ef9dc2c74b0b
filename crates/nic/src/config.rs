//! What is configured, and what is refused.

use wire::{Mac, Vid};

use crate::PortId;

/// The most VFs that a NIC can have; PCI-SIG's bus number and our port numbers allow 255.
pub const MAX_VFS: usize = 255;
/// The most MACs of all functions together: their table is to stay within a second-level cache.
pub const MAX_MACS: usize = 8192;

/// The settings of a PF or VF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The adapter's MAC.
    pub mac: Mac,
    /// More MACs that frames may be sent to and, under `spoof_check`, come from.
    pub extra_macs: Vec<Mac>,
    /// The VLAN whose access port this is; `None` for untagged.
    pub vlan: Option<Vid>,
    /// Whether frames from another MAC than the function's are dropped.
    pub spoof_check: bool,
}

impl Function {
    /// An untagged function of one MAC, checked against spoofing.
    pub const fn new(mac: Mac) -> Self {
        Self { mac, extra_macs: Vec::new(), vlan: None, spoof_check: true }
    }

    /// All MACs, each with the field it comes from.
    pub(crate) fn macs(&self) -> impl Iterator<Item = (Field, Mac)> + '_ {
        let extra = self.extra_macs.iter().enumerate();
        std::iter::once((Field::Mac, self.mac))
            .chain(extra.map(|(index, mac)| (Field::ExtraMac(index), *mac)))
    }

    /// The VLAN as a number, 0 for untagged.
    pub(crate) fn vid(&self) -> u16 {
        self.vlan.map_or(0, Vid::get)
    }
}

/// The settings of a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicConfig {
    /// The PF; `None` leaves its port without a function.
    pub pf: Option<Function>,
    /// VF 0 first; `None` leaves a VF's port without a function.
    pub vfs: Vec<Option<Function>>,
}

impl NicConfig {
    /// Every function that there is, with its port.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (PortId, &Function)> {
        let ports = (PortId::PF.0..).map(PortId);
        let all = std::iter::once(&self.pf).chain(&self.vfs);
        ports.zip(all).filter_map(|(port, function)| Some((port, function.as_ref()?)))
    }

    /// Checks everything but duplicates, which show when the table is built.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.vfs.len() > MAX_VFS {
            return Err(ConfigError::TooManyVfs { vfs: self.vfs.len() });
        }
        let mut macs = 0;
        for (port, function) in self.functions() {
            for (field, mac) in function.macs() {
                macs += 1;
                if mac.is_multicast() {
                    return Err(ConfigError::MulticastMac { port, field, mac });
                }
                if mac.is_zero() {
                    return Err(ConfigError::ZeroMac { port, field });
                }
            }
            if macs > MAX_MACS {
                return Err(ConfigError::TooManyMacs { port, macs });
            }
        }
        Ok(())
    }
}

/// A field that holds a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// [`Function::mac`].
    Mac,
    /// [`Function::extra_macs`], by index.
    ExtraMac(usize),
}

impl std::fmt::Display for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mac => out.write_str("mac"),
            Self::ExtraMac(index) => write!(out, "extra_macs[{index}]"),
        }
    }
}

/// Why a [`NicConfig`] is refused. Nothing of it is applied then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The same MAC twice in one VLAN.
    #[error(
        "{port}: {field}: {mac} is also {other_field} of {other} in {}; \
         within a VLAN each MAC is allowed once",
        vlan_name(*.vid)
    )]
    DuplicateMac {
        /// The function that came second.
        port: PortId,
        /// Its field.
        field: Field,
        /// The address.
        mac: Mac,
        /// The VLAN, 0 for untagged.
        vid: u16,
        /// The function that has it already.
        other: PortId,
        /// Its field.
        other_field: Field,
    },
    /// A function's MAC is a group address.
    #[error(
        "{port}: {field}: {mac} is a multicast address; \
         allowed is a unicast one, whose first byte is even"
    )]
    MulticastMac {
        /// The function.
        port: PortId,
        /// Its field.
        field: Field,
        /// The address.
        mac: Mac,
    },
    /// A function's MAC is zero.
    #[error("{port}: {field}: 00:00:00:00:00:00 is no address; allowed is any other unicast one")]
    ZeroMac {
        /// The function.
        port: PortId,
        /// Its field.
        field: Field,
    },
    /// More VFs than there are ports.
    #[error("vfs: {vfs} VFs are too many; allowed are up to {MAX_VFS}")]
    TooManyVfs {
        /// How many there are.
        vfs: usize,
    },
    /// More MACs than the table takes.
    #[error(
        "{port}: extra_macs: the NIC has {macs} MACs up to here; \
         allowed are up to {MAX_MACS} of all functions together"
    )]
    TooManyMacs {
        /// The function with which there were too many.
        port: PortId,
        /// How many there are, this function's included.
        macs: usize,
    },
}

fn vlan_name(vid: u16) -> String {
    if vid == 0 { "the untagged network".into() } else { format!("VLAN {vid}") }
}

//! Addresses of a device.

use model::state::MacText;
use wire::Mac;

/// Addresses of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Identity {
    /// MAC address of the guest, if it has one.
    pub(in super::super) mac: Option<Mac>,
    /// Addresses that it may announce; `None`: any.
    pub(in super::super) announces: Option<Vec<Mac>>,
}

impl Identity {
    /// Addresses of a guest; with `spoof_check` it may announce only these.
    pub(in super::super) fn of(mac: MacText, macs: &[MacText], spoof_check: bool) -> Identity {
        let all = || std::iter::once(&mac).chain(macs).map(|mac| mac.0).collect();
        Identity { mac: Some(mac.0), announces: spoof_check.then(all) }
    }
}

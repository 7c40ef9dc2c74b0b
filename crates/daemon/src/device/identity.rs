//! The addresses of a device.

use model::state::MacText;
use wire::Mac;

/// The addresses of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Identity {
    /// What the guest reads as its own, if it has one.
    pub(in super::super) mac: Option<Mac>,
    /// All addresses that it may announce; `None` if any.
    pub(in super::super) announces: Option<Vec<Mac>>,
}

impl Identity {
    /// That of a guest that may announce its own addresses only, if sources are checked.
    pub(in super::super) fn of(mac: MacText, macs: &[MacText], spoof_check: bool) -> Identity {
        let all = || std::iter::once(&mac).chain(macs).map(|mac| mac.0).collect();
        Identity { mac: Some(mac.0), announces: spoof_check.then(all) }
    }
}

//! State of a NIC that a document wants.

use std::collections::BTreeMap;

use model::state::{Adapter, Attachment, MacText, Nic, NicMode, PortSettings, Vf, VfDriver};

use crate::driver::Binding;
use crate::netdev::VfNetdev;
use crate::vf::VfSetting;

/// State of a NIC that Shunt is to bring into force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedNic {
    /// Number of VFs.
    pub num_vfs: u16,
    /// Eswitch mode.
    pub mode: NicMode,
    /// Settings by index of the VF, also of VFs that are not enabled. Others go back to what they
    /// were before Shunt.
    pub vfs: BTreeMap<u16, Vec<VfSetting>>,
    /// Interfaces that guests have, by index of the VF. These VFs must not vanish.
    pub netdevs: BTreeMap<u16, VfNetdev>,
}

impl WantedNic {
    /// Gives a VF to an adapter, whose settings it has then. The interface stays with the host's
    /// driver, or its absence, unless it is the adapter's attachment; a VF's own driver stays.
    pub fn give(&mut self, vf: u16, adapter: &Adapter) {
        let own = self.vfs.entry(vf).or_default();
        own.retain(|it| matches!(it, VfSetting::Driver(_) | VfSetting::QueryRss(_)));
        own.extend(settings_of(Some(adapter.mac), &adapter.settings));
        if let Attachment::VfInterface(attachment) = &adapter.attachment {
            self.netdevs.insert(vf, VfNetdev::of(adapter, attachment));
        }
    }
}

/// Settings of a VF as a document says. Without a MAC address it keeps the one that it has.
fn settings_of(mac: Option<MacText>, of: &PortSettings) -> Vec<VfSetting> {
    let rate = VfSetting::Rate { min_mbps: of.min_tx_mbps, max_mbps: of.max_tx_mbps };
    let mut all = vec![VfSetting::Vlan(of.vlan)];
    all.extend(mac.map(|mac| VfSetting::Mac(Some(mac))));
    all.extend([rate, VfSetting::SpoofCheck(of.spoof_check), VfSetting::Trust(of.trust)]);
    all.push(VfSetting::LinkState(of.link_state));
    all
}

impl From<&Nic> for WantedNic {
    /// As a document says, without adapters.
    fn from(nic: &Nic) -> WantedNic {
        let driver = |vf: &Vf| {
            let VfDriver::VfioPci = vf.driver?;
            Some(VfSetting::Driver(Binding::vfio_pci()))
        };
        let vfs = nic.vfs.iter().map(|vf| {
            let query_rss = vf.query_rss.map(VfSetting::QueryRss);
            let mut all = settings_of(vf.mac, &vf.settings);
            all.extend(driver(vf).into_iter().chain(query_rss));
            (vf.index, all)
        });
        let vfs = vfs.collect();
        WantedNic { num_vfs: nic.num_vfs, mode: nic.mode, vfs, netdevs: BTreeMap::new() }
    }
}

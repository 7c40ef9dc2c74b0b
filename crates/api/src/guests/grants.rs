//! Checks a guest's change against the operator's grants.
//!
//! The check runs for each request of a guest, and again for each change of the operator's
//! document.

use model::state::{Adapter, GuestSetting, LinkState, Nic, State, Vlan, Vpf, VpfControl, VpfModel};

use super::error::{Errno, GuestError};
use super::setting::SettingsChange;

/// The VF of a request, with the operator's settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'s> {
    pub(super) control: &'s VpfControl,
    pub(super) adapter: &'s Adapter,
    nic: Option<&'s Nic>,
    index: u16,
}

impl<'s> Subject<'s> {
    /// VF number `index` of a virtual PF.
    ///
    /// # Errors
    /// There is no such VF, or the daemon has no part in it.
    pub(super) fn find(state: &'s State, vpf: &'s Vpf, index: u16) -> Result<Self, GuestError> {
        let denied = |errno, text: String| Err(GuestError::new(errno, text));
        let Some(control) = &vpf.control else {
            return denied(Errno::Perm, "the host grants nothing".into());
        };
        if vpf.model == VpfModel::Igb {
            let text = "the VFs of this PF are set by ip link set ... vf; the host sees one port";
            return denied(Errno::OpNotSupp, text.into());
        }
        let Some(vf) = vpf.vfs.get(usize::from(index)) else {
            return Err(GuestError::no_vf(index));
        };
        let adapter = vf.adapter.as_deref().and_then(|name| state.adapter(name));
        let Some(adapter) = adapter else {
            let text = format!("VF {index} is a host device; its settings cannot be changed here");
            return denied(Errno::OpNotSupp, text);
        };
        Ok(Subject { control, adapter, nic: state.nic_of(adapter), index })
    }

    /// Checks that the guest may make the change.
    ///
    /// # Errors
    /// Part of it is not granted, or is invalid.
    pub(super) fn allows(&self, change: &SettingsChange) -> Result<(), GuestError> {
        let perm = |text: String| Err(GuestError::new(Errno::Perm, text));
        let index = self.index;
        if self.control.vfs.as_ref().is_some_and(|vfs| !vfs.contains(&index)) {
            return perm(format!("this guest has no right to set VF {index}"));
        }
        if let Some(setting) = change.settings().find(|one| !self.control.settings.contains(one)) {
            let name = setting.word();
            return perm(format!("this guest has no right to set {name}"));
        }
        let is_operators = |nic: &Nic| nic.vfs.iter().any(|vf| Some(vf.index) == self.adapter.vf);
        if self.nic.is_some_and(is_operators) {
            return perm(format!("VF {index} has settings of the host"));
        }
        self.allows_address(change)?;
        self.allows_vlan(change)?;
        self.allows_rates(change)?;
        match change.link_state {
            Some(state) if state != LinkState::Disable && self.is_held_down() => {
                perm(format!("the host has disabled the link of VF {index}"))
            }
            _ => Ok(()),
        }
    }

    fn is_held_down(&self) -> bool {
        self.adapter.settings.link_state == LinkState::Disable
    }

    fn allows_address(&self, change: &SettingsChange) -> Result<(), GuestError> {
        let Some(mac) = change.mac.filter(|mac| *mac != self.adapter.mac) else { return Ok(()) };
        if self.control.mac_prefixes.iter().any(|prefix| prefix.is_of(mac)) {
            return Ok(());
        }
        let allowed = listed(&self.control.mac_prefixes, "addresses that begin with");
        Err(GuestError::new(Errno::Perm, format!("the host does not grant {mac}; {allowed}")))
    }

    /// Another priority or tag protocol is not the host's setting: the same VLAN ID is another
    /// network in provider tags than in customer tags.
    fn allows_vlan(&self, change: &SettingsChange) -> Result<(), GuestError> {
        let own = self.adapter.settings.vlan;
        let Some(vlan) = change.vlan.filter(|vlan| *vlan != own) else { return Ok(()) };
        let perm = |text: String| Err(GuestError::new(Errno::Perm, text));
        let granted = |vlan: &Vlan| self.control.vlans.iter().any(|range| range.contains(vlan.id));
        let Some(vlan) = vlan.filter(granted) else {
            let allowed = listed(&self.control.vlans, "VLANs");
            let wanted = vlan.map_or("frames without a VLAN".to_owned(), |vlan| match own {
                Some(own) if own.id == vlan.id => format!("another tag for VLAN {}", vlan.id),
                _ => format!("VLAN {}", vlan.id),
            });
            return perm(format!("the host does not grant {wanted}; {allowed}"));
        };
        let protos = &self.control.vlan_protos;
        let own = own.map(|own| own.proto).unwrap_or_default();
        if vlan.proto == own || protos.contains(&vlan.proto) {
            return Ok(());
        }
        let allowed = listed(protos, "tags of");
        perm(format!("the host does not grant tags of {}; {allowed}", vlan.proto))
    }

    fn allows_rates(&self, change: &SettingsChange) -> Result<(), GuestError> {
        let own = self.adapter.settings.max_tx_mbps;
        let most = if self.control.max_tx_mbps > 0 { self.control.max_tx_mbps } else { own };
        // 0 selects the host's rate.
        if let Some(max) = change.max_tx_mbps.filter(|max| ![0, own].contains(max))
            && most > 0
            && max > most
        {
            let text = format!("the host grants a max_tx_rate of at most {most} Mbit/s, not {max}");
            return Err(GuestError::new(Errno::Perm, text));
        }
        let own = self.adapter.settings.min_tx_mbps;
        let most = self.control.min_tx_mbps.max(own);
        match change.min_tx_mbps {
            Some(min) if min > most => {
                let text =
                    format!("the host grants a min_tx_rate of at most {most} Mbit/s, not {min}");
                Err(GuestError::new(Errno::Perm, text))
            }
            _ => Ok(()),
        }
    }
}

/// List of grants, for the end of a sentence.
fn listed<T: std::fmt::Display>(granted: &[T], what: &str) -> String {
    let shown: Vec<String> = granted.iter().take(8).map(T::to_string).collect();
    let more = if granted.len() > 8 { ", ..." } else { "" };
    match shown.is_empty() {
        true => "it grants only its own".to_owned(),
        false => format!("it grants {what} {}{more}", shown.join(", ")),
    }
}

/// `true` if a guest may change a setting at all.
pub(super) fn may(control: &VpfControl, index: u16, setting: GuestSetting) -> bool {
    let vf = control.vfs.as_ref().is_none_or(|vfs| vfs.contains(&index));
    vf && control.settings.contains(&setting)
}

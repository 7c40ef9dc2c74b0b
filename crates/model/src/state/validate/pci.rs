//! Rules for NICs of kind `pci`, and for fields that only they have.

use serde_json::{Value, json};

use super::super::adapter::Adapter;
use super::super::function::PortSettings;
use super::super::nic::{Bridging, Drift, Nic};
use super::Check;

/// Settings of a VF that Linux has an interface for (`ip link set PF vf N`).
const OF_LINUX: [&str; 6] =
    ["link_state", "max_tx_mbps", "min_tx_mbps", "spoof_check", "trust", "vlan"];

impl<'a> Check<'a> {
    /// Checks a NIC of kind `soft`.
    pub(super) fn soft(&mut self, nic: &'a Nic, at: &str) {
        let device = nic.device.as_ref().map(|device| ("device", json!(device)));
        let drift = (nic.drift != Drift::Report).then(|| ("drift", json!(nic.drift)));
        for (field, value) in device.into_iter().chain(drift) {
            let remedy = "leave it out, or write kind = \"pci\"";
            self.wrong(format!("{at}.{field}"), value, "needs kind pci", remedy);
        }
        self.switchdev(nic, at);
    }

    /// Checks a NIC of kind `pci`.
    pub(super) fn card(&mut self, nic: &'a Nic, at: &str) {
        let field = format!("{at}.device");
        match &nic.device {
            Some(device) => self.cards.claim(&mut self.problems, device, &field, device),
            None => {
                let remedy = "write the card's interface or PCI address; see shunt nic list";
                self.wrong(field, Value::Null, "is missing", remedy);
            }
        }
        let of_soft = [
            ("profile", (!nic.profile.is_ideal()).then(|| json!(nic.profile))),
            ("bridging", (nic.bridging != Bridging::Veb).then(|| json!(nic.bridging))),
            ("pf", nic.pf.as_ref().map(|pf| json!(pf.mac.to_string()))),
            ("representor", (!nic.representors.is_empty()).then_some(Value::Null)),
            ("rule", (!nic.rules.is_empty()).then_some(Value::Null)),
        ];
        for (field, value) in of_soft {
            let Some(value) = value else { continue };
            let remedy = "leave it out, or write kind = \"soft\"";
            self.wrong(format!("{at}.{field}"), value, "needs kind soft", remedy);
        }
        for (i, vf) in nic.vfs.iter().enumerate() {
            self.settings_of_linux(&vf.settings, &format!("{at}.vf[{i}]"));
        }
    }

    /// Settings of a card's VF that its driver cannot be given.
    fn settings_of_linux(&mut self, settings: &PortSettings, at: &str) {
        let (given, unset) = (json!(settings), json!(PortSettings::default()));
        for (name, value) in given.as_object().into_iter().flatten() {
            if !OF_LINUX.contains(&name.as_str()) && unset.get(name) != Some(value) {
                let error = "cannot be set on a card: Linux has no interface for it";
                let remedy = "leave it out, or use a NIC of kind soft";
                self.wrong(format!("{at}.{name}"), value.clone(), error, remedy);
            }
        }
    }

    /// Checks an adapter on a NIC of kind `pci`, which has no VFs for adapters.
    pub(super) fn adapter_on_card(&mut self, adapter: &'a Adapter, nic: &Nic, at: &str) {
        let error = format!("needs a VF of {}, a card: its VFs have no adapters", nic.name);
        let wrong = if adapter.nic.is_some() {
            let remedy = "name a switch on the NIC, or a NIC of kind soft";
            ("nic", json!(nic.name), remedy)
        } else if adapter.vf.is_some() {
            ("vf", json!(adapter.vf), "leave it out; set the VF in [[nic.vf]]")
        } else if adapter.iov_weight > 0 {
            ("iov_weight", json!(adapter.iov_weight), "write 0, or use a NIC of kind soft")
        } else {
            return;
        };
        let (field, value, remedy) = wrong;
        self.wrong(format!("{at}.{field}"), value, &error, remedy);
    }
}

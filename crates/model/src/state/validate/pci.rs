//! Rules for NICs of kind `pci`, and for fields that only they have.

use serde_json::{Value, json};

use super::super::adapter::{Adapter, WantedPath};
use super::super::attachment::{Attachment, VfInterface};
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
        let of_nic = device.into_iter().chain(drift);
        let of_nic = of_nic.map(|(field, value)| (format!("{at}.{field}"), value));
        let of_vfs = nic.vfs.iter().enumerate().flat_map(|(i, vf)| {
            let driver = vf.driver.map(|driver| ("driver", json!(driver)));
            let query_rss = vf.query_rss.map(|query_rss| ("query_rss", json!(query_rss)));
            let given = driver.into_iter().chain(query_rss);
            given.map(move |(field, value)| (format!("{at}.vf[{i}].{field}"), value))
        });
        for (field, value) in of_nic.chain(of_vfs) {
            let remedy = "leave it out, or write kind = \"pci\"";
            self.wrong(field, value, "needs kind pci", remedy);
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

    /// Checks an adapter on a NIC of kind `pci`: without a switch it has a VF, whose interface goes
    /// to its namespace; on a switch its VM has the VF that it names, or none.
    pub(super) fn adapter_on_card(&mut self, adapter: &'a Adapter, nic: &Nic, at: &str) {
        if adapter.nic.is_some() {
            self.settings_of_linux(&adapter.settings, at);
            if let Attachment::VfInterface(VfInterface { netns: None, .. }) = adapter.attachment {
                let (field, remedy) = (format!("{at}.attachment.netns"), "name a namespace");
                self.wrong(field, Value::Null, "is missing", remedy);
            }
            if !adapter.attachment.is_vf() {
                let kind = json!(adapter.attachment.kind().word());
                let error = format!("is no attachment to a VF of {}, a card", nic.name);
                let remedy = "write kind = \"vf\" with interface and netns, or name a switch";
                self.wrong(format!("{at}.attachment.kind"), kind, &error, remedy);
            }
            let own = nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf);
            if let Some(driver) = own.and_then(|vf| vf.driver) {
                let error = format!("has no interface: its driver is {}", json!(driver));
                let remedy = "name another VF, or leave out driver of this one";
                self.wrong(format!("{at}.vf"), json!(adapter.vf), &error, remedy);
            }
            return;
        }
        self.no_vf(&adapter.attachment, &format!("{at}.attachment"));
        let weight = adapter.iov_weight;
        if adapter.vf.is_none() {
            if weight > 0 {
                let error = format!("needs the number of a VF of {}, a card, in vf", nic.name);
                let remedy = "name the VF that the VM gets, or write 0";
                self.wrong(format!("{at}.iov_weight"), json!(weight), &error, remedy);
            }
            return;
        }
        self.settings_of_linux(&adapter.settings, at);
        if !matches!(adapter.attachment, Attachment::VhostUser(_) | Attachment::VfInterface(_)) {
            let kind = json!(adapter.attachment.kind().word());
            let error = format!("excludes a VF of {}, a card: only a VM has both", nic.name);
            let remedy = "write kind = \"vhost-user\", or leave vf out";
            self.wrong(format!("{at}.attachment.kind"), kind, &error, remedy);
        }
        if adapter.path == WantedPath::Auto {
            let error = format!("excludes a VF of {}, a card: its guest has to take it", nic.name);
            let remedy = "write synthetic, and use shunt vm attach and detach";
            self.wrong(format!("{at}.path"), json!(adapter.path), &error, remedy);
        }
    }

    /// An attachment of anything but an adapter on a card.
    pub(super) fn no_vf(&mut self, attachment: &Attachment, at: &str) {
        if attachment.is_vf() {
            let error = "is for adapters with a VF of a card: nic names a NIC of kind pci";
            self.wrong(format!("{at}.kind"), "vf", error, "write another kind");
        }
    }
}

//! Rules for virtual PFs.

use serde_json::Value;

use super::super::AttachmentKind;
use super::super::vpf::{GuestSetting, Vpf, VpfControl, VpfModel};
use super::{Check, one_of};

impl<'a> Check<'a> {
    pub(super) fn vpf(&mut self, vpf: &'a Vpf, at: &str) {
        let field = format!("{at}.name");
        self.vpf_names.claim(&mut self.problems, &vpf.name, &field, &vpf.name);
        self.behind_function(&vpf.pf, vpf.model, format!("{at}.pf"));
        if vpf.model == VpfModel::Igb && !vpf.vfs.is_empty() {
            let error = "are fixed with igb: all of them are behind the PF's adapter";
            let allowed = "leave vf out".to_owned();
            self.wrong(format!("{at}.vf"), vpf.vfs.len(), error, allowed);
            return;
        }
        for (i, vf) in vpf.vfs.iter().enumerate() {
            let at = format!("{at}.vf[{i}]");
            match (&vf.adapter, &vf.vhost_vdpa) {
                (Some(adapter), None) => {
                    self.behind_function(adapter, vpf.model, format!("{at}.adapter"));
                }
                (None, Some(device)) => {
                    let field = format!("{at}.vhost_vdpa");
                    self.behind.claim(&mut self.problems, device, &field, device);
                }
                _ => {
                    let allowed = "give adapter or vhost_vdpa, one of the two".to_owned();
                    self.wrong(at, Value::Null, "needs one device behind it", allowed);
                }
            }
        }
        if let Some(control) = &vpf.control {
            self.control(vpf, control, &format!("{at}.control"));
        }
    }

    /// An adapter behind a function: its attachment must be usable by a VMM.
    fn behind_function(&mut self, name: &'a str, model: VpfModel, field: String) {
        let Some(adapter) = self.state.adapter(name) else {
            let adapters = self.state.adapters.iter().map(|adapter| adapter.name.as_str());
            let allowed = one_of("adapter", adapters);
            return self.wrong(field, name, "is no adapter", allowed);
        };
        self.behind.claim(&mut self.problems, name, &field, &name);
        let kind = adapter.attachment.kind();
        let kinds: &[AttachmentKind] = match model {
            VpfModel::Virtio => &[
                AttachmentKind::VhostUser,
                AttachmentKind::Stream,
                AttachmentKind::Packet,
                AttachmentKind::Xdp,
            ],
            VpfModel::Igb => &[AttachmentKind::Stream, AttachmentKind::Packet, AttachmentKind::Xdp],
        };
        if !kinds.contains(&kind) {
            let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
            let error =
                format!("has an attachment of kind {kind}, which this model does not support");
            let allowed = format!("give it one of {}", words.join(", "));
            self.wrong(field, name, &error, allowed);
        }
    }

    fn control(&mut self, vpf: &'a Vpf, control: &'a VpfControl, at: &str) {
        let field = format!("{at}.socket");
        self.sockets.claim(&mut self.problems, &control.socket, &field, &control.socket);
        for (i, vf) in control.vfs.iter().flatten().enumerate() {
            if usize::from(*vf) >= vpf.vfs.len() {
                let allowed = match vpf.vfs.len() {
                    0 => format!("leave vfs out: {} has none of its own", vpf.name),
                    len => format!("write a number, 0 to {}", len - 1),
                };
                let error = format!("is no VF of {}", vpf.name);
                self.wrong(format!("{at}.vfs[{i}]"), *vf, &error, allowed);
            }
        }
        // A limit without the matching right is a mistake: it would have no effect.
        let has = |setting| control.settings.contains(&setting);
        let limits = [
            ("mac_prefixes", !control.mac_prefixes.is_empty(), GuestSetting::Mac),
            ("vlans", !control.vlans.is_empty(), GuestSetting::Vlan),
            ("vlan_protos", !control.vlan_protos.is_empty(), GuestSetting::Vlan),
            ("max_tx_mbps", control.max_tx_mbps > 0, GuestSetting::Rate),
            ("min_tx_mbps", control.min_tx_mbps > 0, GuestSetting::Rate),
        ];
        for (name, _, setting) in limits.iter().filter(|(_, given, of)| *given && !has(*of)) {
            let word = setting.word();
            let error = format!("limits {word}, which the guest may not set");
            let allowed = format!("add \"{word}\" to settings, or leave {name} out");
            self.wrong(format!("{at}.{name}"), Value::Null, &error, allowed);
        }
    }
}

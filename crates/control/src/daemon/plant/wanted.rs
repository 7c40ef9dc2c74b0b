//! Which attachments a state has.

use super::super::device::Identity;
use crate::compile::Attached;
use crate::state::{Adapter, Attachment, Nic, State};

/// An attachment that is to be served.
pub(super) struct Wanted {
    /// Where the document has it.
    pub(super) field: String,
    pub(super) nic: String,
    pub(super) owner: Attached,
    pub(super) spec: Attachment,
    pub(super) identity: Identity,
}

/// Every attachment of a state.
pub(super) fn wanted(state: &State) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (i, nic) in state.nics.iter().enumerate() {
        let mut want = |owner, field: &str, spec: &Attachment, identity| {
            let (field, nic) = (format!("nic[{i}].{field}"), nic.name.clone());
            wanted.push(Wanted { field, nic, owner, spec: spec.clone(), identity });
        };
        if let Some(uplink) = &nic.uplink {
            want(Attached::Uplink, "uplink", uplink, Identity::default());
        }
        if let Some(pf) = &nic.pf {
            let identity = Identity::of(pf.mac, &pf.macs, pf.spoof_check);
            want(Attached::Pf, "pf.attachment", &pf.attachment, identity);
        }
    }
    for (i, adapter) in state.adapters.iter().enumerate() {
        let Some(nic) = state.nic_of(adapter) else { continue };
        wanted.push(Wanted {
            field: format!("adapter[{i}].attachment"),
            nic: nic.name.clone(),
            owner: Attached::Adapter(adapter.name.clone()),
            spec: adapter.attachment.clone(),
            identity: Identity::of(adapter.mac, &adapter.macs, is_checked(nic, adapter)),
        });
    }
    wanted
}

/// Whether sources are checked of an adapter, or of the VF that it names, whose settings hold there.
fn is_checked(nic: &Nic, adapter: &Adapter) -> bool {
    let own = nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf);
    adapter.spoof_check || own.is_some_and(|vf| vf.spoof_check)
}

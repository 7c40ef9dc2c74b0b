//! Which attachments a state has.

use super::super::device::Identity;
use crate::compile::Attached;
use crate::state::{Adapter, Attachment, Nic, Problem, State, VhostUser};

/// An attachment that is to be served.
pub(super) struct Wanted {
    /// Where the document has it.
    pub(super) field: String,
    pub(super) nic: String,
    pub(super) owner: Attached,
    pub(super) spec: VhostUser,
    pub(super) identity: Identity,
}

/// Every attachment of a state.
///
/// # Errors
/// One that this daemon cannot serve.
pub(super) fn wanted(state: &State) -> Result<Vec<Wanted>, Problem> {
    let mut wanted = Vec::new();
    for (i, nic) in state.nics.iter().enumerate() {
        let mut want = |owner, field: &str, spec: &Attachment, identity| {
            let (field, nic) = (format!("nic[{i}].{field}"), nic.name.clone());
            let spec = socket(spec, &field)?;
            wanted.push(Wanted { field, nic, owner, spec, identity });
            Ok(())
        };
        if let Some(uplink) = &nic.uplink {
            want(Attached::Uplink, "uplink", uplink, Identity::default())?;
        }
        if let Some(pf) = &nic.pf {
            let identity = Identity::of(pf.mac, &pf.macs, pf.spoof_check);
            want(Attached::Pf, "pf.attachment", &pf.attachment, identity)?;
        }
    }
    for (i, adapter) in state.adapters.iter().enumerate() {
        let Some(nic) = state.nic_of(adapter) else { continue };
        let field = format!("adapter[{i}].attachment");
        wanted.push(Wanted {
            spec: socket(&adapter.attachment, &field)?,
            field,
            nic: nic.name.clone(),
            owner: Attached::Adapter(adapter.name.clone()),
            identity: Identity::of(adapter.mac, &adapter.macs, is_checked(nic, adapter)),
        });
    }
    Ok(wanted)
}

/// The socket that an attachment is.
fn socket(attachment: &Attachment, field: &str) -> Result<VhostUser, Problem> {
    match attachment {
        Attachment::VhostUser(socket) => Ok(socket.clone()),
        other => {
            let allowed = "write \"vhost-user\"".to_owned();
            let error = "cannot be opened by this daemon";
            Err(Problem::new(format!("{field}.kind"), other.kind().word(), error, allowed))
        }
    }
}

/// Whether sources are checked of an adapter, or of the VF that it names, whose settings hold there.
fn is_checked(nic: &Nic, adapter: &Adapter) -> bool {
    let own = nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf);
    adapter.spoof_check || own.is_some_and(|vf| vf.spoof_check)
}

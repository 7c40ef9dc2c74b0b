//! Users that may connect to the sockets of guests: the daemon's settings, and those of an
//! attachment, which override them.
//!
//! Only the owner may connect by default; with a group, its members too.

use anyhow::{Context, Result};
use host::group::group_id;
use model::config::Config;
use model::state::{
    Attachment, Problem, Problems, SocketMode, SocketPermissions, Stream, VhostUser,
};
use vhost_user::SocketAccess;

use super::port_spec::PortSpec;

/// The daemon's settings, for attachments without their own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DefaultAccess {
    gid: Option<u32>,
    mode: Option<SocketPermissions>,
}

impl DefaultAccess {
    /// Reads the configuration.
    ///
    /// # Errors
    /// There is no such group.
    pub(super) fn of(config: &Config) -> Result<DefaultAccess> {
        let gid = |group: &String| {
            let remedy = || format!("socket_group: \"{group}\"; create the group, or name another");
            group_id(group).with_context(remedy)
        };
        let gid = config.socket_group.as_ref().map(gid).transpose()?;
        Ok(DefaultAccess { gid, mode: config.socket_mode })
    }

    /// Access to the socket of an attachment with these settings.
    pub(super) fn with(self, gid: Option<u32>, mode: Option<SocketPermissions>) -> SocketAccess {
        let gid = gid.or(self.gid);
        let default = SocketPermissions(if gid.is_some() { 0o660 } else { 0o600 });
        let SocketPermissions(mode) = mode.or(self.mode).unwrap_or(default);
        SocketAccess { gid, mode: mode.into() }
    }

    /// Access to the socket of a port at the field `at`; `None` if the port does not listen.
    ///
    /// # Errors
    /// There is no such group.
    pub(super) fn of_port(
        self,
        spec: &PortSpec,
        at: &str,
    ) -> Result<Option<SocketAccess>, Problems> {
        let (mode, group, permissions) = match spec {
            PortSpec::Attachment(
                Attachment::VhostUser(VhostUser { mode, socket_group, socket_mode, .. })
                | Attachment::Stream(Stream { mode, socket_group, socket_mode, .. }),
            ) => (mode, socket_group, socket_mode),
            PortSpec::Attachment(
                Attachment::Tap(_)
                | Attachment::Packet(_)
                | Attachment::Xdp(_)
                | Attachment::Pcap(_)
                | Attachment::Vduse(_)
                | Attachment::VfInterface(_),
            )
            | PortSpec::Tunnel(_) => return Ok(None),
        };
        if *mode == SocketMode::Client {
            return Ok(None);
        }
        let gid = group.as_ref().map(|group| {
            group_id(group).map_err(|error| {
                let allowed = "create the group, or name another";
                let field = format!("{at}.socket_group");
                Problems::from(Problem::new(field, group.as_str(), error.to_string(), allowed))
            })
        });
        Ok(Some(self.with(gid.transpose()?, *permissions)))
    }
}

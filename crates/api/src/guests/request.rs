//! Requests of a guest.

use std::fmt;

use super::setting::SettingsChange;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Describes the PF and the guest's rights.
    Hello,
    /// Lists all VFs, or one.
    List(Option<u16>),
    /// Changes settings of a VF: all or none.
    Set(u16, SettingsChange),
    /// Drops the guest's settings of a VF.
    Reset(u16),
}

impl Request {
    /// `true` if it may change a setting.
    pub fn changes(&self) -> bool {
        matches!(self, Request::Set(..) | Request::Reset(_))
    }
}

impl fmt::Display for Request {
    /// Text for the audit log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Hello => f.write_str("hello"),
            Request::List(_) => f.write_str("list"),
            Request::Set(vf, change) => write!(f, "vf {vf}:{change}"),
            Request::Reset(vf) => write!(f, "vf {vf}: reset to the host's settings"),
        }
    }
}

/// A request with the number that its response repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    /// Number chosen by the guest; 0 if unreadable.
    pub id: u64,
    pub what: Result<Request, super::GuestError>,
}

impl ReceivedRequest {
    /// `true` if it may change a setting.
    pub(super) fn changes(&self) -> bool {
        self.what.as_ref().is_ok_and(Request::changes)
    }
}

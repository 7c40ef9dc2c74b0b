//! Errors for guests, with the error number of a Linux driver.

use std::fmt;

use model::state::Problems;

/// An error number of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// Operation not permitted: the host does not grant it.
    Perm,
    /// Input/output error: it could not be stored.
    Io,
    /// Resource temporarily unavailable: too many requests.
    Again,
    /// Invalid argument.
    Inval,
    /// Protocol error: not a request.
    Proto,
    /// The line is too long.
    MsgSize,
    /// Protocol not supported.
    ProtoNoSupport,
    /// Operation not supported.
    OpNotSupp,
    /// Another function has the address.
    AddrInUse,
}

impl Errno {
    /// The number on x86 and ARM.
    pub const fn code(self) -> i32 {
        match self {
            Errno::Perm => 1,
            Errno::Io => 5,
            Errno::Again => 11,
            Errno::Inval => 22,
            Errno::Proto => 71,
            Errno::MsgSize => 90,
            Errno::ProtoNoSupport => 93,
            Errno::OpNotSupp => 95,
            Errno::AddrInUse => 98,
        }
    }

    /// The name, as manual pages write it.
    pub const fn name(self) -> &'static str {
        match self {
            Errno::Perm => "EPERM",
            Errno::Io => "EIO",
            Errno::Again => "EAGAIN",
            Errno::Inval => "EINVAL",
            Errno::Proto => "EPROTO",
            Errno::MsgSize => "EMSGSIZE",
            Errno::ProtoNoSupport => "EPROTONOSUPPORT",
            Errno::OpNotSupp => "EOPNOTSUPP",
            Errno::AddrInUse => "EADDRINUSE",
        }
    }
}

/// Error response to a guest. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestError {
    pub errno: Errno,
    /// Text for the guest's user. It reveals nothing about other guests.
    pub text: String,
}

impl GuestError {
    pub fn new(errno: Errno, text: impl Into<String>) -> GuestError {
        GuestError { errno, text: text.into() }
    }

    /// The VF does not exist.
    pub fn no_vf(index: u16) -> GuestError {
        GuestError::new(Errno::Inval, format!("there is no VF {index}"))
    }

    /// The virtual PF was removed.
    pub fn taken() -> GuestError {
        GuestError::new(Errno::Perm, "the host has removed this PF")
    }

    /// Error of the whole document, the NIC's profile or the data plane. Those texts name other
    /// adapters and files of the host, so the guest only gets the kind of error.
    pub fn of(problems: &Problems) -> GuestError {
        let error = problems.problems.first().map_or("", |problem| problem.message.as_str());
        if error.contains("the address of") || error.contains("EEXIST") {
            return GuestError::new(Errno::AddrInUse, "another function has that address");
        }
        let by_card = [
            ("EPROTONOSUPPORT", Errno::ProtoNoSupport),
            ("EOPNOTSUPP", Errno::OpNotSupp),
            ("EPERM", Errno::Perm),
        ];
        let found = by_card.into_iter().find(|(name, _)| error.contains(name));
        let errno = found.map_or(Errno::Inval, |(_, errno)| errno);
        GuestError::new(
            errno,
            "the host's NIC rejects this combination with the VF's other settings",
        )
    }
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.errno.name())
    }
}

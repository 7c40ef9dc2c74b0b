//! Why a guest's request is not done, with the error number that a Linux driver would give.

use std::fmt;

use model::state::Problems;

/// An error number of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// Operation not permitted: the host does not grant it.
    Perm,
    /// Input/output error: it could not be stored.
    Io,
    /// Resource temporarily unavailable: too much was asked for at once.
    Again,
    /// Numerical argument out of domain and the like: the request makes no sense.
    Inval,
    /// Protocol error: this is no request.
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

/// A request that is not done. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub errno: Errno,
    /// A sentence for the guest's user. It tells nothing of other guests.
    pub text: String,
}

impl Refusal {
    pub fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into() }
    }

    /// There is no such VF.
    pub fn no_vf(index: u16) -> Refusal {
        Refusal::new(Errno::Inval, format!("there is no VF {index}"))
    }

    /// There is no such virtual PF any more.
    pub fn taken() -> Refusal {
        Refusal::new(Errno::Perm, "the host has taken this PF away")
    }

    /// What the whole document, the profile of the NIC or the data plane refuses. Their words name
    /// other adapters and files of the host's, so only their kind is told.
    pub fn of(problems: &Problems) -> Refusal {
        let error = problems.problems.first().map_or("", |problem| problem.error.as_str());
        if error.contains("the address of") || error.contains("EEXIST") {
            return Refusal::new(Errno::AddrInUse, "another function has that address");
        }
        let by_card = [
            ("EPROTONOSUPPORT", Errno::ProtoNoSupport),
            ("EOPNOTSUPP", Errno::OpNotSupp),
            ("EPERM", Errno::Perm),
        ];
        let found = by_card.into_iter().find(|(name, _)| error.contains(name));
        let errno = found.map_or(Errno::Inval, |(_, errno)| errno);
        Refusal::new(errno, "the host's NIC does not take that beside the VF's other settings")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.errno.name())
    }
}

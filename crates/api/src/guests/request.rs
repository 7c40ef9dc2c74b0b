//! What a guest may ask.

use std::fmt;

use super::setting::Wish;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// What the PF is, and what the guest may set.
    Hello,
    /// All VFs, or one.
    List(Option<u16>),
    /// Settings of a VF: all of them change, or none.
    Set(u16, Wish),
    /// What the guest has set of a VF falls.
    Reset(u16),
}

impl Request {
    /// Whether it may change something.
    pub fn changes(&self) -> bool {
        matches!(self, Request::Set(..) | Request::Reset(_))
    }
}

impl fmt::Display for Request {
    /// As a line of the audit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Hello => f.write_str("hello"),
            Request::List(_) => f.write_str("list"),
            Request::Set(vf, wish) => write!(f, "vf {vf}:{wish}"),
            Request::Reset(vf) => write!(f, "vf {vf}: back to what the host says"),
        }
    }
}

/// A request, and by which number its answer is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The guest's number; 0 if it could not be read.
    pub id: u64,
    pub what: Result<Request, super::Refusal>,
}

impl Asked {
    /// Whether it may change something.
    pub(super) fn changes(&self) -> bool {
        self.what.as_ref().is_ok_and(Request::changes)
    }
}

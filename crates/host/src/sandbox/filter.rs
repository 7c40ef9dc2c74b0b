//! Seccomp filters, compiled from the table of calls.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::calls::{Call, GROUPS, Limit, Value, WITHOUT_SIGNAL};

/// Reasons that a filter cannot be made or installed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The table and this machine do not fit.
    #[error("cannot compile a seccomp filter")]
    Compile(#[from] seccompiler::BackendError),
    /// The kernel refuses filters.
    #[error(
        "cannot install a seccomp filter; the kernel needs CONFIG_SECCOMP_FILTER, and a container or \
         service must allow the system call seccomp"
    )]
    Install(#[from] seccompiler::Error),
    /// The kernel refuses the signal handler.
    #[error("cannot handle SIGSYS")]
    Trap(#[source] Errno),
}

/// Filters of a process.
#[derive(Debug)]
pub(super) struct Filters {
    lane: BpfProgram,
    other: BpfProgram,
    /// Filters of [`WITHOUT_SIGNAL`].
    without_signal: Vec<BpfProgram>,
}

impl Filters {
    pub(super) fn compile() -> Result<Filters, FilterError> {
        let without_signal = WITHOUT_SIGNAL.iter().map(|(call, errno)| refuse(call, *errno));
        Ok(Filters {
            lane: compile(true)?,
            other: compile(false)?,
            without_signal: without_signal.collect::<Result<_, _>>()?,
        })
    }

    /// Restricts the calling thread to the calls of lanes.
    pub(super) fn confine_lane(&self) -> Result<(), FilterError> {
        Ok(seccompiler::apply_filter(&self.lane)?)
    }

    /// Restricts the calling thread, and threads that it starts, to the calls of the table. The
    /// kernel is also told to grant no rights to programs that they execute.
    pub(super) fn confine(&self) -> Result<(), FilterError> {
        for filter in &self.without_signal {
            seccompiler::apply_filter(filter)?;
        }
        Ok(seccompiler::apply_filter(&self.other)?)
    }
}

fn arch() -> Result<TargetArch, FilterError> {
    Ok(std::env::consts::ARCH.try_into()?)
}

/// Allows the calls of the table: those for lanes, or all.
fn compile(lane: bool) -> Result<BpfProgram, FilterError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let groups = GROUPS.iter().filter(|group| group.lanes || !lane);
    // A filter with a signal would precede the one without.
    let without_signal = WITHOUT_SIGNAL.iter().map(|(call, _)| call);
    for call in groups.flat_map(|group| group.calls).chain(without_signal) {
        let allowed = rules.entry(call.number).or_default();
        if let Some(limit) = call.limit {
            allowed.push(rule(limit)?);
        }
    }
    Ok(SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch()?)?.try_into()?)
}

fn rule(limit: Limit) -> Result<SeccompRule, FilterError> {
    let value = match limit.value {
        Value::Is(value) => value,
        Value::OwnProcess => std::process::id().into(),
    };
    let (width, compare) = (SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(limit.mask));
    let condition = SeccompCondition::new(limit.argument, width, compare, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Refuses a call with an error.
fn refuse(call: &Call, errno: i32) -> Result<BpfProgram, FilterError> {
    let limit = call.limit.map(rule).transpose()?;
    let rules = BTreeMap::from([(call.number, Vec::from_iter(limit))]);
    let refused = SeccompAction::Errno(errno as u32);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refused, arch()?)?.try_into()?)
}

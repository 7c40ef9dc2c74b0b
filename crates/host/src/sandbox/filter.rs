//! Seccomp filters, compiled from the table of calls.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::calls::{GROUPS, Limit, Value};

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
    /// Lets a C library start threads by clone, whose flags a filter can read.
    no_clone3: BpfProgram,
}

impl Filters {
    pub(super) fn compile() -> Result<Filters, FilterError> {
        Ok(Filters { lane: compile(true)?, other: compile(false)?, no_clone3: no_clone3()? })
    }

    /// Restricts the calling thread to the calls of lanes.
    pub(super) fn confine_lane(&self) -> Result<(), FilterError> {
        Ok(seccompiler::apply_filter(&self.lane)?)
    }

    /// Restricts the calling thread, and threads that it starts, to the calls of the table. The
    /// kernel is also told to grant no rights to programs that they execute.
    pub(super) fn confine(&self) -> Result<(), FilterError> {
        seccompiler::apply_filter(&self.no_clone3)?;
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
    for call in groups.flat_map(|group| group.calls) {
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

/// Refuses clone3 with ENOSYS, as a kernel without it.
fn no_clone3() -> Result<BpfProgram, FilterError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refused, arch()?)?.try_into()?)
}

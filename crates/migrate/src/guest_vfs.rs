//! The guest's own VFs. QEMU would leave them dead, so the guest agent disables them for the
//! migration and re-enables them after it.
//!
//! The guest records the numbers of VFs in a file of its own, so they survive a `shunt migrate`
//! that is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use host::agent::Agent;
use host::qmp::QmpError;

use super::error::MigrateError;
use super::printable::printable;
use super::qemu::{POLL, Qemu};

/// Timeout of each request to the guest: one that is busy takes 14 s to disable two VFs.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// Script: records the number of VFs of each PF, then disables them.
pub(super) const DISABLE_SCRIPT: &str = r#"
for file in /sys/bus/pci/devices/*/sriov_numvfs; do
    [ -e "$file" ] || continue
    number=$(cat "$file")
    [ "$number" = 0 ] && continue
    echo "$number $file" >> /run/shunt-numvfs || exit 1
    echo 0 > "$file" || exit 1
done"#;

/// Script: re-enables the recorded VFs.
pub(super) const RESTORE_SCRIPT: &str = r#"
[ -e /run/shunt-numvfs ] || exit 0
status=0
while read -r number file; do
    [ "$(cat "$file")" = "$number" ] || echo "$number" > "$file" || status=1
done < /run/shunt-numvfs
rm -f /run/shunt-numvfs
exit $status"#;

/// Remedy if no agent was named for the target.
pub(super) const RESTORE_BY_HAND: &str = "the guest's VFs are disabled: restore the numbers of /run/shunt-numvfs in the guest, or name --to-guest-agent";

/// Connects to the guest agent.
///
/// # Errors
/// The agent does not answer.
pub(super) fn connect(agent: &Path) -> Result<Agent, MigrateError> {
    Agent::connect(agent, TIMEOUT).map_err(|error| told(agent, error))
}

/// Disables the guest's VFs, and waits until QEMU sees none.
///
/// # Errors
/// The guest fails, or QEMU still sees some; VFs already disabled are re-enabled.
pub(super) fn disable(agent: &Path, qemu: &mut Qemu) -> Result<(), MigrateError> {
    let taken = run(agent, DISABLE_SCRIPT, "disable its VFs").and_then(|()| {
        let begun = Instant::now();
        while !qemu.functions()?.is_empty() {
            if begun.elapsed() > TIMEOUT {
                return Err(MigrateError::new(
                    "QEMU still sees VFs after the guest has disabled them",
                ));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    });
    taken.map_err(|failed| match restore(agent) {
        Ok(()) => failed,
        Err(also) => MigrateError::new(format!("{failed}; {also}")),
    })
}

/// Re-enables the VFs that were disabled, if any.
///
/// # Errors
/// The guest fails.
pub(super) fn restore(agent: &Path) -> Result<(), MigrateError> {
    run(agent, RESTORE_SCRIPT, "re-enable its VFs")
}

fn run(agent: &Path, script: &str, what: &str) -> Result<(), MigrateError> {
    let status = connect(agent)?.shell(script).map_err(|error| told(agent, error))?;
    match status {
        0 => Ok(()),
        status => Err(MigrateError::new(format!(
            "the guest could not {what} (status {status}); see its log, and /run/shunt-numvfs there"
        ))),
    }
}

fn told(agent: &Path, error: QmpError) -> MigrateError {
    let path = agent.display();
    MigrateError::new(match error {
        QmpError::NoServer { .. } => format!(
            "no guest agent listens at {path}; name the socket of QEMU's port org.qemu.guest_agent.0"
        ),
        QmpError::Late { .. } => {
            format!(
                "the guest agent behind {path} does not answer; check that it runs in the guest"
            )
        }
        error => printable(&format!("the guest agent behind {path}: {error}")),
    })
}

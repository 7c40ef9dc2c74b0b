//! A guest's own VFs, which QEMU would leave dead: its guest agent takes them away for the time of
//! a move, if that is wanted, and gives them back. How many there were the guest itself remembers,
//! in a file of its own, so nothing is forgotten with a mover that dies.

use std::path::Path;
use std::time::{Duration, Instant};

use host::agent::Agent;
use host::qmp::QmpError;

use super::Failed;
use super::mover::POLL;
use super::vmm::{Vmm, printable};

/// How long the guest may take for each.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 20 });

/// Notes how many VFs each PF has, and takes them away.
pub(super) const TAKE: &str = r#"
for file in /sys/bus/pci/devices/*/sriov_numvfs; do
    [ -e "$file" ] || continue
    number=$(cat "$file")
    [ "$number" = 0 ] && continue
    echo "$number $file" >> /run/shunt-numvfs || exit 1
    echo 0 > "$file" || exit 1
done"#;

/// Gives them back as they were noted.
pub(super) const GIVE: &str = r#"
[ -e /run/shunt-numvfs ] || exit 0
status=0
while read -r number file; do
    [ "$(cat "$file")" = "$number" ] || echo "$number" > "$file" || status=1
done < /run/shunt-numvfs
rm -f /run/shunt-numvfs
exit $status"#;

/// What to do where nobody says by which socket the agent can be asked.
pub(super) const BY_HAND: &str = "the guest is without its VFs: write the numbers of /run/shunt-numvfs again in the guest, or name --to-guest-agent";

/// Sees that the guest's agent answers.
///
/// # Errors
/// It does not.
pub(super) fn reach(agent: &Path) -> Result<Agent, Failed> {
    Agent::connect(agent, PATIENCE).map_err(|error| told(agent, error))
}

/// Takes a guest's VFs away, and waits until QEMU sees none.
///
/// # Errors
/// The guest does not, or QEMU still sees some; what was taken away is given back.
pub(super) fn take(agent: &Path, vmm: &mut Vmm) -> Result<(), Failed> {
    let taken = run(agent, TAKE, "take its VFs away").and_then(|()| {
        let begun = Instant::now();
        while !vmm.functions()?.is_empty() {
            if begun.elapsed() > PATIENCE {
                return Err(Failed::new("QEMU still sees VFs after the guest has taken them away"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    });
    taken.map_err(|failed| match give(agent) {
        Ok(()) => failed,
        Err(also) => Failed::new(format!("{failed}; {also}")),
    })
}

/// Gives a guest the VFs back that were taken away, if any.
///
/// # Errors
/// The guest does not.
pub(super) fn give(agent: &Path) -> Result<(), Failed> {
    run(agent, GIVE, "have its VFs back")
}

fn run(agent: &Path, script: &str, what: &str) -> Result<(), Failed> {
    let status = reach(agent)?.shell(script).map_err(|error| told(agent, error))?;
    match status {
        0 => Ok(()),
        status => Err(Failed::new(format!(
            "the guest could not {what} (status {status}); see its log, and /run/shunt-numvfs there"
        ))),
    }
}

fn told(agent: &Path, error: QmpError) -> Failed {
    let path = agent.display();
    Failed::new(match error {
        QmpError::NoServer { .. } => format!(
            "nobody listens at {path}; name the socket of QEMU's port org.qemu.guest_agent.0"
        ),
        QmpError::Late { .. } => {
            format!("the guest agent behind {path} does not answer; see that it runs in the guest")
        }
        error => printable(&format!("the guest agent behind {path}: {error}")),
    })
}

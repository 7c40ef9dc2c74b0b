//! Configuration that implements an advice.

use model::config::{Config, MAX_FILE_BYTES, default_run_dir};
use model::state::{Problem, Problems};
use plan::advise::Advice;
use plan::machine::{Machine, SOFT_VFS};
use plan::predict::PathKind;
use plan::workload::Workload;

/// A configuration for `shunt up`: each guest's adapter with the `iov_weight` that yields the
/// recommended path.
///
/// # Errors
/// The daemon would reject it: duplicate names, or a limit exceeded.
pub(super) fn configuration(
    machine: &Machine,
    workload: &Workload,
    advice: &Advice,
) -> Result<String, Problems> {
    let mut text = format!("# Recommended by `shunt plan` for {}.\n", machine.card());
    let total_vfs = advice.functions.min(SOFT_VFS);
    if total_vfs < advice.functions {
        let wanted = advice.functions;
        text += &format!(
            "# {wanted} VFs recommended, and the software NIC has {total_vfs}: the others use the switch.\n"
        );
    }
    text += &format!(
        "\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\ntotal_vfs = {total_vfs}\n\
         # uplink = \"xdp:eth1\" # the wire\n\n\
         [[switch]]\nname = \"sw0\"\nnic = \"nic0\"\niov = true\n",
    );
    let dir = default_run_dir();
    let dir = dir.display();
    let mut number = 0_u32;
    for (adapter, advised) in workload.adapters.iter().zip(&advice.adapters) {
        let weight = match advised.path {
            PathKind::Vf => 100,
            PathKind::Vhost => 0,
            PathKind::Virtio => {
                text +=
                    &format!("\n# {}: path virtio is the kernel's, not Shunt's\n", adapter.name);
                continue;
            }
        };
        for guest in 0..advised.guests {
            let name = match advised.guests {
                1 => adapter.name.clone(),
                _ => format!("{}-{guest}", adapter.name),
            };
            number += 1;
            let [_, high, middle, low] = number.to_be_bytes();
            text += &format!(
                "\n[[adapter]]\nname = \"{name}\"\nswitch = \"sw0\"\n\
                 mac = \"02:00:01:{high:02x}:{middle:02x}:{low:02x}\"\n\
                 attachment = {{ socket = \"{dir}/{name}.sock\" }}\niov_weight = {weight}\n",
            );
        }
    }
    if text.len() > MAX_FILE_BYTES {
        let message =
            format!("of {number} adapters needs more than the {MAX_FILE_BYTES} bytes of a file");
        return Err(Problem::new("--write", (), message, "plan for fewer guests").into());
    }
    match Config::parse("the configuration", &text) {
        Ok(_) => Ok(text),
        Err(problems) => Err(problems), // the daemon would reject it
    }
}

//! Configuration that implements an advice.

use model::config::{Config, MAX_FILE_BYTES, default_run_dir};
use model::state::{Problem, Problems};
use plan::advise::Advice;
use plan::machine::{Machine, SOFT_VFS};
use plan::predict::PlannedPath;
use plan::workload::Workload;

/// Configuration for `shunt up` and `shunt apply`: each guest's adapter with its recommended path.
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
    let (mut number, mut free_vfs) = (0_u32, total_vfs);
    for (adapter, advised) in workload.adapters.iter().zip(&advice.adapters) {
        if advised.path == PlannedPath::Kernel {
            text += &format!(
                "\n# {}: the kernel's tap and bridge, which Shunt does not set up\n",
                adapter.name
            );
            continue;
        }
        for guest in 0..advised.guests {
            // Without `path`, an adapter that gets no VF gets a queue of its own (`vmq`).
            let path = match advised.path {
                PlannedPath::Vf if free_vfs > 0 => {
                    free_vfs -= 1;
                    "path = \"vf\"\niov_weight = 100"
                }
                _ => "path = \"synthetic\"",
            };
            let name = match advised.guests {
                1 => adapter.name.clone(),
                _ => format!("{}-{guest}", adapter.name),
            };
            number += 1;
            let [_, high, middle, low] = number.to_be_bytes();
            text += &format!(
                "\n[[adapter]]\nname = \"{name}\"\nswitch = \"sw0\"\n\
                 mac = \"02:00:01:{high:02x}:{middle:02x}:{low:02x}\"\n\
                 attachment = {{ socket = \"{dir}/{name}.sock\" }}\n{path}\n",
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

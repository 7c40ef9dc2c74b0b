//! The configuration that carries an advice out.

use std::fmt::Write;

use control::config::default_run_dir;
use plan::advise::Advice;
use plan::machine::Machine;
use plan::predict::PathKind;
use plan::workload::Workload;

/// VFs that a software NIC has at most.
const VFS_MAX: u32 = 255;

/// A configuration for `shunt up`: each guest's adapter with the `iov_weight` that gives it the path advised.
pub(super) fn configuration(machine: &Machine, workload: &Workload, advice: &Advice) -> String {
    let mut text = format!("# What `shunt plan` advises for {}.\n", machine.nic.title);
    let total_vfs = advice.functions.min(VFS_MAX);
    if total_vfs < advice.functions {
        let wanted = advice.functions;
        text += &format!(
            "# It wants {wanted} VFs, and the software NIC has {total_vfs}: the others stay on the switch.\n"
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
        let guests = workload.services[adapter.service].guests.count;
        for guest in 0..guests {
            let name = if guests == 1 {
                adapter.name.clone()
            } else {
                format!("{}-{guest}", adapter.name)
            };
            number += 1;
            let [_, _, high, low] = number.to_be_bytes();
            let weight = if advised.path == PathKind::Vf { 100 } else { 0 };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n[[adapter]]\nname = \"{name}\"\nswitch = \"sw0\"\nmac = \"02:00:00:01:{high:02x}:{low:02x}\"\n\
                 attachment = {{ socket = \"{dir}/{name}.sock\" }}\niov_weight = {weight}\n",
            );
        }
    }
    text
}

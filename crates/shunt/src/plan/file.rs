//! The configuration that carries an advice out.

use std::fmt::Write;

use control::config::default_run_dir;
use plan::advise::Advice;
use plan::machine::Machine;
use plan::predict::PathKind;
use plan::workload::Workload;

/// A configuration for `shunt up`: each guest's adapter with the `iov_weight` that gives it the path advised.
pub(super) fn configuration(machine: &Machine, workload: &Workload, advice: &Advice) -> String {
    let mut text = format!(
        "# What `shunt plan` advises for {}.\n\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\ntotal_vfs = {}\n\n\
         [[switch]]\nname = \"sw0\"\nnic = \"nic0\"\niov = true\n",
        machine.nic.title,
        advice.functions.min(255),
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

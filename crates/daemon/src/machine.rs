//! Checks a configuration against this machine, without starting anything.

use host::cpu::{CpuList, online};
use model::config::Config;
use model::state::{Problem, Problems, Remedy};

/// Checks that the machine has the CPUs of the lanes.
///
/// # Errors
/// Each CPU that is not online.
pub fn check_machine(config: &Config) -> Result<(), Problems> {
    let online = online();
    let mut problems = Problems::default();
    for (at, cpu) in config.lanes.cpus.iter().enumerate() {
        if !online.contains(cpu) {
            let shown = CpuList(online.clone()).to_string();
            let remedy = Remedy::choose(format!("choose from {shown}"), shown);
            let path = format!("lanes.cpus[{at}]");
            problems.push(Problem::new(path, *cpu, "is no CPU of this machine", remedy));
        }
    }
    problems.or(()).map_err(|problems| problems.named(&serde_json::Value::Null))
}

//! Checks a configuration against this machine, without starting anything.

use api::run_dir::{self, check_writable};
use host::cpu::{CpuList, online};
use model::config::Config;
use model::state::{Problem, Problems, Remedy};

use super::limits::{self, Amounts};

/// Checks that the machine has the CPUs of the lanes, this process what the ports need, and that
/// this user can have the directories and the API's files; returns warnings, also of a daemon that
/// has `run_dir` now.
///
/// # Errors
/// Each CPU that is not online, each resource of which there is too little, and each directory or
/// file that a start could not use.
pub fn check_machine(config: &Config) -> Result<Vec<String>, Problems> {
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
    let state_dir = config.state_dir.as_deref().map(|dir| check_writable("state_dir", dir));
    let directories = [Some(run_dir::check(&config.run_dir)), state_dir];
    directories.into_iter().flatten().filter_map(Result::err).for_each(|one| problems.push(*one));
    if let Err(error) = api::Listen::check(config) {
        problems.push(Problem { path: "api".into(), ..Problem::of_error(error.as_ref()) });
    }
    let checked = limits::check(&config.state, config.lanes.count(), Amounts::allowed());
    let checked = match (problems.or(()), checked) {
        (Ok(()), checked) => checked,
        (Err(problems), Ok(_)) => Err(problems),
        (Err(problems), Err(others)) => Err(problems.and(others)),
    };
    let warnings = checked.map_err(|problems| problems.named(&config.state.to_document()))?;
    let mut warnings: Vec<_> = warnings.into_iter().map(|(_, warning)| warning).collect();
    if run_dir::is_claimed(&config.run_dir).is_ok_and(|is_claimed| is_claimed) {
        warnings.push(format!(
            "run_dir {} is in use by a running daemon; replace that with `shunt upgrade`, stop it, \
             or choose another run_dir",
            config.run_dir.display()
        ));
    }
    Ok(warnings)
}

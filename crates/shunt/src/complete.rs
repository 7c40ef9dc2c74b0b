//! Values that a shell completes: names of the running daemon, and the words of enumerations.
//!
//! `shunt completions SHELL` prints a script by which the shell runs this program for each
//! completion, with the words of the command line. A daemon that is not there completes nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use api::{Client, Method, daemons, stats};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter,
    SubcommandCandidates, ValueCompleter,
};
use clap_complete::env::CompleteEnv;
use model::config::socket_path;
use model::profile::Profile;
use model::state::{AttachmentKind, schema};
use plan::path::PlannedPath;
use report::experiment::SHIPPED;
use report::{PathKind, Pattern, RingKind};
use serde_json::Value;

use crate::explain;
use crate::flat::Fields;
use crate::run_dir::RunDirArg;

/// Variable with the name of the shell that asks.
pub(crate) const VARIABLE: &str = "SHUNT_COMPLETE";
/// Limit for the daemon's answer: the shell waits for the completion.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Answers a shell that asks for completions, and ends the process; returns otherwise.
pub(crate) fn answer(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Names of NICs.
pub(crate) fn nic() -> ArgValueCandidates {
    of_state(|state, _| names(&state["nic"]))
}

/// Names of switches.
pub(crate) fn switch() -> ArgValueCandidates {
    of_state(|state, _| names(&state["switch"]))
}

/// Names of adapters.
pub(crate) fn adapter() -> ArgValueCandidates {
    of_state(|state, _| names(&state["adapter"]))
}

/// Names of virtual PFs.
pub(crate) fn vpf() -> ArgValueCandidates {
    of_state(|state, _| names(&state["vpf"]))
}

/// Names of NICs of a migration's target.
pub(crate) fn target_nic() -> ArgValueCandidates {
    of_daemon(RunDirArg::target_of_words, |state, _| names(&state["nic"]))
}

/// Names of switches of a migration's target.
pub(crate) fn target_switch() -> ArgValueCandidates {
    of_daemon(RunDirArg::target_of_words, |state, _| names(&state["switch"]))
}

/// Names of adapters, each with the equals sign before a value.
pub(crate) fn adapter_value() -> ArgValueCandidates {
    of_state(|state, _| names(&state["adapter"]).iter().map(|name| format!("{name}=")).collect())
}

/// Ports of the switch that the command line names: its adapters, its tunnels, and the uplink.
pub(crate) fn switch_port() -> ArgValueCandidates {
    of_state(|state, words| {
        let is_named = |one: &&Value| words.iter().any(|word| one["name"] == **word);
        port_names(state, entries(&state["switch"]).find(is_named).unwrap_or(&Value::Null))
    })
}

/// Names of the ports of a switch, or for null those of all switches without their tunnels.
pub(crate) fn port_names(state: &Value, switch: &Value) -> Vec<String> {
    let on = |one: &&Value| switch.is_null() || one["switch"] == switch["name"];
    let adapters = entries(&state["adapter"]).filter(on).filter_map(name_of);
    adapters.chain(names(&switch["vxlan"])).chain(["uplink".to_owned()]).collect()
}

/// Names of tunnels of the switch that the command line names.
pub(crate) fn tunnel() -> ArgValueCandidates {
    of_state(|state, words| {
        let is_named = |one: &&Value| words.iter().any(|word| one["name"] == **word);
        let switch = entries(&state["switch"]).find(is_named);
        switch.map_or_else(Vec::new, |switch| names(&switch["vxlan"]))
    })
}

/// VF numbers of the NIC that the command line names, itself or by a switch or an adapter.
pub(crate) fn vf() -> ArgValueCandidates {
    of_state(|state, words| {
        let nic = words.iter().find_map(|word| nic_of(state, word));
        let vfs = nic.and_then(|nic| nic["total_vfs"].as_u64()).unwrap_or(0);
        (0..vfs).map(|vf| vf.to_string()).collect()
    })
}

/// Names of ports with counters, and their parts: `nic0/vf1`, `nic0` and `vf1`.
pub(crate) fn counted_port() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let stats = daemon().path().and_then(stats::read).unwrap_or_default();
        let mut parts = BTreeSet::new();
        for port in stats.ports {
            parts.extend(port.name.split('/').map(str::to_owned));
            parts.insert(port.name);
        }
        candidates(parts)
    })
}

/// Names of drop reasons, ring faults and reasons for a path.
pub(crate) fn reason() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(explain::names()))
}

/// Names of card profiles.
pub(crate) fn profile() -> ArgValueCandidates {
    words(Profile::names().iter().copied())
}

/// Paths of the lab.
pub(crate) fn path() -> ArgValueCandidates {
    words(PathKind::ALL.map(PathKind::as_str))
}

/// Paths of the lab through the daemon.
pub(crate) fn daemon_path() -> ArgValueCandidates {
    words(PathKind::OF_DAEMON.map(PathKind::as_str))
}

/// Rings of the lab's guests.
pub(crate) fn ring() -> ArgValueCandidates {
    words(RingKind::ALL.map(RingKind::as_str))
}

/// Experiments of files, beside the subcommands of the lab.
pub(crate) fn experiment() -> SubcommandCandidates {
    SubcommandCandidates::new(|| candidates(SHIPPED.map(|(name, _)| name)))
}

/// Programs to compare, or the bare loop.
pub(crate) fn program() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = PathCompleter::file().complete(current);
        if "bare".starts_with(&*current.to_string_lossy()) {
            found.extend(candidates(["bare"]));
        }
        found
    })
}

/// Paths of the planner.
pub(crate) fn planned_path() -> ArgValueCandidates {
    words(PlannedPath::ALL.map(PlannedPath::as_str))
}

/// Traffic patterns of the lab and of the planner.
pub(crate) fn pattern() -> ArgValueCandidates {
    words(Pattern::ALL.map(Pattern::as_str))
}

/// Kinds of attachments, each with the colon before the place.
pub(crate) fn attachment() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(AttachmentKind::ALL.map(|kind| format!("{kind}:"))))
}

/// Fields of attachments, each with the equals sign before a value.
pub(crate) fn attachment_field() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let fields = Fields::of("Attachment");
        candidates(fields.names().filter(|name| *name != "kind").map(|name| format!("{name}=")))
    })
}

/// Words of an enumeration of the document, by the name of its schema.
pub(crate) fn one_of(schema: &'static str) -> ArgValueCandidates {
    ArgValueCandidates::new(move || candidates(enumeration(schema)))
}

/// Words, separated by commas.
pub(crate) fn list_of(all: impl IntoIterator<Item = &'static str>) -> ArgValueCompleter {
    let all: Vec<&str> = all.into_iter().collect();
    ArgValueCompleter::new(move |current: &OsStr| {
        let current = current.to_str().unwrap_or_default();
        let (before, last) = current.rfind(',').map_or(("", current), |i| current.split_at(i + 1));
        let fitting = all.iter().filter(|word| word.starts_with(last));
        candidates(fitting.map(|word| format!("{before}{word}")))
    })
}

/// These words.
pub(crate) fn words(all: impl IntoIterator<Item = &'static str>) -> ArgValueCandidates {
    let all: Vec<&str> = all.into_iter().collect();
    ArgValueCandidates::new(move || candidates(all.iter().copied()))
}

/// Run directories of running daemons, or else any directory.
pub(crate) fn run_dir() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let running = daemons::running().into_iter().map(|daemon| daemon.run_dir);
        let typed = current.to_string_lossy();
        let running = running.filter(|dir| dir.to_string_lossy().starts_with(&*typed));
        let mut found = candidates(running);
        if found.is_empty() {
            found = PathCompleter::dir().complete(current);
        }
        found
    })
}

/// The daemon that the command line names.
fn daemon() -> RunDirArg {
    RunDirArg::of_words(&command_line())
}

/// Words of the command line to complete: those after the `--` of the shell's script.
fn command_line() -> Vec<String> {
    std::env::args().skip_while(|word| word != "--").skip(1).collect()
}

/// Candidates from the daemon's desired state, and the words of the command line.
fn of_state(of: fn(&Value, &[String]) -> Vec<String>) -> ArgValueCandidates {
    of_daemon(|words| Some(RunDirArg::of_words(words)), of)
}

/// Candidates from the desired state of the daemon that the words name.
fn of_daemon(
    daemon: fn(&[String]) -> Option<RunDirArg>,
    of: fn(&Value, &[String]) -> Vec<String>,
) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let words = command_line();
        let socket = daemon(&words).and_then(|daemon| Some(socket_path(daemon.path().ok()?)));
        let client = socket.map(|socket| Client::new(&socket).within(ANSWER_TIME));
        let reply = client.and_then(|it| it.send(Method::GET, "/v1/state", None, None).ok());
        reply.map_or_else(Vec::new, |reply| candidates(of(&reply.body, &words)))
    })
}

/// The NIC of this name, or that of a switch or an adapter of this name.
fn nic_of<'s>(state: &'s Value, name: &str) -> Option<&'s Value> {
    let find = |kind: &str, name: &str| entries(&state[kind]).find(|one| one["name"] == name);
    if let Some(nic) = find("nic", name) {
        return Some(nic);
    }
    let switch_of = |adapter: &'s Value| find("switch", adapter["switch"].as_str()?);
    let object = find("switch", name)
        .or_else(|| find("adapter", name).map(|one| switch_of(one).unwrap_or(one)))?;
    find("nic", object["nic"].as_str()?)
}

fn enumeration(name: &str) -> Vec<String> {
    let words = entries(&schema::schemas()[name]["enum"]);
    words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn names(list: &Value) -> Vec<String> {
    entries(list).filter_map(name_of).collect()
}

fn name_of(object: &Value) -> Option<String> {
    Some(object["name"].as_str()?.to_owned())
}

fn candidates<T: Into<std::ffi::OsString>>(
    all: impl IntoIterator<Item = T>,
) -> Vec<CompletionCandidate> {
    all.into_iter().map(|value| CompletionCandidate::new(value.into())).collect()
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::path::PathBuf;

    use clap::{Arg, CommandFactory};

    use super::*;
    use crate::Cli;

    /// Value names of free text: numbers, addresses, files, and what other programs name.
    const FREE: &[&str] = &[
        "A,B",
        "ADDRESS",
        "ADDRESSES",
        "BYTES",
        "COMMAND",
        "DEVICE",
        "EXPR",
        "FIGURE=VALUES",
        "FILE",
        "HEX",
        "ID",
        "IFACE",
        "LIST",
        "MAC",
        "MACS",
        "MBPS",
        "N",
        "PATH",
        "PCP",
        "PORT",
        "PPS",
        "RULE",
        "S",
        "SIZE",
        "TEXT",
        "URI",
        "VF=DEVICE",
        "VLANS",
        "VM",
        "W",
    ];
    /// Names that are new, and a network namespace.
    const NEW: [&str; 5] = [
        "nic create <NIC>",
        "switch create <SWITCH>",
        "adapter create <ADAPTER>",
        "adapter create <NAME> --netns",
        "adapter set <NAME> --netns",
    ];

    fn is_free(argument: &Arg, place: &str) -> bool {
        let numbers_and_paths = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<f64>(),
            TypeId::of::<Duration>(),
            TypeId::of::<PathBuf>(),
        ];
        let names = argument.get_value_names().unwrap_or_default();
        let of_type = argument.get_value_parser().type_id();
        numbers_and_paths.iter().any(|number| of_type == *number)
            || names.iter().all(|name| FREE.contains(&&**name))
            || NEW.contains(&place)
    }

    /// Adds the arguments below a command that take a name or a word, and complete none.
    fn incomplete(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for argument in command.get_arguments().filter(|one| one.get_action().takes_values()) {
            let is_completed = argument.get::<ArgValueCandidates>().is_some()
                || argument.get::<ArgValueCompleter>().is_some()
                || !argument.get_possible_values().is_empty();
            let names = argument.get_value_names().unwrap_or_default().join(" ");
            let option = argument.get_long().map_or_else(String::new, |long| format!(" --{long}"));
            let place = format!("{path}<{names}>{option}");
            if !is_completed && !is_free(argument, &place) {
                found.push(place);
            }
        }
        for below in command.get_subcommands() {
            incomplete(below, &format!("{path}{} ", below.get_name()), found);
        }
    }

    #[test]
    fn each_argument_for_a_name_or_a_word_of_an_enumeration_is_completed() {
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        incomplete(&command, "", &mut found);
        assert!(found.is_empty(), "no completion, and not known to be free: {found:#?}");
        let mode = Arg::new("mode").long("mode").value_name("MODE");
        incomplete(&clap::Command::new("one").arg(mode), "one ", &mut found);
        assert_eq!(found, ["one <MODE> --mode"], "an argument without completion is missed");
    }
}

//! `shunt plan --what-if`: the same query for each value of a parameter.

use std::ops::RangeInclusive;

use model::state::{Problem, Problems, Remedy};
use plan::CORES;
use plan::advise::{Advice, advise};
use plan::frames::FrameMix;
use plan::machine::{Machine, Nic};
use plan::predict::PlannedPath;
use plan::workload::Workload;
use serde_json::json;

use crate::text::table;

/// Maximum values of a query.
const VALUES_MAX: usize = 64;

/// Option of these queries.
const OPTION: &str = "--what-if";

/// Parameters.
const FIGURES: [&str; 9] =
    ["nic", "cores", "guest-cores", "ghz", "vfs", "lanes", "line", "guests", "frame"];

/// Runs the query for each value.
pub(super) fn sweep(
    machine: &Machine,
    workload: &Workload,
    what: &str,
    is_json: bool,
) -> Result<String, Problems> {
    let wrong = |remedy: &str| Problem::new(OPTION, what, "is not allowed", remedy);
    let (figure, values) =
        what.split_once('=').ok_or_else(|| wrong("write PARAMETER=VALUES, such as cores=1..8"))?;
    let values =
        values_of(values).ok_or_else(|| wrong("write at most 64 values, such as 1..8 or 1,2,4"))?;
    let mut asked = Vec::new();
    for value in values {
        let (mut machine, mut workload) = (machine.clone(), workload.clone());
        let given = format!("{figure}={value}");
        let in_option = |problems| of_option(problems, &given);
        set(&mut machine, &mut workload, figure, &value).map_err(in_option)?;
        let advice = advise(&machine, &workload).map_err(not_possible).map_err(in_option)?;
        asked.push((value, advice));
    }
    Ok(match is_json {
        true => format!("{:#}\n", object(figure, &asked)),
        false => people(figure, &asked),
    })
}

/// Mistakes in one value of the option; those in a profile stay with their file.
fn of_option(mut problems: Problems, given: &str) -> Problems {
    let is_ours = |problem: &&mut Problem| problem.object.is_empty() && problem.file.is_empty();
    for problem in problems.problems.iter_mut().filter(is_ours) {
        let Problem { message, allowed, remedy, .. } = std::mem::take(problem);
        *problem = Problem::new(OPTION, given, message, Remedy::choose(remedy, allowed));
    }
    problems
}

/// Contradictions between a value and the workload, whose fields the messages then name.
fn not_possible(mut problems: Problems) -> Problems {
    for problem in &mut problems.problems {
        problem.message = format!("is not possible: {} {}", problem.field, problem.message);
    }
    problems
}

fn values_of(text: &str) -> Option<Vec<String>> {
    let values: Vec<String> = match text.split_once("..") {
        Some((first, last)) => {
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first..=last).take(VALUES_MAX + 1).map(|value| value.to_string()).collect()
        }
        None => text.split(',').map(|value| value.trim().to_owned()).collect(),
    };
    ((1..=VALUES_MAX).contains(&values.len())).then_some(values)
}

/// Sets a parameter of the machine or the workload; the error says why it is invalid.
fn set(
    machine: &mut Machine,
    workload: &mut Workload,
    figure: &str,
    value: &str,
) -> Result<(), Problems> {
    if machine.host.soft_nic.is_some() && ["nic", "vfs", "lanes", "line"].contains(&figure) {
        let message = "is a figure of a card, and path vf of this host is the software NIC";
        return Err(Problem::new(figure, (), message, "choose another --host").into());
    }
    if figure == "nic" {
        machine.nic = Nic::named(value)?;
        return Ok(());
    }
    let wrong = |message: &str, remedy: &str| Problem::new(figure, value, message, remedy);
    let number: f64 =
        value.parse().map_err(|_| wrong("is no number", "write numbers, such as 1..8 or 1,2,4"))?;
    let within = |range: RangeInclusive<f64>| match range.contains(&number) {
        true => Ok(number),
        false => {
            let problem = Problem::out_of_range(figure, number, range.start(), range.end());
            Err(Problems::from(problem))
        }
    };
    let whole = |range| match within(range)?.fract() == 0.0 {
        true => Ok(number as u32),
        false => Err(Problems::from(wrong("is not allowed", "write a whole number"))),
    };
    match figure {
        "cores" => machine.host.switch_cores.value = within(CORES)?,
        "guest-cores" => machine.host.guest_cores.value = within(CORES)?,
        "ghz" => machine.host.ghz.value = within(0.1..=100.0)?,
        "line" => machine.nic.wire.line_gbps.value = within(0.01..=10_000.0)?,
        "vfs" => machine.nic.vfs = whole(0.0..=65535.0)?,
        "lanes" => match whole(1.0..=16.0)? {
            lanes if lanes.is_power_of_two() => machine.nic.link.lanes = lanes as u8,
            _ => return Err(wrong("is not allowed", "write 1, 2, 4, 8 or 16 lanes").into()),
        },
        "guests" => {
            let count = whole(1.0..=4096.0)?;
            workload.services.iter_mut().for_each(|service| service.guests.count = count);
        }
        "frame" => {
            let frames = FrameMix::of(whole(64.0..=9018.0)?)?;
            workload.flows.iter_mut().for_each(|flow| flow.frames = frames.clone());
        }
        _ => return Err(Problem::not_one_of("", figure, "is no parameter", FIGURES).into()),
    }
    Ok(())
}

/// Names of the adapters on a path.
fn on(advice: &Advice, path: PlannedPath) -> Vec<&str> {
    let its = advice.adapters.iter().filter(|adapter| adapter.path == path);
    its.map(|adapter| adapter.name.as_str()).collect()
}

fn object(figure: &str, asked: &[(String, Advice)]) -> serde_json::Value {
    let one = |(value, advice): &(String, Advice)| {
        let number = value.parse::<f64>().ok();
        json!({
            "value": number.map_or_else(|| json!(value), |number| json!(number)), "scale": advice.scale, "binding_limit": advice.binding,
            "vfs": advice.functions, "vf": on(advice, PlannedPath::Vf),
        })
    };
    json!({"figure": figure, "list": asked.iter().map(one).collect::<Vec<_>>()})
}

fn people(figure: &str, asked: &[(String, Advice)]) -> String {
    let row = |(value, advice): &(String, Advice)| {
        let names = on(advice, PlannedPath::Vf);
        [
            value.clone(),
            format!("{:.2}", advice.scale),
            advice.binding.to_string(),
            advice.functions.to_string(),
            if names.is_empty() { "-".to_owned() } else { names.join(", ") },
        ]
    };
    let figure = figure.to_uppercase();
    table([&figure, "TIMES", "BOTTLENECK", "VFS", "ON PATH vf"], asked.iter().map(row).collect())
}

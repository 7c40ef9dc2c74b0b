//! `shunt plan --what-if`: the same question for each value of a figure.

use plan::advise::{Advice, advise};
use plan::frames::Frames;
use plan::machine::Machine;
use plan::predict::PathKind;
use plan::workload::Workload;
use serde_json::json;

use crate::text::table;

/// Values that one question may have.
const VALUES_MAX: usize = 64;

const FIGURES: &str = "cores, guest-cores, ghz, vfs, lanes, line, guests and frame are possible";

/// Asks for each value.
pub(super) fn sweep(
    machine: &Machine,
    workload: &Workload,
    what: &str,
    is_json: bool,
) -> Result<String, String> {
    let wrong = |why: &str| format!("--what-if {what}: {why}");
    let (figure, values) =
        what.split_once('=').ok_or_else(|| wrong("give FIGURE=VALUES, as cores=1..8"))?;
    let mut asked = Vec::new();
    for value in
        values_of(values).ok_or_else(|| wrong("values are as 1..8 or 1,2,4, at most 64"))?
    {
        let (mut machine, mut workload) = (machine.clone(), workload.clone());
        set(&mut machine, &mut workload, figure, value).map_err(wrong)?;
        asked
            .push((value, advise(&machine, &workload).map_err(|error| wrong(&error.to_string()))?));
    }
    Ok(match is_json {
        true => format!("{:#}\n", object(figure, &asked)),
        false => people(figure, &asked),
    })
}

fn values_of(text: &str) -> Option<Vec<f64>> {
    let values: Vec<f64> = match text.split_once("..") {
        Some((first, last)) => {
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first..=last).take(VALUES_MAX + 1).map(f64::from).collect()
        }
        None => text.split(',').map(|value| value.trim().parse().ok()).collect::<Option<_>>()?,
    };
    let is_some = !values.is_empty() && values.len() <= VALUES_MAX;
    (is_some && values.iter().all(|value| *value > 0.0 && *value <= 1e6)).then_some(values)
}

fn set(
    machine: &mut Machine,
    workload: &mut Workload,
    figure: &str,
    value: f64,
) -> Result<(), &'static str> {
    match figure {
        "cores" => machine.host.switch_cores.value = value,
        "guest-cores" => machine.host.guest_cores.value = value,
        "ghz" => machine.host.ghz.value = value,
        "line" => machine.nic.wire.line_gbps.value = value,
        "vfs" => machine.nic.vfs = value as u32,
        "lanes" => {
            machine.nic.link.lanes = value as u8;
            if !(machine.nic.link.lanes.is_power_of_two() && value <= 16.0) {
                return Err("a link has 1, 2, 4, 8 or 16 lanes");
            }
        }
        "guests" => {
            if !(1.0..=4096.0).contains(&value) {
                return Err("1 to 4096 guests are possible");
            }
            for service in &mut workload.services {
                service.guests.count = value as u32;
            }
        }
        "frame" => {
            let frames = Frames::of(value as u32).map_err(|_| "frames are 64 to 9018 bytes")?;
            for flow in &mut workload.flows {
                flow.frames = frames.clone();
            }
        }
        _ => return Err(FIGURES),
    }
    Ok(())
}

/// Adapters on a path, by their names.
fn on(advice: &Advice, path: PathKind) -> Vec<&str> {
    let its = advice.adapters.iter().filter(|adapter| adapter.path == path);
    its.map(|adapter| adapter.name.as_str()).collect()
}

fn object(figure: &str, asked: &[(f64, Advice)]) -> serde_json::Value {
    let one = |(value, advice): &(f64, Advice)| {
        json!({
            "value": value, "scale": advice.scale, "binding_limit": advice.binding,
            "vfs": advice.functions, "vf": on(advice, PathKind::Vf),
        })
    };
    json!({"figure": figure, "list": asked.iter().map(one).collect::<Vec<_>>()})
}

fn people(figure: &str, asked: &[(f64, Advice)]) -> String {
    let row = |(value, advice): &(f64, Advice)| {
        let names = on(advice, PathKind::Vf);
        [
            value.to_string(),
            format!("{:.2}", advice.scale),
            advice.binding.to_string(),
            advice.functions.to_string(),
            if names.is_empty() { "-".to_owned() } else { names.join(", ") },
        ]
    };
    let figure = figure.to_uppercase();
    table([&figure, "TIMES", "HELD BY", "VFS", "ON PATH vf"], asked.iter().map(row).collect())
}

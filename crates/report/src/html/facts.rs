//! Method of measurement, and facts of the machine.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::results::{Pinned, Results};
use super::super::svg::escape;
use super::super::view::TrafficView;
use super::tables;

/// Definition of every value, in the words of the model's documentation.
const MEANINGS: [(&str, &str); 6] = [
    (
        "Mpps, Gbps",
        "Million frames and gigabits a second that the guests send, summed over them. A frame's size includes its \
         4-byte FCS, as papers count it; Gbps do not.",
    ),
    (
        "Cycles per frame",
        "Time-stamp cycles of the switch's lanes in polls that found frames, divided by delivered \
         frames. Idle polls do not count; what other processes took of the CPU in between does.",
    ),
    (
        "CPU",
        "Cores in use, from the time the kernel accounts to each layer. Busy is the share of a polling thread's cycles that \
         moved frames.",
    ),
    (
        "Self-test",
        "What the generator did with a sink that takes every frame at once, just before the \
         point. A point may exceed it by what the CPUs' speed and distance changed since; from 90 % \
         of it the generator is called the limit.",
    ),
    (
        "Limited by",
        "Who kept the point from going faster. Where that is the generator, rates are lower bounds (>) and say nothing more \
         about the switch.",
    ),
    ("Lost frames", "Frames sent in the measured time that never came back."),
];

/// Definitions for socket traffic.
const TRANSFERS: [(&str, &str); 4] = [
    (
        "Sockets",
        "Real kernels' TCP/IP: each guest is a network namespace with an eth0, MTU 1500, checksums and segmentation \
         offloaded, whose frames the path carries. Gbps are payload that the receiving program read between warm-up and \
         cool-down; median of the rounds.",
    ),
    (
        "Limit",
        "What the same two programs do over the loopback of one kernel, with nothing between them, in this run; in bulk with \
         one of them on the carrier's CPU. A path that comes within 10 % of it was not measured out: its figure is a lower \
         bound (>).",
    ),
    (
        "CPU of sockets",
        "The ends are the programs and what their kernels do for them. A guest's kernel receives in the context of what \
         writes to its tap, so that part is accounted to the carrier: the daemon, or on the path virtio the relays that \
         copy between a guest's tap and the bridge as a VMM does.",
    ),
    (
        "Soft interrupts",
        "Of the whole machine, from /proc/stat, and contained in the others where the kernel does not tell them apart.",
    ),
];

/// Definitions for file copies.
const COPIES: [(&str, &str); 3] = [
    (
        "File copies",
        "Real kernels' TCP/IP: the server and each guest are a network namespace with an eth0, MTU \
         1500, checksums and segmentation offloaded. One daemon has all taps: the uplink is the \
         server's. All copies start at once; each guest checks length and checksum of what it \
         received.",
    ),
    (
        "CPU by layer",
        "Guest and server are a program and what its kernel does in its context. The daemon is NIC \
         and switch; a pinned lane polls, so what counts is its busy cycles. A guest's kernel \
         receives in the context of what writes to its tap, so that part is the daemon's, in the \
         kernel.",
    ),
    (
        "Work of the lane",
        "Its busy time-stamp cycles divided by KiB that guests received, system calls included. \
         The difference of both paths, one guest alone, is the switch's part.",
    ),
];

/// Method, the generator's tables, and the command that repeats the run.
pub(super) fn measured(results: &Results) -> String {
    let about_points = MEANINGS.iter().filter(|_| !results.points.is_empty());
    let about_transfers = TRANSFERS.iter().filter(|_| !results.transfers.is_empty());
    let about_copies = COPIES.iter().filter(|_| !results.copies.is_empty());
    let meanings: String = about_points
        .chain(about_transfers)
        .chain(about_copies)
        .map(|(word, text)| format!("<dt>{word}</dt><dd>{}</dd>\n", escape(text)))
        .collect();
    let generator: String =
        TrafficView::each(&results.points).iter().map(tables::generator).collect();
    let heading = "<h3>The generator: what it could do, did, and got back</h3>\n";
    let heading = if generator.is_empty() { "" } else { heading };
    format!(
        "<section>\n<h2>How it was measured</h2>\n<pre><code>{}</code></pre>\n<dl>\n{meanings}{}</dl>\n\
         {heading}{generator}</section>\n",
        escape(&results.command),
        pinning(results),
    )
}

/// CPUs of the threads, if any point has them.
fn pinning(results: &Results) -> String {
    let cpus = |cpus: &[usize]| match cpus {
        [] => "not pinned".to_owned(),
        cpus => {
            let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
            format!("{noun} {}", cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    let text = |pinned: &Pinned| {
        let Pinned { switch, guests, generator } = pinned;
        format!("switch {}, guests {}, generator {}", cpus(switch), cpus(guests), cpus(generator))
    };
    let ways: BTreeSet<String> = results
        .points
        .iter()
        .map(|point| &point.pinned)
        .chain(results.transfers.iter().map(|transfer| &transfer.pinned))
        .chain(results.copies.iter().map(|copy| &copy.pinned))
        .map(text)
        .collect();
    if ways.is_empty() {
        return String::new();
    }
    let ways = ways.into_iter().collect::<Vec<_>>().join("; or ");
    format!("<dt>Threads</dt><dd>{}.</dd>\n", escape(&ways))
}

/// The machine's facts as a list, and the run's own.
pub(super) fn machine(results: &Results) -> String {
    let mut facts = Vec::new();
    flatten("", &results.machine, &mut facts);
    let items: String = facts
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)))
        .collect();
    if items.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>Machine</h2>\n<dl class=\"facts\">\n{items}</dl>\n</section>\n")
}

/// Names and values of all leaves; unknown ones (`null`) are left out.
fn flatten(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('_', " ");
                let name = if name.is_empty() { field } else { format!("{name} {field}") };
                flatten(&name, value, facts);
            }
        }
        Value::Array(values) => {
            let texts: Vec<String> = values.iter().map(plain).collect();
            facts.push((name.to_owned(), texts.join(", ")));
        }
        leaf => facts.push((name.to_owned(), plain(leaf))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

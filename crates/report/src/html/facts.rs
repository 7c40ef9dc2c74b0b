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
        "Million frames and gigabits per second that the guests send, summed over guests. Frame \
         sizes include the 4-byte FCS, as papers count it; Gbps do not.",
    ),
    (
        "Cycles per frame",
        "Time-stamp cycles of the switch's lanes in polls that found frames, divided by \
         delivered frames. Idle polls do not count; CPU time taken by other processes during a \
         poll does.",
    ),
    (
        "CPU",
        "Cores in use, from the kernel's CPU accounting of each layer. Busy is the share of a \
         polling thread's cycles that moved frames.",
    ),
    (
        "Self-test",
        "Rate of the generator into an instant sink, just before the point. A point may exceed \
         it if the CPUs' speed or distance changed since. From 90 % of it the generator counts \
         as the bottleneck.",
    ),
    (
        "Limited by",
        "Bottleneck of the point. If it is the generator, rates are lower bounds (>) for the \
         switch.",
    ),
    ("Lost frames", "Frames sent in the measured time that did not return."),
];

/// Definitions for socket traffic.
const TRANSFERS: [(&str, &str); 4] = [
    (
        "Sockets",
        "TCP/IP of Linux: each guest is a network namespace with an eth0, MTU 1500, checksum and \
         segmentation offload; the path carries its frames. Gbps are payload read by the \
         receiving program between warm-up and cool-down, median of the rounds.",
    ),
    (
        "Limit",
        "Result of the same two programs over one kernel's loopback in this run; for bulk \
         traffic with one of them on the carrier's CPU. For a path within 10 % of it, the \
         programs are the bottleneck and the result is a lower bound (>).",
    ),
    (
        "CPU of sockets",
        "The ends are the programs with their kernel time. A guest's kernel receives in the \
         context of the writer to its tap, so that part counts for the carrier. The carrier is \
         the daemon, or on the path virtio the relays that copy between a guest's tap and the \
         bridge, as a VMM does.",
    ),
    (
        "Soft interrupts",
        "Of the whole machine, from /proc/stat; also part of the other values if the kernel does not account for them separately.",
    ),
];

/// Definitions for file copies.
const COPIES: [(&str, &str); 3] = [
    (
        "File copies",
        "TCP/IP of Linux: the server and each guest are a network namespace with an eth0, MTU \
         1500, checksum and segmentation offload. One daemon serves all taps; the uplink is the \
         server's. All copies start at once; each guest checks length and checksum.",
    ),
    (
        "CPU by layer",
        "Guest and server are a program with its kernel time. The daemon is NIC and switch; a \
         pinned lane polls, so only its busy cycles count. A guest's kernel receives in the \
         context of the writer to its tap: the daemon, in the kernel.",
    ),
    (
        "Work of the lane",
        "Busy time-stamp cycles of the lane for each KiB that guests received, including system \
         calls. The difference of both paths, for a single guest, is the switch's part.",
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
    let heading = "<h3>Generator: capability, offered load, returned frames</h3>\n";
    let heading = if generator.is_empty() { "" } else { heading };
    format!(
        "<section>\n<h2>Method</h2>\n<pre><code>{}</code></pre>\n<dl>\n{meanings}{}</dl>\n\
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

//! The points as CSV: one line each, fields named as in JSON, nested ones by their path.
//!
//! Format: RFC 4180 with `\n` as line end. What JSON writes as `null` is an empty field. Lists stand in one field:
//! guests as `guest:rx_mpps:tx_mpps` and drops as `reason:count`, CPUs as numbers, each separated by spaces.

use super::model::{Guest, Point};

/// A column: its name, and its text for a point.
type Column = (&'static str, fn(&Point) -> String);

const COLUMNS: &[Column] = &[
    ("pattern", |p| p.pattern.to_string()),
    ("path", |p| p.path.to_string()),
    ("vms", |p| p.vms.to_string()),
    ("frame_bytes", |p| p.frame_bytes.to_string()),
    ("seconds", |p| p.seconds.to_string()),
    ("mpps", |p| p.mpps.to_string()),
    ("gbps", |p| p.gbps.to_string()),
    ("rx_mpps", |p| p.rx_mpps.to_string()),
    ("returned_mpps", |p| p.returned_mpps.to_string()),
    ("offered_mpps", |p| p.offered_mpps.to_string()),
    ("lost_frames", |p| p.lost_frames.to_string()),
    ("switch_cycles_per_frame", |p| optional(p.switch_cycles_per_frame)),
    ("generator_limit_mpps", |p| p.generator_limit_mpps.to_string()),
    ("bottleneck", |p| p.bottleneck.to_string()),
    ("cpu.switch_busy_share", |p| p.cpu.switch_busy_share.to_string()),
    ("cpu.switch_user_cores", |p| p.cpu.switch_user_cores.to_string()),
    ("cpu.switch_system_cores", |p| p.cpu.switch_system_cores.to_string()),
    ("cpu.guests_user_cores", |p| p.cpu.guests_user_cores.to_string()),
    ("cpu.guests_system_cores", |p| p.cpu.guests_system_cores.to_string()),
    ("cpu.generator_share", |p| p.cpu.generator_share.to_string()),
    ("cpu.generator_user_cores", |p| p.cpu.generator_user_cores.to_string()),
    ("cpu.generator_system_cores", |p| p.cpu.generator_system_cores.to_string()),
    ("guests", |p| joined(p.guests.iter().map(guest))),
    ("drops", |p| joined(p.drops.iter().map(|(reason, frames)| format!("{reason}:{frames}")))),
    ("pinned.switch", |p| joined(p.pinned.switch.iter().map(usize::to_string))),
    ("pinned.guests", |p| joined(p.pinned.guests.iter().map(usize::to_string))),
    ("pinned.generator", |p| joined(p.pinned.generator.iter().map(usize::to_string))),
    ("burst_mean", |p| optional(p.burst_mean)),
];

/// The header line and a line per point.
pub fn text(points: &[Point]) -> String {
    let mut text = line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    for point in points {
        text.push_str(&line(COLUMNS.iter().map(|(_, field)| field(point))));
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = fields.map(|field| quote(&field)).collect();
    quoted.join(",") + "\n"
}

/// Quotes a field where it must be: a reason may be any text.
fn quote(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn guest(guest: &Guest) -> String {
    format!("{}:{}:{}", guest.guest, guest.rx_mpps, guest.tx_mpps)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

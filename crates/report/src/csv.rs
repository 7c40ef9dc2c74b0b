//! Points, transfers, received frames and guests of file copies as CSV: one line each, fields named
//! as in JSON, nested ones by their path.
//!
//! Format: RFC 4180 with `\n` as line end. JSON's `null` is an empty field. A list is one field
//! with spaces between its items: guests as `guest:rx_mpps:tx_mpps`, drops as `reason:count`, CPUs
//! as numbers.

use super::copy::{COPY_SPREADS, CopyGuest, GUEST_SPREADS, SpreadNames};
use super::receive::ReceivePath;
use super::results::{FileCopy, GuestRates, Point, Receive, Transfer};
use super::stages::Stages;
use super::transfer::Spread;

/// Name, and cell text of a point.
type PointColumn = (&'static str, fn(&Point) -> String);

const COLUMNS: &[PointColumn] = &[
    ("pattern", |p| p.pattern.to_string()),
    ("path", |p| p.path.to_string()),
    ("vms", |p| p.vms.to_string()),
    ("frame_bytes", |p| p.frame_bytes.to_string()),
    ("seconds", |p| p.seconds.to_string()),
    ("load", |p| p.load.to_string()),
    ("ring", |p| p.ring.to_string()),
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
    ("round_trip_cycles", |p| optional(p.round_trip_cycles)),
    ("others_share", |p| optional(p.others_share)),
];

/// The header line and a line per point.
pub fn text(points: &[Point]) -> String {
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    let stages = Stages::PARTS.iter().chain(&["sampled_bursts"]);
    let mut text = line(names.chain(stages.map(|name| format!("stages.{name}"))));
    for point in points {
        let fields = COLUMNS.iter().map(|(_, field)| field(point));
        text.push_str(&line(fields.chain(stages_of(point))));
    }
    text
}

/// Fields of a point's stages, in the order of the header.
fn stages_of(point: &Point) -> Vec<String> {
    let Some(stages) = &point.stages else {
        return vec![String::new(); Stages::PARTS.len() + 1];
    };
    let cycles = stages.cycles().map(|cycles| cycles.to_string());
    cycles.into_iter().chain([stages.sampled_bursts.to_string()]).collect()
}

/// A column of transfers.
type TransferColumn = (&'static str, fn(&Transfer) -> String);

const TRANSFER_COLUMNS: &[TransferColumn] = &[
    ("experiment", |t| t.experiment.to_string()),
    ("workload", |t| t.workload.to_string()),
    ("pattern", |t| t.pattern.to_string()),
    ("path", |t| t.path.to_string()),
    ("streams", |t| t.streams.to_string()),
    ("send_bytes", |t| t.send_bytes.to_string()),
    ("buffer_kib", |t| t.buffer_kib.map_or(String::new(), |kib| kib.to_string())),
    ("granted_kib", |t| t.granted_kib.map_or(String::new(), |kib| kib.to_string())),
    ("rounds", |t| t.rounds.to_string()),
    ("bottleneck", |t| t.bottleneck.to_string()),
    ("pinned.switch", |t| joined(t.pinned.switch.iter().map(usize::to_string))),
    ("pinned.guests", |t| joined(t.pinned.guests.iter().map(usize::to_string))),
    ("pinned.generator", |t| joined(t.pinned.generator.iter().map(usize::to_string))),
];

/// Optional numbers of a transfer, in the order of their columns.
const TRANSFER_NUMBERS: [&str; 19] = [
    "seconds",
    "gbps",
    "gbps_least",
    "gbps_most",
    "lost_share",
    "round_trip.p50_us",
    "round_trip.p99_us",
    "round_trip.p999_us",
    "round_trip.max_us",
    "round_trip.per_s",
    "limit",
    "cpu.guest_user_cores",
    "cpu.guest_system_cores",
    "cpu.far_user_cores",
    "cpu.far_system_cores",
    "cpu.carrier_user_cores",
    "cpu.carrier_system_cores",
    "cpu.carrier_busy_share",
    "cpu.softirq_cores",
];

/// The header line and a line per transfer; absent fields are empty.
pub fn transfers(transfers: &[Transfer]) -> String {
    let names = TRANSFER_COLUMNS.iter().map(|(name, _)| *name).chain(TRANSFER_NUMBERS);
    let mut text = line(names.map(str::to_owned));
    for transfer in transfers {
        let numbers = transfer.numbers();
        let number = |name: &str| {
            let found = numbers.iter().find(|(known, _)| *known == name);
            optional(found.map(|(_, value)| *value))
        };
        let words = TRANSFER_COLUMNS.iter().map(|(_, field)| field(transfer));
        text.push_str(&line(words.chain(TRANSFER_NUMBERS.map(number))));
    }
    text
}

/// Name, and cell text of a guest of a file copy.
type CopyColumn = (&'static str, fn(&FileCopy, &CopyGuest) -> String);

const COPY_COLUMNS: &[CopyColumn] = &[
    ("setup", |copy, _| copy.setup.to_string()),
    ("file_mib", |copy, _| copy.file_mib.to_string()),
    ("checksum", |copy, _| copy.checksum.clone()),
    ("rounds", |copy, _| copy.rounds.to_string()),
    ("pinned.switch", |copy, _| joined(copy.pinned.switch.iter().map(usize::to_string))),
    ("pinned.guests", |copy, _| joined(copy.pinned.guests.iter().map(usize::to_string))),
    ("pinned.generator", |copy, _| joined(copy.pinned.generator.iter().map(usize::to_string))),
    ("guest.path", |_, guest| guest.path.to_string()),
    ("guest.bytes", |_, guest| guest.bytes.to_string()),
    ("guest.checksum", |_, guest| guest.checksum.clone()),
];

/// The header line and a line per guest; values of the shared layers repeat on each guest's line.
pub fn copies(copies: &[FileCopy]) -> String {
    let of_guests = GUEST_SPREADS.iter().flat_map(|(names, _)| names);
    let of_copies = COPY_SPREADS.iter().flat_map(|(names, _)| names);
    let names = COPY_COLUMNS.iter().map(|(name, _)| name).chain(of_guests).chain(of_copies);
    let mut text = line(names.map(|name| (*name).to_owned()));
    for copy in copies {
        for guest in &copy.guests {
            let words = COPY_COLUMNS.iter().map(|(_, field)| field(copy, guest));
            let of_guest = GUEST_SPREADS.iter().flat_map(|(_, of)| of(guest));
            let of_copy = COPY_SPREADS.iter().flat_map(|(_, of)| of(copy));
            let numbers = of_guest.chain(of_copy).map(|number| number.to_string());
            text.push_str(&line(words.chain(numbers)));
        }
    }
    text
}

/// A field of a receive path with a spread.
type ReceiveSpread = (SpreadNames, fn(&ReceivePath) -> Spread);

/// All spreads of a receive path.
const RECEIVE_SPREADS: [ReceiveSpread; 3] = [
    (["mpps_least", "mpps", "mpps_most"], |side| side.mpps),
    (["gbps_least", "gbps", "gbps_most"], |side| side.gbps),
    (
        [
            "switch_cycles_per_frame_least",
            "switch_cycles_per_frame",
            "switch_cycles_per_frame_most",
        ],
        |side| side.switch_cycles_per_frame,
    ),
];

/// The header line and a line for each path of received frames.
pub fn receives(receives: &[Receive]) -> String {
    let words = ["frame_bytes", "guests", "rounds", "path", "lost_share"].into_iter();
    let names = words.chain(RECEIVE_SPREADS.iter().flat_map(|(names, _)| *names));
    let mut text = line(names.map(str::to_owned));
    for receive in receives {
        for (path, side) in receive.sides() {
            let Receive { frame_bytes, guests, rounds, .. } = receive;
            let place = [frame_bytes.to_string(), guests.to_string(), rounds.to_string()];
            let numbers = RECEIVE_SPREADS.iter().flat_map(|(_, of)| of(&side));
            let lost = [path.to_owned(), side.lost_share.to_string()];
            let numbers = numbers.map(|number| number.to_string());
            text.push_str(&line(place.into_iter().chain(lost).chain(numbers)));
        }
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = fields.map(|field| quote(&field)).collect();
    quoted.join(",") + "\n"
}

/// Quotes a field if needed; a drop reason may be any text.
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

fn guest(guest: &GuestRates) -> String {
    format!("{}:{}:{}", guest.guest, guest.rx_mpps, guest.tx_mpps)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

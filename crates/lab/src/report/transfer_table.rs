//! The transfers as tables for the terminal: one per experiment, at most 80 columns wide.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use super::figure::{NONE, percent, three, whole};
use super::names::Workload;
use super::transfer::Transfer;

/// The columns with words, which are read from the left.
const WORDS: [&str; 4] = ["streams", "traffic", "path", "limit"];

const LEGEND: &str = "\
streams: how many, the size of a write, and socket buffers where two kinds were
measured; Gbps: payload read by the receiver, the median of the rounds;
loopback: what the two programs do with nothing between them; ends, carrier:
cores of the guest and the other end, and of what carries their frames (the
daemon, or the relays of virtio); paper: what it published, on another machine;
limit: who kept it slow";
const LEGEND_BOUND: &str = "
> lower bound: the programs were the limit, so the path was not measured out";

/// Transfers of one experiment: in the order of first appearance, paths of one traffic together.
pub(super) fn ordered<'a>(all: &'a [Transfer], experiment: &str) -> Vec<&'a Transfer> {
    let of = || all.iter().filter(|transfer| transfer.experiment == experiment);
    let mut places: Vec<String> = Vec::new();
    for what in of().map(Transfer::what) {
        if !places.contains(&what) {
            places.push(what);
        }
    }
    let place = |transfer: &Transfer| places.iter().position(|what| *what == transfer.what());
    let mut ordered: Vec<&Transfer> = of().collect();
    ordered.sort_by_key(|transfer| (place(transfer), transfer.path));
    ordered
}

/// Names of the experiments, in the order of first appearance.
pub(super) fn experiments(all: &[Transfer]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in all.iter().map(|transfer| transfer.experiment.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A transfer's rate, as a lower bound where it is one.
pub(super) fn rate(transfer: &Transfer) -> String {
    match transfer.gbps {
        None => String::new(),
        Some([_, median, _]) if transfer.is_lower_bound() => format!("> {}", three(median)),
        Some([_, median, _]) => three(median),
    }
}

/// Every experiment's tables under their headings; empty without transfers.
pub fn all(transfers: &[Transfer]) -> String {
    let mut text = String::new();
    for experiment in experiments(transfers) {
        let ordered = ordered(transfers, experiment);
        let of = |wanted: &[Workload]| -> Vec<&Transfer> {
            let found = ordered.iter().filter(|transfer| wanted.contains(&transfer.workload));
            found.copied().collect()
        };
        let datagrams = of(&[Workload::UdpTransmit, Workload::UdpReceive]);
        text += &table(experiment, &STREAMS, &of(&[Workload::TcpStream]));
        text += &table(experiment, &DATAGRAMS, &datagrams);
        let title = format!("{experiment}: round trips in us; of the paper, p99");
        text += &table(&title, &REQUESTS, &of(&[Workload::UdpRequest]));
    }
    if text.is_empty() {
        return text;
    }
    let bound = if transfers.iter().any(Transfer::is_lower_bound) { LEGEND_BOUND } else { "" };
    text + LEGEND + bound + "\n"
}

/// A column: its heading and its text for a transfer.
type Column = (&'static str, fn(&Transfer) -> String);

const STREAMS: [Column; 8] = [
    ("streams", |t| t.what().replace(" buffers", "")),
    ("path", |t| t.path.to_string()),
    ("Gbps", rate),
    ("loopback", |t| three(t.limit)),
    ("ends", |t| three(t.cpu.ends_cores())),
    ("carrier", |t| three(t.cpu.carrier_cores())),
    ("paper", |t| t.published.map_or(String::new(), three)),
    ("limit", |t| t.bottleneck.to_string()),
];

const DATAGRAMS: [Column; 9] = [
    ("traffic", Transfer::what),
    ("path", |t| t.path.to_string()),
    ("Gbps", rate),
    ("lost", |t| t.lost_share.map_or(String::new(), percent)),
    ("loopback", |t| three(t.limit)),
    ("ends", |t| three(t.cpu.ends_cores())),
    ("carrier", |t| three(t.cpu.carrier_cores())),
    ("paper", |t| t.published.map_or(String::new(), three)),
    ("limit", |t| t.bottleneck.to_string()),
];

const REQUESTS: [Column; 9] = [
    ("traffic", Transfer::what),
    ("path", |t| t.path.to_string()),
    ("p50", |t| trip(t, |trip| trip.p50_us)),
    ("p99", |t| trip(t, |trip| trip.p99_us)),
    ("p99.9", |t| trip(t, |trip| trip.p999_us)),
    ("loopback", |t| three(t.limit)),
    ("ends", |t| three(t.cpu.ends_cores())),
    ("carrier", |t| three(t.cpu.carrier_cores())),
    ("paper", |t| t.published.map_or(String::new(), |us| whole(Some(us)))),
];

pub(super) fn trip(transfer: &Transfer, of: fn(&super::transfer::RoundTrip) -> f64) -> String {
    transfer.round_trip.as_ref().map_or(NONE.to_owned(), |trip| three(of(trip)))
}

fn table(title: &str, columns: &[Column], transfers: &[&Transfer]) -> String {
    if transfers.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(columns.iter().map(|(name, _)| *name));
    let mut above = String::new();
    for transfer in transfers {
        let mut cells: Vec<String> = columns.iter().map(|(_, text)| text(transfer)).collect();
        // What is carried is said once; the paths of it stand one below the other.
        let what = std::mem::replace(&mut above, cells[0].clone());
        if what == above {
            cells[0].clear();
        }
        table.add_row(cells);
    }
    for (column, (name, _)) in table.column_iter_mut().zip(columns) {
        let words = WORDS.contains(name);
        column.set_cell_alignment(if words { CellAlignment::Left } else { CellAlignment::Right });
        column.set_padding((1, 0));
    }
    format!("{title}\n{}\n\n", table.trim_fmt())
}

//! The transfers as tables for the terminal: one per experiment, at most 80 columns wide.

use super::columns::{self, terminal};
use super::figure::{NONE, percent, three, whole};
use super::names::Workload;
use super::transfer::Transfer;

const LEGEND: &str = "\
streams, traffic: sockets, bytes of a write or datagram, and socket buffers if
set; Gbps: payload read by the receiver, the median of the rounds;
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
        text += &terminal(experiment, &STREAMS, &of(&[Workload::TcpStream]));
        text += &terminal(experiment, &DATAGRAMS, &datagrams);
        let title = format!("{experiment}: round trips in us; of the paper, p99");
        text += &terminal(&title, &REQUESTS, &of(&[Workload::UdpRequest]));
    }
    if text.is_empty() {
        return text;
    }
    let bound = if transfers.iter().any(Transfer::is_lower_bound) { LEGEND_BOUND } else { "" };
    text + LEGEND + bound + "\n"
}

/// A column of transfers.
type Column = columns::Column<Transfer>;

const STREAMS: [Column; 8] = [
    ("streams", true, |t| t.what().replace(" buffers", "")),
    ("path", true, |t| t.path.to_string()),
    ("Gbps", false, rate),
    ("loopback", false, |t| three(t.limit)),
    ("ends", false, |t| three(t.cpu.ends_cores())),
    ("carrier", false, |t| three(t.cpu.carrier_cores())),
    ("paper", false, |t| t.published.map_or(String::new(), three)),
    ("limit", true, |t| t.bottleneck.to_string()),
];

const DATAGRAMS: [Column; 9] = [
    ("traffic", true, |t| t.what().replace(" buffers", "")),
    ("path", true, |t| t.path.to_string()),
    ("Gbps", false, rate),
    ("lost", false, |t| t.lost_share.map_or(String::new(), percent)),
    ("loopback", false, |t| three(t.limit)),
    ("ends", false, |t| three(t.cpu.ends_cores())),
    ("carrier", false, |t| three(t.cpu.carrier_cores())),
    ("paper", false, |t| t.published.map_or(String::new(), three)),
    ("limit", true, |t| t.bottleneck.to_string()),
];

const REQUESTS: [Column; 9] = [
    ("traffic", true, Transfer::what),
    ("path", true, |t| t.path.to_string()),
    ("p50", false, |t| trip(t, |trip| trip.p50_us)),
    ("p99", false, |t| trip(t, |trip| trip.p99_us)),
    ("p99.9", false, |t| trip(t, |trip| trip.p999_us)),
    ("loopback", false, |t| three(t.limit)),
    ("ends", false, |t| three(t.cpu.ends_cores())),
    ("carrier", false, |t| three(t.cpu.carrier_cores())),
    ("paper", false, |t| t.published.map_or(String::new(), |us| whole(Some(us)))),
];

pub(super) fn trip(transfer: &Transfer, of: fn(&super::transfer::RoundTrip) -> f64) -> String {
    transfer.round_trip.as_ref().map_or(NONE.to_owned(), |trip| three(of(trip)))
}

//! Tables of transfers for the terminal: one per experiment, at most 80 columns wide.

use super::columns::{self, terminal};
use super::format::{NONE, percent, three, whole};
use super::names::{PathKind, Pattern, SocketWorkload};
use super::text_table::TextFormat;
use super::transfer::Transfer;

const LEGEND: &str = "\
streams, traffic: sockets, bytes of a write or datagram, and socket buffers if
set; Gbps: payload read by the receiver, the median of the rounds;
loopback: the two programs over the loopback interface; ends, carrier:
cores of the guest and the other end, and of the carrier of their frames (the
daemon, or the relays of virtio); paper: published, on another machine;
limit: bottleneck";
const LEGEND_BOUND: &str = "
> lower bound: the programs were the bottleneck, not the path";

/// Transfers of one experiment and pattern.
pub(super) struct Group<'a> {
    pub(super) experiment: &'a str,
    pub(super) pattern: Pattern,
    /// In the order of first appearance, paths of one traffic together.
    pub(super) transfers: Vec<&'a Transfer>,
}

impl Group<'_> {
    /// Heading: the experiment, with the pattern if it is not the usual one.
    pub(super) fn title(&self) -> String {
        match self.pattern {
            Pattern::NorthSouth => self.experiment.to_owned(),
            pattern => format!("{}, {pattern}", self.experiment),
        }
    }
}

/// All groups, in the order of first appearance.
pub(super) fn groups(all: &[Transfer]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for transfer in all {
        let Transfer { experiment, pattern, .. } = transfer;
        let same = |group: &&mut Group<'_>| {
            (group.experiment, group.pattern) == (experiment.as_str(), *pattern)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.transfers.push(transfer),
            None => groups.push(Group { experiment, pattern: *pattern, transfers: vec![transfer] }),
        }
    }
    for group in &mut groups {
        let mut places: Vec<String> = Vec::new();
        for what in group.transfers.iter().map(|transfer| transfer.what()) {
            if !places.contains(&what) {
                places.push(what);
            }
        }
        let place = |transfer: &Transfer| places.iter().position(|what| *what == transfer.what());
        group.transfers.sort_by_key(|transfer| (place(transfer), transfer.path));
    }
    groups
}

/// Rate of a transfer, marked if it is a lower bound.
pub(super) fn rate(transfer: &Transfer) -> String {
    match transfer.gbps {
        None => String::new(),
        Some([_, median, _]) if transfer.is_lower_bound() => format!("> {}", three(median)),
        Some([_, median, _]) => three(median),
    }
}

/// Every experiment's tables under their headings; empty without transfers.
pub fn all(transfers: &[Transfer], format: TextFormat) -> String {
    let mut text = String::new();
    for group in groups(transfers) {
        let title = group.title();
        let of = |wanted: &[SocketWorkload]| -> Vec<&Transfer> {
            let all = group.transfers.iter();
            let found = all.filter(|transfer| wanted.contains(&transfer.workload));
            found.copied().collect()
        };
        let datagrams = of(&[SocketWorkload::UdpTransmit, SocketWorkload::UdpReceive]);
        text += &terminal(format, &title, &STREAMS, &of(&[SocketWorkload::TcpStream]));
        text += &terminal(format, &title, &DATAGRAMS, &datagrams);
        let title = format!("{title}: round trips in us; of the paper, p99");
        text += &terminal(format, &title, &REQUESTS, &of(&[SocketWorkload::UdpRequest]));
    }
    if text.is_empty() {
        return text;
    }
    let bound = if transfers.iter().any(Transfer::is_lower_bound) { LEGEND_BOUND } else { "" };
    format!("{text}{LEGEND}\n{}{bound}\n", PathKind::MEANING)
}

/// A column of transfers.
type TransferColumn = columns::Column<Transfer>;

const STREAMS: [TransferColumn; 8] = [
    ("streams", true, |t| t.what().replace(" buffers", "")),
    ("path", true, |t| t.path.to_string()),
    ("Gbps", false, rate),
    ("loopback", false, |t| three(t.limit)),
    ("ends", false, |t| three(t.cpu.ends_cores())),
    ("carrier", false, |t| three(t.cpu.carrier_cores())),
    ("paper", false, |t| t.published.map_or(String::new(), three)),
    ("limit", true, |t| t.bottleneck.to_string()),
];

const DATAGRAMS: [TransferColumn; 9] = [
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

const REQUESTS: [TransferColumn; 9] = [
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

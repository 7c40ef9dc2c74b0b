//! Socket traffic: charts and tables for each experiment.

use super::super::columns::{self, html as table};
use super::super::format::{percent, three, whole};
use super::super::results::{PathKind, SocketWorkload, Transfer};
use super::super::svg::bars::{BarChart, BarRow, Layer};
use super::super::svg::escape;
use super::super::transfer_table::{Group, groups, rate, trip};

/// Width of a chart.
const WIDE: f64 = 500.0;

/// Bars of a single part.
pub(super) const ONE_LAYER: [Layer; 1] = [Layer { name: "median", class: "c0", in_legend: false }];

const LAYERS: [Layer; 6] = [
    Layer { name: "guest", class: "c1", in_legend: true },
    Layer { name: "guest, in the kernel", class: "c1 pale", in_legend: false },
    Layer { name: "other end", class: "rest", in_legend: true },
    Layer { name: "other end, in the kernel", class: "rest pale", in_legend: false },
    Layer { name: "carrier", class: "c0", in_legend: true },
    Layer { name: "carrier, in the kernel", class: "c0 pale", in_legend: false },
];

/// Sections of all experiments.
pub(super) fn all(transfers: &[Transfer]) -> String {
    groups(transfers).iter().map(section).collect()
}

fn section(group: &Group<'_>) -> String {
    let transfers = &group.transfers;
    let (requests, bulk): (Vec<&Transfer>, Vec<&Transfer>) =
        transfers.iter().partition(|transfer| transfer.workload == SocketWorkload::UdpRequest);
    let charts: Vec<String> =
        [throughput(&bulk), round_trips(&requests), cpu(transfers)].into_iter().flatten().collect();
    let charts: String =
        charts.iter().map(|chart| format!("<figure>\n{chart}</figure>\n")).collect();
    let title = escape(&group.title());
    format!(
        "<section class=\"pattern\">\n<h2 id=\"{}\">{title}</h2>\n<p class=\"sub\">{}.</p>\n\
         <div class=\"charts\">\n{charts}</div>\n{}{}</section>\n",
        title.replace(", ", "-"),
        group.pattern.title(),
        // Streams lose no data.
        match bulk.iter().any(|transfer| transfer.lost_share.is_some()) {
            true => table(&[&BULK[..], &LOST, &BULK_CPU].concat(), &bulk),
            false => table(&[&BULK[..], &BULK_CPU].concat(), &bulk),
        },
        table(&REQUESTS, &requests),
    )
}

fn throughput(transfers: &[&Transfer]) -> Option<String> {
    let row = |transfer: &&Transfer| BarRow {
        label: match transfer.is_lower_bound() {
            true => format!("{}, at least", transfer.path),
            false => transfer.path.to_string(),
        },
        group: transfer.what(),
        parts: vec![transfer.gbps_median()],
    };
    chart("Throughput", "payload at the receiver, median of the rounds", "Gbps", &ONE_LAYER, {
        transfers.iter().map(row).collect()
    })
}

fn round_trips(transfers: &[&Transfer]) -> Option<String> {
    let rows = transfers.iter().filter_map(|transfer| {
        let trip = transfer.round_trip?;
        let row = |(name, us): (&str, f64)| BarRow {
            label: name.to_owned(),
            group: transfer.path.to_string(),
            parts: vec![us],
        };
        Some([("p50", trip.p50_us), ("p99", trip.p99_us), ("p99.9", trip.p999_us)].map(row))
    });
    let subtitle = "from a request to its response, one at a time";
    chart("Round trip", subtitle, "us", &ONE_LAYER, rows.flatten().collect())
}

fn cpu(transfers: &[&Transfer]) -> Option<String> {
    let row = |transfer: &&Transfer| {
        let cpu = &transfer.cpu;
        let parts = vec![
            cpu.guest_user_cores,
            cpu.guest_system_cores,
            cpu.far_user_cores,
            cpu.far_system_cores,
            cpu.carrier_user_cores,
            cpu.carrier_system_cores,
        ];
        BarRow { label: transfer.path.to_string(), group: transfer.what(), parts }
    };
    let subtitle = "cores in use, pale in the kernel; a polling lane always uses one";
    chart("CPU by layer", subtitle, "cores", &LAYERS, transfers.iter().map(row).collect())
}

/// A bar chart; empty without bars.
pub(super) fn chart(
    title: &str,
    subtitle: &str,
    unit: &str,
    layers: &[Layer],
    rows: Vec<BarRow>,
) -> Option<String> {
    let chart = BarChart { title, subtitle, unit, width: WIDE, layers, rows };
    (!chart.rows.is_empty()).then(|| chart.draw())
}

/// A column of transfers.
type TransferColumn = columns::Column<Transfer>;

const BULK: [TransferColumn; 4] = [
    ("Traffic", true, Transfer::what),
    ("Path", true, |t| t.path.to_string()),
    ("Gbps", false, rate),
    ("Min to max", false, |t| {
        t.gbps.map_or(String::new(), |[least, _, most]| format!("{}-{}", three(least), three(most)))
    }),
];

const LOST: [TransferColumn; 1] =
    [("Lost", false, |t| t.lost_share.map_or(String::new(), percent))];

const BULK_CPU: [TransferColumn; 6] = [
    ("Loopback Gbps", false, |t| three(t.limit)),
    ("Ends, cores", false, |t| three(t.cpu.ends_cores())),
    ("Carrier, cores", false, carrier),
    ("Soft interrupts, cores", false, |t| three(t.cpu.softirq_cores)),
    ("Limited by", true, |t| t.bottleneck.to_string()),
    ("Paper Gbps", false, paper),
];

const REQUESTS: [TransferColumn; 11] = [
    ("Traffic", true, Transfer::what),
    ("Path", true, |t| t.path.to_string()),
    ("p50 us", false, |t| trip(t, |trip| trip.p50_us)),
    ("p99 us", false, |t| trip(t, |trip| trip.p99_us)),
    ("p99.9 us", false, |t| trip(t, |trip| trip.p999_us)),
    ("Requests per second", false, |t| whole(t.round_trip.map(|trip| trip.per_s))),
    ("Loopback p50 us", false, |t| three(t.limit)),
    ("Ends, cores", false, |t| three(t.cpu.ends_cores())),
    ("Carrier, cores", false, carrier),
    ("Soft interrupts, cores", false, |t| three(t.cpu.softirq_cores)),
    ("Paper p99 us", false, paper),
];

fn carrier(transfer: &Transfer) -> String {
    let cores = three(transfer.cpu.carrier_cores());
    match transfer.cpu.carrier_busy_share {
        Some(share) => format!("{cores} ({} busy)", percent(share)),
        None => cores,
    }
}

fn paper(transfer: &Transfer) -> String {
    let mark = if transfer.path == PathKind::Vf { "SR-IOV " } else { "" };
    transfer.published.map_or(String::new(), |value| format!("{mark}{}", three(value)))
}

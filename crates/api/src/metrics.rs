//! Counters and states as text for Prometheus: OpenMetrics, or its older format.
//!
//! Names and labels are stable; docs/api.md lists them. Those that begin with `sriov_vf_` are the
//! SR-IOV network metrics exporter's, with the same meaning: `rx` is what the VF received. Its
//! counters have no `_total`, which OpenMetrics has for all counters, so their type is unknown.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use model::state::{Actual, Adapter, State, VfCounters, port_of};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::stats::{LaneStats, LimitStats, PortStats, Stats};

/// Format of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format, version 0.0.4. Programs that name no format expect it.
    #[default]
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Format for an Accept header.
    pub(crate) fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// One metric of a kind of object: its name, its help, and its value.
struct Metric<T> {
    /// Name, without `_total`.
    name: &'static str,
    /// Help text.
    help: &'static str,
    kind: MetricType,
    value: fn(&T) -> u64,
    /// Unit of the value, in units of the metric.
    unit: f64,
}

/// A value, as it is encoded: counters exactly.
enum Value {
    Counter(u64),
    Exact(i64),
    Gauge(f64),
}

const fn counter<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Metric<T> {
    Metric { name, help, kind: MetricType::Counter, value, unit: 1.0 }
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Metric<T> {
    Metric { name, help, kind: MetricType::Gauge, value, unit: 1.0 }
}

/// A counter whose name does not end in `_total`.
const fn unnamed<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Metric<T> {
    Metric { name, help, kind: MetricType::Unknown, value, unit: 1.0 }
}

/// Metrics of a port, with the label `port`; transmitted and received are the guest's.
const PORT: [Metric<PortStats>; 11] = [
    counter("shunt_port_tx_frames", "Frames that the guest sent, dropped ones included", |it| {
        it.tx_frames
    }),
    counter("shunt_port_tx_bytes", "Bytes of the frames that the guest sent", |it| it.tx_bytes),
    counter("shunt_port_tx_cycles", "Cycles of lanes for the frames that the guest sent", |it| {
        it.tx_cycles
    }),
    counter("shunt_port_tx_bursts", "Bursts of frames that lanes took from the rings", |it| {
        it.tx_bursts
    }),
    counter("shunt_port_tx_backlog_bursts", "Bursts that left frames waiting in the ring", |it| {
        it.tx_backlog_bursts
    }),
    counter("shunt_port_rx_frames", "Frames that the guest received", |it| it.rx_frames),
    counter("shunt_port_rx_bytes", "Bytes of the frames that the guest received", |it| it.rx_bytes),
    counter("shunt_port_interrupts", "Interrupts sent to the guest", |it| it.notifies),
    counter("shunt_port_quarantines", "Times the guest's memory blocked a lane", |it| {
        it.quarantines
    }),
    counter("shunt_port_interrupts_moved", "Times interrupts moved off the lanes", |it| {
        it.notifies_moved
    }),
    gauge("shunt_port_rings_attached", "Rings that a guest has attached", |it| it.rings_attached),
];

/// Counts of a port by reason.
type Counts = fn(&PortStats) -> &BTreeMap<String, u64>;

/// Counters of a port by reason: name, help, label of the reason, and the counts.
const PORT_COUNTS: [(&str, &str, &str, Counts); 2] = [
    ("shunt_port_drops", "Dropped frames by reason", "reason", |it| &it.drops),
    ("shunt_port_faults", "Rings stopped because of a guest's fault", "fault", |it| &it.faults),
];

/// Metrics of a lane, with the label `lane`.
const LANE: [Metric<LaneStats>; 6] = [
    counter("shunt_lane_busy_cycles", "Cycles of visits that found frames", |it| {
        it.value("busy_cycles")
    }),
    counter("shunt_lane_idle_cycles", "Cycles of visits that found none", |it| {
        it.value("idle_cycles")
    }),
    counter("shunt_lane_frames", "Frames taken from guests", |it| it.value("frames")),
    counter("shunt_lane_sleeps", "Times the lane slept", |it| it.value("sleeps")),
    gauge("shunt_lane_cycles_per_second", "Cycles of the time-stamp counter in a second", |it| {
        it.value("tsc_hz")
    }),
    Metric {
        unit: 1e-9,
        ..gauge("shunt_lane_poll_gap_max_seconds", "Longest time between two polls", |it| {
            it.value("poll_gap_ns_max")
        })
    },
];

/// Metrics of a limit, with the label `limit`.
const LIMIT: [Metric<LimitStats>; 3] = [
    gauge("shunt_limit_used", "Amount in use of a limited resource", |it| it.used),
    gauge("shunt_limit_allowed", "The limit", |it| it.allowed),
    counter("shunt_limit_refused", "Times that the limit was met", |it| it.refused),
];

/// Metrics of a VF, with the labels of [`VfLabels`].
const VF: [Metric<VfCounters>; 6] = [
    unnamed("sriov_vf_rx_packets", "Frames that the VF received", |it| it.rx_packets),
    unnamed("sriov_vf_rx_bytes", "Bytes that the VF received", |it| it.rx_bytes),
    unnamed("sriov_vf_rx_dropped", "Frames to the VF that were dropped", |it| it.rx_dropped),
    unnamed("sriov_vf_tx_packets", "Frames that the VF sent", |it| it.tx_packets),
    unnamed("sriov_vf_tx_bytes", "Bytes that the VF sent", |it| it.tx_bytes),
    unnamed("sriov_vf_tx_dropped", "Frames of the VF that were dropped", |it| it.tx_dropped),
];

/// Labels of a VF: interface of its PF, or name of a soft NIC; index; PCI address and NUMA node, of
/// a card's VF.
type VfLabels<'a> = [(&'static str, Cow<'a, str>); 4];

/// Counters of a soft NIC's VF, by those of its port.
fn counters_of(port: &PortStats) -> VfCounters {
    let dropped = |side: &str| {
        let all = port.drops.iter().filter(|(reason, _)| reason.starts_with(side));
        all.map(|(_, frames)| frames).sum()
    };
    VfCounters {
        rx_packets: port.rx_frames,
        rx_bytes: port.rx_bytes,
        rx_dropped: dropped("rx_"),
        tx_packets: port.tx_frames,
        tx_bytes: port.tx_bytes,
        tx_dropped: dropped("tx_"),
        ..VfCounters::default()
    }
}

/// Labels of an adapter with an owner: its name, its port, and the owner's.
type OwnerLabels = Vec<(String, String)>;

fn owners(state: &State) -> Vec<OwnerLabels> {
    let owned = state.adapters.iter().filter(|adapter| !adapter.owner.is_empty());
    owned
        .filter_map(|adapter| Some(labels_of_owner(adapter, &state.nic_of(adapter)?.name)))
        .collect()
}

fn labels_of_owner(adapter: &Adapter, nic: &str) -> OwnerLabels {
    let port = port_of(nic, &adapter.name);
    let mut labels = vec![("adapter".to_owned(), adapter.name.clone()), ("port".to_owned(), port)];
    for (name, value) in &adapter.owner {
        let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let mut name = name.replace(|it| !is_allowed(it), "_");
        if !name.starts_with(|it: char| it.is_ascii_alphabetic()) {
            name.insert_str(0, "owner_");
        }
        if labels.iter().all(|(other, _)| *other != name) {
            labels.push((name, value.clone()));
        }
    }
    labels
}

/// The text of all metrics.
pub(crate) fn text(stats: Stats, actual: Actual, state: &State, format: Format) -> String {
    let mut registry = Registry::default();
    let owners = owners(state);
    registry.register_collector(Box::new(Metrics { stats, actual, owners }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all text");
    match format {
        Format::Text => older(&text),
        Format::OpenMetrics => text,
    }
}

/// OpenMetrics in the older format, in which a counter's own name ends in `_total`, and the unknown
/// type is called untyped.
fn older(text: &str) -> String {
    let mut older = String::with_capacity(text.len() + text.len() / 16);
    let mut lines = text.lines().filter(|line| *line != "# EOF").peekable();
    while let Some(line) = lines.next() {
        // The type comes behind the help.
        let of_type = if line.starts_with("# HELP ") { lines.peek().copied() } else { Some(line) };
        let of_type =
            of_type.and_then(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
        let described = of_type.and_then(|name| Some((name, line.split_once(name)?)));
        match described {
            Some((name, (before, behind))) => {
                older.extend([before, name, "_total", behind, "\n"]);
            }
            None => match line.strip_suffix(" unknown").filter(|it| it.starts_with("# TYPE ")) {
                Some(line) => older.extend([line, " untyped\n"]),
                None => older.extend([line, "\n"]),
            },
        }
    }
    older
}

#[derive(Debug)]
struct Metrics {
    stats: Stats,
    actual: Actual,
    owners: Vec<OwnerLabels>,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Metrics { stats, actual, owners } = self;
        for metric in &PORT {
            metric
                .encode(&mut encoder, stats.ports.iter().map(|it| ([("port", &*it.name)], it)))?;
        }
        for (name, help, label, counts) in PORT_COUNTS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for port in &stats.ports {
                for (reason, count) in counts(port) {
                    let labels = [("port", &*port.name), (label, &**reason)];
                    one(&mut family, &labels, Value::Counter(*count))?;
                }
            }
        }
        for metric in &LANE {
            metric
                .encode(&mut encoder, stats.lanes.iter().map(|it| ([("lane", &*it.lane)], it)))?;
        }
        for metric in &LIMIT {
            let limits = stats.limits.iter().map(|it| ([("limit", &*it.name)], it));
            metric.encode(&mut encoder, limits)?;
        }
        for (name, help, count) in [
            ("shunt_log_lines_dropped", "Log lines that were dropped", stats.log_lines_dropped),
            (
                "shunt_forbidden_calls",
                "System calls that the sandbox refused",
                stats.forbidden_calls,
            ),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
        let help = "Path of an adapter in force, with the reason; always 1";
        let mut family =
            encoder.encode_descriptor("shunt_adapter_path", help, None, MetricType::Gauge)?;
        for adapter in &actual.adapters {
            let (path, reason) = (adapter.path.to_string(), adapter.reason.to_string());
            let labels = [("adapter", &*adapter.name), ("path", &*path), ("reason", &*reason)];
            one(&mut family, &labels, Value::Gauge(1.0))?;
        }
        let help = "1 while a guest is attached to the adapter";
        let mut family =
            encoder.encode_descriptor("shunt_adapter_connected", help, None, MetricType::Gauge)?;
        for adapter in &actual.adapters {
            let connected = f64::from(u8::from(adapter.connected));
            one(&mut family, &[("adapter", &*adapter.name)], Value::Gauge(connected))?;
        }
        let help = "Owner of an adapter, as labels; always 1";
        let mut family =
            encoder.encode_descriptor("shunt_adapter_owner", help, None, MetricType::Gauge)?;
        for labels in owners {
            one(&mut family, labels, Value::Gauge(1.0))?;
        }
        let vfs: Vec<_> = self.vfs().collect();
        for metric in &VF {
            let vfs = vfs.iter().map(|(labels, it)| (labels.each_ref().map(borrowed), it));
            metric.encode(&mut encoder, vfs)?;
        }
        Ok(())
    }
}

impl Metrics {
    /// VFs that count: labels, and counters of the card's driver or of the VF's port.
    fn vfs(&self) -> impl Iterator<Item = (VfLabels<'_>, VfCounters)> {
        let all = self.actual.nics.iter().flat_map(|nic| nic.vfs.iter().map(move |vf| (nic, vf)));
        all.filter_map(|(nic, vf)| {
            let of_port = || {
                let own = format!("vf{}", vf.index);
                let name = port_of(&nic.name, vf.adapter.as_ref().unwrap_or(&own));
                self.stats.ports.iter().find(|port| port.name == name).map(counters_of)
            };
            let counters = vf.counters.or_else(of_port)?;
            let card = nic.card.as_ref();
            let pf = card.and_then(|card| card.interface.as_ref()).unwrap_or(&nic.name);
            let numa_node = card.and_then(|card| card.numa_node);
            let labels = [
                ("pf", pf.into()),
                ("vf", vf.index.to_string().into()),
                ("pciAddr", vf.address.as_deref().unwrap_or_default().into()),
                ("numa_node", numa_node.map(|node| node.to_string()).unwrap_or_default().into()),
            ];
            Some((labels, counters))
        })
    }
}

impl<T> Metric<T> {
    fn encode<'a, const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        all: impl Iterator<Item = ([(&'a str, &'a str); N], &'a T)>,
    ) -> fmt::Result
    where
        T: 'a,
    {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, self.kind)?;
        for (labels, it) in all {
            let value = (self.value)(it);
            let value = match self.kind {
                MetricType::Counter => Value::Counter(value),
                MetricType::Unknown => Value::Exact(value.try_into().unwrap_or(i64::MAX)),
                _ => Value::Gauge(value as f64 * self.unit),
            };
            one(&mut family, &labels, value)?;
        }
        Ok(())
    }
}

/// A label as it is encoded.
fn borrowed<'a>((name, value): &'a (&'static str, Cow<'_, str>)) -> (&'a str, &'a str) {
    (name, value)
}

fn one(family: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, value: Value) -> fmt::Result {
    let mut metric = family.encode_family(labels)?;
    match value {
        Value::Counter(value) => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
        Value::Exact(value) => metric.encode_gauge(&value),
        Value::Gauge(value) => metric.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use model::state::ActualVf;
    use serde_json::json;

    use super::*;

    fn stats() -> Stats {
        let drops = BTreeMap::from([("tx_spoofed_mac", 3), ("rx_no_buffer", 5), ("rx_down", 1)]);
        let drops = drops.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
        let port = |name: &str| PortStats { name: name.to_owned(), ..PortStats::default() };
        let faults = BTreeMap::from([("tx_bad_index".to_owned(), 1)]);
        let web = PortStats { tx_frames: 1 << 60, rx_bytes: 90, drops, faults, ..port("n/web") };
        let values = BTreeMap::from([
            ("busy_cycles".to_owned(), 7),
            ("poll_gap_ns_max".to_owned(), 2_500_000),
        ]);
        Stats {
            ports: vec![web, port("n/vf1")],
            lanes: vec![LaneStats { lane: "0".to_owned(), values }],
            limits: vec![LimitStats { name: "threads".into(), used: 9, allowed: 100, refused: 2 }],
            forbidden_calls: 4,
            ..Stats::default()
        }
    }

    fn actual() -> Actual {
        let adapter = json!({
            "name": "web", "path": "vf", "vf": 0, "queue": null, "reason": "Supported",
            "vf_reason": "Supported", "vmq_reason": "Supported", "connected": true,
        });
        let counters = VfCounters { tx_bytes: 1 << 50, rx_dropped: 2, ..VfCounters::default() };
        let vf = |index, adapter: Option<&str>| ActualVf {
            index,
            address: (index == 3).then(|| "0000:03:10.6".to_owned()),
            adapter: adapter.map(str::to_owned),
            mac: None,
            vlan: None,
            link_up: true,
            reported: BTreeMap::new(),
            counters: (index == 3).then_some(counters),
        };
        let nic = json!({"name": "n", "support": "Supported", "total_vfs": 4, "vfs": []});
        let mut nic: model::state::ActualNic = serde_json::from_value(nic).unwrap();
        // VF 2 has no port, and VF 3 is a card's.
        nic.vfs = vec![vf(0, Some("web")), vf(1, None), vf(2, None), vf(3, None)];
        let adapters = vec![serde_json::from_value(adapter).unwrap()];
        Actual { nics: vec![nic], adapters, tunnels: Vec::new() }
    }

    fn state() -> State {
        let adapter = json!({
            "name": "web", "switch": "sw0", "mac": "02:00:00:00:00:01",
            "attachment": {"kind": "vhost-user", "socket": "/run/shunt/web.sock"},
            "owner": {"pod": "web-0", "claim-name": "c", "9": "x", "port": "a port of its own"},
        });
        let document = json!({
            "version": 1, "nic": [{"name": "n"}], "switch": [{"name": "sw0", "nic": "n"}],
            "adapter": [adapter],
        });
        State::read(&document).unwrap()
    }

    #[test]
    fn each_counter_has_its_object_as_labels() {
        let text = text(stats(), actual(), &state(), Format::OpenMetrics);
        for line in [
            "# TYPE shunt_port_tx_frames counter",
            "# HELP shunt_port_rx_bytes Bytes of the frames that the guest received",
            "shunt_port_tx_frames_total{port=\"n/web\"} 1152921504606846976",
            "shunt_port_rx_bytes_total{port=\"n/web\"} 90",
            "shunt_port_drops_total{port=\"n/web\",reason=\"tx_spoofed_mac\"} 3",
            "shunt_port_faults_total{port=\"n/web\",fault=\"tx_bad_index\"} 1",
            "shunt_lane_busy_cycles_total{lane=\"0\"} 7",
            "shunt_lane_poll_gap_max_seconds{lane=\"0\"} 0.0025",
            "shunt_limit_refused_total{limit=\"threads\"} 2",
            "shunt_forbidden_calls_total 4",
            "shunt_adapter_path{adapter=\"web\",path=\"vf\",reason=\"Supported\"} 1.0",
            "shunt_adapter_connected{adapter=\"web\"} 1.0",
            "shunt_adapter_owner{adapter=\"web\",port=\"n/web\",owner_9=\"x\",claim_name=\"c\",\
             pod=\"web-0\"} 1.0",
            "sriov_vf_rx_dropped{pf=\"n\",vf=\"0\",pciAddr=\"\",numa_node=\"\"} 6",
            "sriov_vf_tx_dropped{pf=\"n\",vf=\"0\",pciAddr=\"\",numa_node=\"\"} 3",
            "sriov_vf_tx_packets{pf=\"n\",vf=\"1\",pciAddr=\"\",numa_node=\"\"} 0",
            "sriov_vf_tx_bytes{pf=\"n\",vf=\"3\",pciAddr=\"0000:03:10.6\",numa_node=\"\"} 1125899906842624",
            "sriov_vf_rx_dropped{pf=\"n\",vf=\"3\",pciAddr=\"0000:03:10.6\",numa_node=\"\"} 2",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("vf=\"2\"") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_older_format_has_the_same_samples_and_other_names_of_counters() {
        let [open, older] =
            [Format::OpenMetrics, Format::Text].map(|it| text(stats(), actual(), &state(), it));
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&open), samples(&older));
        for line in [
            "# HELP shunt_port_tx_frames_total Frames that the guest sent, dropped ones included",
            "# TYPE shunt_port_tx_frames_total counter",
            "# TYPE shunt_adapter_connected gauge",
            "# TYPE sriov_vf_rx_packets untyped",
        ] {
            assert!(older.lines().any(|it| it == line), "{line} is not in:\n{older}");
        }
        assert!(!older.contains("EOF"));
        let accepted = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        assert_eq!(Format::accepted(accepted), Format::OpenMetrics);
        assert_eq!([Format::accepted("*/*"), Format::accepted("")], [Format::Text; 2]);
    }

    #[test]
    fn the_page_names_all_of_them_with_their_labels() {
        let page = include_str!("../../../docs/api.md");
        let text = text(stats(), actual(), &state(), Format::OpenMetrics);
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/api.md");
        }
    }
}

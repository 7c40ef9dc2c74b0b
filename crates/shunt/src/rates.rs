//! Rates between two readings of a daemon's counters, for `shunt stats` and `shunt top`.
//!
//! A counter that fell, as after a restart of the daemon, has the rate 0 until the next reading.
//! Rx and Tx are the guest's.

use std::collections::BTreeMap;

use api::stats::{LaneStats, PortStats, Stats, without_queue};
use serde::Serialize;

/// Rates of all ports and lanes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Time between the readings, in seconds.
    pub(crate) seconds: f64,
    pub(crate) total: TotalRates,
    /// Ports of the second reading, in its order.
    pub(crate) ports: Vec<PortRates>,
    /// Lanes of the second reading, in its order.
    pub(crate) lanes: Vec<LaneRates>,
}

/// Sums over ports.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct TotalRates {
    /// Frames between guests and the wire, in both directions.
    pub(crate) wire_frames_per_s: f64,
    pub(crate) wire_bytes_per_s: f64,
    /// Frames from guest to guest, counted where they arrive.
    pub(crate) local_frames_per_s: f64,
    pub(crate) local_bytes_per_s: f64,
    /// Dropped frames, for all reasons.
    pub(crate) drops_per_s: f64,
}

/// Rates of a port.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct PortRates {
    pub(crate) name: String,
    pub(crate) tx_frames_per_s: f64,
    pub(crate) tx_bytes_per_s: f64,
    pub(crate) rx_frames_per_s: f64,
    pub(crate) rx_bytes_per_s: f64,
    /// Frames of both directions that came from the wire or went to it.
    pub(crate) wire_frames_per_s: f64,
    pub(crate) wire_bytes_per_s: f64,
    /// Dropped frames by reason, without zeros.
    pub(crate) drops_per_s: BTreeMap<String, f64>,
    /// Share of one lane's time that the port's transmitted frames take; more than 1 if its rings
    /// are at several lanes.
    pub(crate) lane_share: f64,
    /// Share of bursts that left frames waiting in a transmit ring.
    pub(crate) backlog: f64,
    /// Share of frames for the guest that found no receive buffer.
    pub(crate) no_buffer: f64,
}

impl PortRates {
    /// Dropped frames, for all reasons.
    pub(crate) fn all_drops_per_s(&self) -> f64 {
        self.drops_per_s.values().fold(0.0, |sum, rate| sum + rate) // a sum of none is -0
    }
}

/// Rates of a lane.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct LaneRates {
    pub(crate) lane: String,
    pub(crate) frames_per_s: f64,
    /// Share of time in visits that found frames.
    pub(crate) load: f64,
    /// Share of time in all visits; in the rest the lane slept, or its CPU did other work.
    pub(crate) polling: f64,
    /// Cycles of visits that found frames, for each frame.
    pub(crate) cycles_per_frame: f64,
    /// Frames of a burst, on average.
    pub(crate) frames_per_burst: f64,
    /// Share of bursts that left frames waiting in their ring.
    pub(crate) backlog: f64,
    pub(crate) sleeps_per_s: f64,
}

impl Rates {
    /// Rates between two readings that are `seconds` apart. A port that was added in between counts
    /// from 0.
    pub(crate) fn between(before: &Stats, now: &Stats, seconds: f64) -> Rates {
        let hertz = now.lanes.iter().map(|lane| lane.value("tsc_hz")).max().unwrap_or(0);
        let port = |port: &PortStats| {
            let old = before.ports.iter().find(|old| old.name == port.name);
            port_rates(old, port, seconds, hertz)
        };
        let lane = |lane: &LaneStats| {
            let old = before.lanes.iter().find(|old| old.lane == lane.lane);
            lane_rates(old, lane, seconds)
        };
        let ports: Vec<PortRates> = now.ports.iter().map(port).collect();
        let mut total = TotalRates::default();
        for port in &ports {
            total.wire_frames_per_s += port.wire_frames_per_s;
            total.wire_bytes_per_s += port.wire_bytes_per_s;
            total.drops_per_s += port.all_drops_per_s();
        }
        // An uplink receives what guests sent to it.
        let guests =
            now.ports.iter().filter(|port| !without_queue(&port.name).ends_with("/uplink"));
        for port in guests {
            let old = before.ports.iter().find(|old| old.name == port.name);
            let local = |all: fn(&PortStats) -> u64, wire: fn(&PortStats) -> u64| {
                let gain =
                    |get: fn(&PortStats) -> u64| get(port).saturating_sub(old.map_or(0, get));
                gain(all).saturating_sub(gain(wire)) as f64 / seconds
            };
            total.local_frames_per_s += local(|port| port.rx_frames, |port| port.rx_uplink_frames);
            total.local_bytes_per_s += local(|port| port.rx_bytes, |port| port.rx_uplink_bytes);
        }
        let lanes = now.lanes.iter().map(lane).collect();
        Rates { seconds, total, ports, lanes }
    }
}

/// Rates of a port; lanes have `hertz` cycles a second.
fn port_rates(old: Option<&PortStats>, port: &PortStats, seconds: f64, hertz: u64) -> PortRates {
    let per_s = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let rate = |get: fn(&PortStats) -> u64| per_s(old.map_or(0, get), get(port));
    let drops = port.drops.iter().map(|(reason, count)| {
        let before = old.and_then(|old| old.drops.get(reason)).copied().unwrap_or(0);
        (reason.clone(), per_s(before, *count))
    });
    let lost = rate(|port| port.drops.get("rx_no_buffer").copied().unwrap_or(0));
    PortRates {
        name: port.name.clone(),
        tx_frames_per_s: rate(|port| port.tx_frames),
        tx_bytes_per_s: rate(|port| port.tx_bytes),
        rx_frames_per_s: rate(|port| port.rx_frames),
        rx_bytes_per_s: rate(|port| port.rx_bytes),
        wire_frames_per_s: rate(|port| port.tx_uplink_frames) + rate(|port| port.rx_uplink_frames),
        wire_bytes_per_s: rate(|port| port.tx_uplink_bytes) + rate(|port| port.rx_uplink_bytes),
        drops_per_s: drops.filter(|(_, rate)| *rate > 0.0).collect(),
        lane_share: rate(|port| port.tx_cycles) / hertz.max(1) as f64,
        backlog: share(rate(|port| port.tx_backlog_bursts), rate(|port| port.tx_bursts)),
        no_buffer: share(lost, lost + rate(|port| port.rx_frames)),
    }
}

/// A part of a whole; 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn lane_rates(old: Option<&LaneStats>, lane: &LaneStats, seconds: f64) -> LaneRates {
    let gain = |name: &str| {
        let before = old.map_or(0, |old| old.value(name));
        lane.value(name).saturating_sub(before) as f64
    };
    let cycles = seconds * lane.value("tsc_hz").max(1) as f64;
    let (frames, busy, bursts) = (gain("frames"), gain("busy_cycles"), gain("bursts"));
    LaneRates {
        lane: lane.lane.clone(),
        frames_per_s: frames / seconds,
        load: busy / cycles,
        polling: (busy + gain("idle_cycles")) / cycles,
        cycles_per_frame: share(busy, frames),
        frames_per_burst: share(frames, bursts),
        backlog: share(gain("backlog_bursts"), bursts),
        sleeps_per_s: gain("sleeps") / seconds,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::stats::{CounterSnapshot, of};

    use super::*;

    /// Kind, label and values of a block of the counter file.
    pub(crate) type Block<'b> = (&'b str, &'b str, &'b [(&'b str, u64)]);

    /// Counters of a daemon with these blocks.
    pub(crate) fn reading(blocks: &[Block<'_>]) -> Stats {
        let block = |(kind, label, values): &Block<'_>| CounterSnapshot {
            kind: (*kind).to_owned(),
            label: (*label).to_owned(),
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        of(blocks.iter().map(block).collect())
    }

    /// A port and a lane with these counters.
    pub(crate) fn of_one_port(frames: u64, drops: u64, busy: u64) -> Stats {
        let port = [
            ("tx_frames", frames),
            ("tx_bytes", 100 * frames),
            ("tx_cycles", busy),
            ("tx_bursts", frames / 5),
            ("tx_backlog_bursts", frames / 10),
            ("tx_drop_spoofed_mac", drops),
        ];
        let lane = [
            ("frames", frames),
            ("bursts", frames / 5),
            ("backlog_bursts", frames / 10),
            ("busy_cycles", busy),
            ("idle_cycles", 500),
            ("sleeps", drops),
            ("tsc_hz", 1000),
        ];
        reading(&[("port", "nic0/web", &port), ("lane", "0", &lane)])
    }

    #[test]
    fn rates_are_differences_by_time() {
        let rates = Rates::between(&of_one_port(10, 1, 100), &of_one_port(30, 5, 600), 2.0);
        let port = PortRates {
            name: "nic0/web".to_owned(),
            tx_frames_per_s: 10.0,
            tx_bytes_per_s: 1000.0,
            drops_per_s: BTreeMap::from([("tx_spoofed_mac".to_owned(), 2.0)]),
            lane_share: 0.25,
            backlog: 0.5,
            ..PortRates::default()
        };
        assert_eq!(rates.ports, [port]);
        let lane = LaneRates {
            lane: "0".to_owned(),
            frames_per_s: 10.0,
            load: 0.25,
            polling: 0.25,
            cycles_per_frame: 25.0,
            frames_per_burst: 5.0,
            backlog: 0.5,
            sleeps_per_s: 2.0,
        };
        assert_eq!(rates.lanes, [lane]);
        assert_eq!(rates.total, TotalRates { drops_per_s: 2.0, ..TotalRates::default() });
    }

    #[test]
    fn counters_of_a_restarted_daemon_have_no_negative_rates() {
        let rates = Rates::between(&of_one_port(1000, 50, 900), &of_one_port(3, 0, 7), 1.0);
        assert_eq!(rates.ports, [PortRates { name: "nic0/web".to_owned(), ..Default::default() }]);
        assert_eq!(rates.lanes, [LaneRates { lane: "0".to_owned(), ..Default::default() }]);
        let again = Rates::between(&of_one_port(3, 0, 7), &of_one_port(13, 0, 7), 1.0);
        assert_eq!(again.ports[0].tx_frames_per_s, 10.0);
    }

    #[test]
    fn totals_tell_the_wire_from_guests() {
        let of = |times: u64| {
            let web = [
                ("rx_frames", 30 * times),
                ("rx_bytes", 3000 * times),
                ("rx_uplink_frames", 10 * times),
                ("rx_uplink_bytes", 1000 * times),
                ("tx_uplink_frames", 5 * times),
                ("tx_uplink_bytes", 500 * times),
                ("rx_drop_no_buffer", 2 * times),
            ];
            let uplink = [("rx_frames", 5 * times), ("rx_bytes", 500 * times)];
            reading(&[("port", "n/web", &web), ("port", "n/uplink", &uplink)])
        };
        let total = TotalRates {
            wire_frames_per_s: 15.0,
            wire_bytes_per_s: 1500.0,
            local_frames_per_s: 20.0,
            local_bytes_per_s: 2000.0,
            drops_per_s: 2.0,
        };
        let rates = Rates::between(&of(1), &of(3), 2.0);
        assert_eq!(rates.total, total);
        assert_eq!(rates.ports[0].no_buffer, 2.0 / 32.0);
        let added = Rates::between(&Stats::default(), &of(1), 1.0);
        assert_eq!(added.total, total, "a new port counts from 0");
    }
}

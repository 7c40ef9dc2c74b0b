//! Totals of the last hour, for a client that starts to look at traffic now.
//!
//! A reading is taken each second from the shared counters; lanes do no work for it. A hot restart
//! begins again.

use std::collections::VecDeque;

use serde::Serialize;
use utoipa::ToSchema;

use crate::clock;
use crate::stats::Stats;

/// Most readings that are kept, one a second; the oldest are dropped.
pub(crate) const MAX_READINGS: usize = 3600;

/// Sums of counters at one moment. A sum falls when a port is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct HistoryReading {
    /// Time in milliseconds since 1970.
    pub time_ms: u64,
    /// Time in microseconds of a clock that is never set, as in `/v1/live`.
    pub clock_us: u64,
    /// Frames between guests and the wire, in both directions.
    pub wire_frames: u64,
    /// Bytes of these frames.
    pub wire_bytes: u64,
    /// Frames from guest to guest, counted where they arrive.
    pub local_frames: u64,
    /// Bytes of these frames.
    pub local_bytes: u64,
    /// Dropped frames, for all reasons.
    pub dropped: u64,
    /// Cycles of lanes' visits that found frames.
    pub busy_cycles: u64,
    /// Cycles of all lanes in a second.
    pub cycles_per_s: u64,
}

impl HistoryReading {
    /// Sums of counters that were read now.
    fn of(stats: &Stats) -> HistoryReading {
        let (time_ms, clock_us) = (clock::unix_ms(), clock::monotonic_us());
        let mut sums = HistoryReading { time_ms, clock_us, ..HistoryReading::default() };
        for port in &stats.ports {
            sums.wire_frames += port.tx_uplink_frames + port.rx_uplink_frames;
            sums.wire_bytes += port.tx_uplink_bytes + port.rx_uplink_bytes;
            sums.dropped += port.drops.values().sum::<u64>();
            // An uplink receives what guests sent to it.
            if !port.name.ends_with("/uplink") {
                sums.local_frames += port.rx_frames.saturating_sub(port.rx_uplink_frames);
                sums.local_bytes += port.rx_bytes.saturating_sub(port.rx_uplink_bytes);
            }
        }
        // The thread of ports in quarantine is no lane.
        let lanes = stats.lanes.iter().filter(|lane| lane.lane.parse::<u32>().is_ok());
        for lane in lanes {
            sums.busy_cycles += lane.value("busy_cycles");
            sums.cycles_per_s += lane.value("tsc_hz");
        }
        sums
    }
}

/// Readings, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<HistoryReading>);

impl History {
    /// Adds a reading of counters that were read now.
    pub(crate) fn add(&mut self, stats: &Stats) {
        if self.0.len() == MAX_READINGS {
            self.0.pop_front();
        }
        self.0.push_back(HistoryReading::of(stats));
    }

    /// All readings.
    pub(crate) fn readings(&self) -> &VecDeque<HistoryReading> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::stats::{LaneStats, PortStats};

    #[test]
    fn sums_tell_the_wire_from_guests() {
        let port = |name: &str, rx, wire| PortStats {
            name: name.to_owned(),
            rx_frames: rx,
            rx_bytes: 100 * rx,
            tx_uplink_frames: wire,
            tx_uplink_bytes: 100 * wire,
            rx_uplink_frames: wire,
            rx_uplink_bytes: 100 * wire,
            drops: BTreeMap::from([("rx_no_buffer".to_owned(), 2), ("tx_runt".to_owned(), 1)]),
            ..PortStats::default()
        };
        let lane = |name: &str| {
            let values = [("busy_cycles".to_owned(), 7), ("tsc_hz".to_owned(), 1000)];
            LaneStats { lane: name.to_owned(), values: values.into() }
        };
        let stats = Stats {
            ports: vec![port("n/a", 30, 10), port("n/b", 5, 0), port("n/uplink", 20, 0)],
            lanes: vec![lane("0"), lane("1"), lane("quarantine")],
            ..Stats::default()
        };
        let sums = HistoryReading::of(&stats);
        assert_eq!((sums.wire_frames, sums.wire_bytes), (20, 2000));
        assert_eq!((sums.local_frames, sums.local_bytes), (25, 2500));
        assert_eq!((sums.dropped, sums.busy_cycles, sums.cycles_per_s), (9, 14, 2000));
    }

    #[test]
    fn the_oldest_readings_are_dropped() {
        let mut history = History::default();
        for _ in 0..MAX_READINGS + 3 {
            history.add(&Stats::default());
        }
        let readings = history.readings();
        assert_eq!(readings.len(), MAX_READINGS);
        let times: Vec<_> = readings.iter().map(|reading| reading.clock_us).collect();
        assert!(times.is_sorted() && times[0] > 0);
    }
}

//! Figures from rounds of measurements.

use super::measure::{TransferLoad, TransferRun, TransferSettings, cpus_of_ends};
use crate::bench::plan;
use crate::experiment::sample::spread;
use report::statistics::quantile::median_item;
use report::{Bottleneck, PathKind, Pinned, RoundTrip, SocketWorkload, Transfer};
use traffic::protocol::sockets::RoundTripResult;

/// Busy share from which a carrier or an end is at its limit; for the programs, share of their rate
/// over loopback.
const SATURATED: f64 = 0.9;

/// Figures of one traffic on one path: medians of the rounds.
pub(super) fn summarize(
    settings: &TransferSettings,
    (experiment, path): (&str, PathKind),
    traffic: &TransferLoad,
    (seen, limits): (&[TransferRun], &[TransferRun]),
) -> Transfer {
    let TransferLoad { workload, streams, send_bytes, buffer_kib } = *traffic;
    let requests = workload == SocketWorkload::UdpRequest;
    let placement = plan(&settings.cpus, 1);
    let (guest_cpu, far_cpu) = cpus_of_ends(&placement);
    let middle = middle(seen);
    let limit = if requests {
        median(limits, |seen| seen.asked.map_or(0.0, |asked| asked.p50_us))
    } else {
        median(limits, TransferRun::gbps)
    };
    let is_udp = matches!(workload, SocketWorkload::UdpTransmit | SocketWorkload::UdpReceive);
    let mut transfer = Transfer {
        experiment: experiment.to_owned(),
        workload,
        pattern: settings.pattern,
        path,
        streams,
        send_bytes,
        buffer_kib,
        granted_kib: (!requests).then_some((middle.received.buffer >> 10) as u32),
        seconds: settings.seconds,
        rounds: seen.len() as u32,
        gbps: (!requests).then(|| spread(seen.iter().map(TransferRun::gbps))),
        lost_share: is_udp.then(|| median(seen, TransferRun::lost_share)),
        round_trip: requests.then(|| round_trip(seen)),
        limit,
        published: None,
        bottleneck: Bottleneck::Guest,
        cpu: middle.cpu,
        pinned: Pinned {
            switch: placement.switch.into_iter().collect(),
            guests: guest_cpu.into_iter().collect(),
            generator: far_cpu.into_iter().collect(),
        },
    };
    transfer.bottleneck = bottleneck(&transfer, guest_cpu == far_cpu);
    transfer
}

/// The round of median throughput, or of median round trips.
fn middle(seen: &[TransferRun]) -> TransferRun {
    let figure = |seen: &TransferRun| seen.asked.map_or_else(|| seen.gbps(), |asked| asked.p50_us);
    median_item(seen, figure).copied().unwrap_or_default()
}

fn median(seen: &[TransferRun], of: impl Fn(&TransferRun) -> f64) -> f64 {
    spread(seen.iter().map(of))[1]
}

fn round_trip(seen: &[TransferRun]) -> RoundTrip {
    let of = |what: fn(&RoundTripResult) -> f64| {
        median(seen, |seen| seen.asked.as_ref().map_or(0.0, what))
    };
    RoundTrip {
        p50_us: of(|asked| asked.p50_us),
        p99_us: of(|asked| asked.p99_us),
        p999_us: of(|asked| asked.p999_us),
        max_us: of(|asked| asked.max_us),
        per_s: of(|asked| asked.answered as f64 / asked.seconds),
    }
}

/// Bottleneck: the programs, if they are hardly faster over loopback; the carrier, if it had no
/// idle time; otherwise the guests' kernels.
fn bottleneck(transfer: &Transfer, ends_share_a_cpu: bool) -> Bottleneck {
    let cpu = &transfer.cpu;
    let carrier = cpu.carrier_busy_share.unwrap_or(cpu.carrier_cores());
    let ends = if ends_share_a_cpu { cpu.ends_cores() } else { cpu.ends_cores() / 2.0 };
    if transfer.gbps.is_some() && transfer.gbps_median() > SATURATED * transfer.limit {
        Bottleneck::Generator
    } else if carrier > SATURATED || carrier > ends {
        Bottleneck::Switch
    } else {
        Bottleneck::Guest
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use report::{LayerCpu, Pattern};
    use traffic::protocol::sockets::BulkResult;

    fn seen(bytes: u64, ends: f64, carrier: f64) -> TransferRun {
        let cpu = LayerCpu {
            guest_system_cores: ends,
            carrier_user_cores: carrier,
            ..LayerCpu::default()
        };
        let received = BulkResult { seconds: 1.0, bytes, ..BulkResult::default() };
        TransferRun { received, asked: None, cpu }
    }

    fn concluded(seen: &[TransferRun], limit: u64) -> Transfer {
        let settings = TransferSettings {
            program: PathBuf::new(),
            cpus: vec![0, 1],
            paths: vec![PathKind::Virtio],
            pattern: Pattern::NorthSouth,
            rounds: seen.len(),
            seconds: 1.0,
        };
        let (workload, send_bytes) = (SocketWorkload::TcpStream, 64 << 10);
        let traffic = TransferLoad { workload, streams: 1, send_bytes, buffer_kib: None };
        let which = ("ntttcp", PathKind::Virtio);
        summarize(&settings, which, &traffic, (seen, &[self::seen(limit, 1.0, 0.0)]))
    }

    #[test]
    fn the_median_round_counts_and_who_had_no_time_left_is_the_limit() {
        let rounds = [seen(3 << 27, 0.4, 0.7), seen(1 << 27, 0.1, 0.2), seen(2 << 27, 0.3, 0.95)];
        let told = concluded(&rounds, 1 << 32);
        assert_eq!(told.gbps, Some([1.073741824, 2.147483648, 3.221225472]));
        assert_eq!(told.cpu.carrier_user_cores, 0.95);
        assert_eq!((told.bottleneck, told.pinned.switch), (Bottleneck::Switch, vec![0]));
        assert_eq!(concluded(&[seen(1 << 30, 0.98, 0.6)], 1 << 32).bottleneck, Bottleneck::Guest);
        let bound = concluded(&[seen(1 << 30, 0.98, 0.6)], (1 << 30) + (1 << 25));
        assert!(bound.is_lower_bound());
    }
}

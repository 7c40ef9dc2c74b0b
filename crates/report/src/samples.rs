//! Points for tests, made by a simple rule, so that wrong values are visible.

use std::collections::BTreeMap;

use model::state::PathInForce::{self, Synthetic, Vf};

use super::copy::{CopyGuest, CopyHost};
use super::results::{
    Bottleneck, CopySetup, Cpu, FileCopy, GeneratorLoad, GuestRates, PathKind, Pattern, Pinned,
    Point, Results, RingKind, SocketWorkload, Started, Transfer, gbps,
};
use super::stages::Stages;
use super::transfer::{LayerCpu, RoundTrip};

/// A point of `mpps`, limited by the switch.
pub fn point(pattern: Pattern, path: PathKind, frame_bytes: u32, vms: u32, mpps: f64) -> Point {
    Point {
        pattern,
        path,
        vms,
        frame_bytes,
        seconds: 2.0,
        load: GeneratorLoad::Closed,
        ring: RingKind::Split,
        mpps,
        gbps: gbps(mpps, frame_bytes),
        rx_mpps: mpps * 1.25,
        returned_mpps: mpps,
        offered_mpps: mpps * 1.5,
        lost_frames: 0,
        switch_cycles_per_frame: Some(60.0 + f64::from(frame_bytes) / 10.0),
        generator_limit_mpps: 25.5,
        bottleneck: Bottleneck::Switch,
        cpu: Cpu {
            switch_busy_share: 0.97,
            switch_user_cores: 0.98,
            switch_system_cores: 0.01,
            guests_user_cores: 0.25 * f64::from(vms),
            guests_system_cores: 0.02,
            generator_share: 0.6,
            generator_user_cores: 0.4,
            generator_system_cores: 0.01,
        },
        guests: (0..vms)
            .map(|guest| GuestRates {
                guest,
                rx_mpps: mpps * 1.25 / f64::from(vms),
                tx_mpps: mpps / f64::from(vms),
            })
            .collect(),
        drops: BTreeMap::new(),
        pinned: Pinned { switch: vec![0], guests: vec![1], generator: vec![1] },
        burst_mean: Some(31.5),
        round_trip_cycles: Some(140.0),
        others_share: Some(0.0),
        stages: Some(stages()),
    }
}

/// Stages of 66 cycles.
pub fn stages() -> Stages {
    Stages::from_cycles([2.5, 12.0, 8.0, 25.5, 6.0, 0.0, 11.9, 0.1], 3_125)
}

/// The same point with another bottleneck.
pub fn limited(point: Point, bottleneck: Bottleneck) -> Point {
    Point { bottleneck, ..point }
}

/// Points of `shunt lab` with one path: three frame sizes, 1, 2 and 4 guests; one point is a lower
/// bound.
pub fn one_path() -> Vec<Point> {
    let mut points = Vec::new();
    for pattern in Pattern::ALL {
        for (frame, base) in [(64, 6.0), (256, 5.0), (1518, 2.5)] {
            for vms in [1, 2, 4] {
                if pattern == Pattern::EastWest && vms == 1 {
                    continue;
                }
                let mpps = base * (1.0 + 0.1 * f64::from(vms));
                points.push(point(pattern, PathKind::Vf, frame, vms, mpps));
            }
        }
    }
    points[8].bottleneck = Bottleneck::Generator;
    points[7].bottleneck = Bottleneck::Guest;
    points
}

/// Three paths in north/south: vf ahead at small frames, vhost at large ones, virtio far behind.
pub fn three_paths() -> Vec<Point> {
    let mut points = Vec::new();
    for (frame, vf, vhost) in [(64, 9.0, 4.0), (256, 6.0, 4.5), (1518, 2.5, 2.45)] {
        for vms in [1, 2, 4] {
            let more = 1.0 + 0.2 * f64::from(vms);
            points.push(point(Pattern::NorthSouth, PathKind::Vf, frame, vms, vf * more));
            points.push(point(Pattern::NorthSouth, PathKind::Vhost, frame, vms, vhost * more));
            let mut virtio = point(Pattern::NorthSouth, PathKind::Virtio, frame, vms, 0.4);
            virtio.switch_cycles_per_frame = None;
            virtio.stages = None;
            points.push(virtio);
        }
    }
    points
}

/// A run with these points, and text that HTML must escape.
pub fn results(points: Vec<Point>) -> Results {
    Results {
        schema: super::results::SCHEMA,
        version: "0.1.0".to_owned(),
        command: "shunt lab --out '<here>' & wait".to_owned(),
        started: Started::at(1_772_357_400),
        machine: serde_json::json!({
            "hostname": "lab1",
            "cpu_model": "A <fast> CPU & more",
            "cores": 2,
            "hypervisor": true,
            "governor": null,
            "numa": { "nodes": [0, 1] },
        }),
        experiment: None,
        steps_done: 0,
        ended_early: None,
        points,
        transfers: Vec::new(),
        receives: Vec::new(),
        copies: Vec::new(),
        notes: vec!["Two threads shared CPU 1.".to_owned()],
    }
}

/// One stream or request with 64 KiB writes and default buffers; `figure` is in Gbit/s or hundreds
/// of us.
pub fn transfer(
    experiment: &str,
    workload: SocketWorkload,
    path: PathKind,
    figure: f64,
) -> Transfer {
    let us = figure * 100.0;
    let (p99_us, p999_us, max_us) = (us * 1.5, us * 3.0, us * 10.0);
    let round_trip = RoundTrip { p50_us: us, p99_us, p999_us, max_us, per_s: 1e6 / us };
    let requests = workload == SocketWorkload::UdpRequest;
    Transfer {
        experiment: experiment.to_owned(),
        workload,
        pattern: Pattern::NorthSouth,
        path,
        streams: 1,
        send_bytes: 65536,
        buffer_kib: None,
        granted_kib: Some(416),
        seconds: 1.0,
        rounds: 3,
        gbps: (!requests).then_some([figure * 0.9, figure, figure * 1.1]),
        lost_share: matches!(workload, SocketWorkload::UdpTransmit | SocketWorkload::UdpReceive)
            .then_some(0.25),
        round_trip: requests.then_some(round_trip),
        limit: 30.0,
        published: (path == PathKind::Vf).then_some(5.0),
        bottleneck: Bottleneck::Guest,
        cpu: LayerCpu {
            guest_user_cores: 0.05,
            guest_system_cores: 0.45,
            far_user_cores: 0.04,
            far_system_cores: 0.4,
            carrier_user_cores: 0.6,
            carrier_system_cores: 0.4,
            carrier_busy_share: (path != PathKind::Virtio).then_some(0.7),
            softirq_cores: 0.2,
        },
        pinned: Pinned { switch: vec![0], guests: vec![1], generator: vec![1] },
    }
}

/// Transfers of three experiments on two paths, a lower bound among them.
pub fn transfers() -> Vec<Transfer> {
    let mut all = Vec::new();
    for (path, figure) in [(PathKind::Vf, 12.0), (PathKind::Virtio, 6.0)] {
        for experiment in ["ntttcp", "netperf"] {
            let one = transfer(experiment, SocketWorkload::TcpStream, path, figure);
            let small = Transfer { send_bytes: 64, streams: 4, ..one.clone() };
            let bound = Transfer { buffer_kib: Some(1024), ..one.clone() };
            all.extend([one, small, Transfer { bottleneck: Bottleneck::Generator, ..bound }]);
        }
        for workload in
            [SocketWorkload::UdpTransmit, SocketWorkload::UdpReceive, SocketWorkload::UdpRequest]
        {
            all.push(transfer("vpf", workload, path, figure / 10.0));
        }
    }
    all
}

/// A copy of 64 MiB by guests on these paths, each in 0.5 s; the path synthetic uses a tenth more
/// CPU.
pub fn file_copy(setup: CopySetup, paths: &[PathInForce]) -> FileCopy {
    let spread = |median: f64| [median * 0.9, median, median * 1.1];
    let checksum = "00000000000000ab".to_owned();
    let more = |path| if path == Synthetic { 1.1 } else { 1.0 };
    let guest = |&path: &PathInForce| CopyGuest {
        path,
        seconds: spread(0.5),
        gbps: spread(1.07),
        user_cores: spread(0.02),
        system_cores: spread(0.03),
        cpu_s_per_gib: spread(0.4 * more(path)),
        bytes: 64 << 20,
        checksum: checksum.clone(),
    };
    FileCopy {
        setup,
        file_mib: 64,
        checksum: checksum.clone(),
        rounds: 3,
        seconds: spread(0.5),
        gbps: spread(1.07 * paths.len() as f64),
        guests: paths.iter().map(guest).collect(),
        host: CopyHost {
            server_user_cores: spread(0.01),
            server_system_cores: spread(0.25),
            daemon_user_cores: spread(0.4),
            daemon_system_cores: spread(0.6),
            lane_busy_share: spread(0.8),
            lane_cycles_per_kib: spread(900.0 * more(paths[0])),
            softirq_cores: spread(0.2),
        },
        pinned: Pinned { switch: vec![0], guests: vec![1], generator: vec![1] },
    }
}

/// Copies of hyperv-2012's experiment: four guests together, and one alone on either path.
pub fn copies() -> Vec<FileCopy> {
    vec![
        file_copy(CopySetup::Together, &[Vf, Vf, Synthetic, Synthetic]),
        file_copy(CopySetup::Alone, &[Vf]),
        file_copy(CopySetup::Alone, &[Synthetic]),
    ]
}

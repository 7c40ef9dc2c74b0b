//! One measurement of traffic over guests' sockets.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use host::CpuTime;
use report::{LayerCpu, PathKind, Pattern, SocketWorkload};
use traffic::protocol::sockets::{
    BulkResult, NetNamespace, RoundTripResult, RunTimes, SocketLoad, SocketRole, SocketSpec,
};
use traffic::{Event, Task};

use crate::bench::{Carrier, CarrierSpec, GuestProcess, Placement, mac_text, plan};
use crate::measure::softirq;

/// Addresses of the guest and the far end, of the benchmark range (RFC 2544).
const GUEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Load to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferLoad {
    /// Kind of traffic.
    pub workload: SocketWorkload,
    /// Connections, or sockets.
    pub streams: u32,
    /// Bytes of a write, or of a datagram.
    pub send_bytes: u32,
    /// Socket buffers, KiB; `None`: the kernel's default.
    pub buffer_kib: Option<u32>,
}

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct TransferSettings {
    /// The shunt binary.
    pub program: PathBuf,
    /// Allowed CPUs.
    pub cpus: Vec<usize>,
    /// Paths, in the order of measurement.
    pub paths: Vec<PathKind>,
    /// Location of the far end.
    pub pattern: Pattern,
    /// Measurements of each traffic on each path.
    pub rounds: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransferRun {
    pub(super) received: BulkResult,
    pub(super) asked: Option<RoundTripResult>,
    pub(super) cpu: LayerCpu,
}

impl TransferRun {
    pub(super) fn gbps(&self) -> f64 {
        self.received.bytes as f64 * 8.0 / self.received.seconds.max(f64::EPSILON) / 1e9
    }

    pub(super) fn lost_share(&self) -> f64 {
        let BulkResult { datagrams, sent, .. } = self.received;
        // Some frames sent before the measurement arrive in it.
        sent.saturating_sub(datagrams) as f64 / sent.max(1) as f64
    }
}

/// Direction: the sending and the receiving end.
struct Ends {
    guest: SocketRole,
    far: SocketRole,
    guest_measures: bool,
}

fn ends(workload: SocketWorkload, times: RunTimes, loopback: bool) -> Ends {
    let (guest, far) =
        if loopback { (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST) } else { (GUEST, FAR) };
    let (guest, far) = match workload {
        SocketWorkload::TcpStream | SocketWorkload::UdpTransmit => {
            (SocketRole::Send(far), SocketRole::Receive(times))
        }
        SocketWorkload::UdpReceive => (SocketRole::Receive(times), SocketRole::Send(guest)),
        SocketWorkload::UdpRequest => (SocketRole::Ask(far, times), SocketRole::Answer),
    };
    let guest_measures = matches!(guest, SocketRole::Receive(_) | SocketRole::Ask(..));
    Ends { guest, far, guest_measures }
}

/// Measures once; without a path, over loopback.
pub(super) fn measure(
    settings: &TransferSettings,
    traffic: &TransferLoad,
    path: Option<PathKind>,
) -> Result<TransferRun> {
    let placement = plan(&settings.cpus, 1);
    let load = SocketLoad {
        tcp: traffic.workload == SocketWorkload::TcpStream,
        streams: traffic.streams,
        bytes: traffic.send_bytes,
        buffer: traffic.buffer_kib.map(|kib| kib << 10),
    };
    let seconds = settings.seconds;
    let (warmup_s, cooldown_s) =
        ((seconds / 4.0).clamp(0.2, 5.0), (seconds / 10.0).clamp(0.1, 5.0));
    let ends = ends(traffic.workload, RunTimes { warmup_s, seconds, cooldown_s }, path.is_none());
    let start = |cpu, room, part: &SocketRole| {
        let spec = SocketSpec { cpu, room, part: part.clone(), load };
        GuestProcess::start_task(&settings.program, &Task::Sockets(spec))
    };
    let own = |ip, number| NetNamespace::Own { ip, mac: mac_text(number, 0).to_string() };
    let (guest_cpu, mut far_cpu) = cpus_of_ends(&placement);
    if path.is_none() && traffic.workload != SocketWorkload::UdpRequest {
        // An upper bound needs all CPUs of the paths: that of the carrier is free.
        far_cpu = placement.switch.or(far_cpu);
    }
    let guest_room = if path.is_some() { own(GUEST, 0) } else { NetNamespace::Alone };
    let mut guest = start(guest_cpu, guest_room, &ends.guest)?;
    let far_room = if path.is_some() { own(FAR, 1) } else { NetNamespace::Of(guest.pid()) };
    let mut far = start(far_cpu, far_room, &ends.far)?;
    let mut carrier = match path {
        None => Carrier::Loopback,
        Some(path) => Carrier::start(
            &settings.program,
            &CarrierSpec {
                path,
                pattern: settings.pattern,
                cpu: placement.switch,
                guest: guest.pid(),
                far: far.pid(),
            },
        )?,
    };
    guest.go()?;
    far.go()?;
    observe(&mut carrier, [&mut guest, &mut far], ends.guest_measures)
}

/// CPUs of the guest and of the far end, which is the generator's if there is one.
pub(super) fn cpus_of_ends(placement: &Placement) -> (Option<usize>, Option<usize>) {
    let guest = placement.guests[0].0;
    (guest, placement.generator.or(guest))
}

/// CPU use of all at one moment.
struct Used {
    guest: CpuTime,
    far: CpuTime,
    carrier: CpuTime,
    softirq_s: f64,
    cycles: Option<(u64, u64)>,
}

impl Used {
    fn read(carrier: &mut Carrier, guest: &GuestProcess, far: &GuestProcess) -> Result<Used> {
        let cycles = carrier.cycles()?;
        let (guest, far, carrier) = (guest.cpu()?, far.cpu()?, carrier.cpu()?);
        Ok(Used { guest, far, carrier, softirq_s: softirq::seconds()?, cycles })
    }

    fn layers(&self, before: &Used, seconds: f64) -> LayerCpu {
        let cores = |after: &CpuTime, before: &CpuTime| {
            let time = after.since(before);
            (time.user_s / seconds, time.system_s / seconds)
        };
        let (guest_user_cores, guest_system_cores) = cores(&self.guest, &before.guest);
        let (far_user_cores, far_system_cores) = cores(&self.far, &before.far);
        let (carrier_user_cores, carrier_system_cores) = cores(&self.carrier, &before.carrier);
        let busy = |((busy, idle), (busy_before, idle_before)): ((u64, u64), (u64, u64))| {
            let (busy, idle) = (busy - busy_before, idle - idle_before);
            busy as f64 / (busy + idle).max(1) as f64
        };
        LayerCpu {
            guest_user_cores,
            guest_system_cores,
            far_user_cores,
            far_system_cores,
            carrier_user_cores,
            carrier_system_cores,
            carrier_busy_share: self.cycles.zip(before.cycles).map(busy),
            softirq_cores: (self.softirq_s - before.softirq_s).max(0.0) / seconds,
        }
    }
}

/// Takes readings when the measuring end begins and ends.
fn observe(
    carrier: &mut Carrier,
    [guest, far]: [&mut GuestProcess; 2],
    guest_measures: bool,
) -> Result<TransferRun> {
    fn measuring<'a>(
        guest: &'a mut GuestProcess,
        far: &'a mut GuestProcess,
        guest_measures: bool,
    ) -> &'a mut GuestProcess {
        if guest_measures { guest } else { far }
    }
    measuring(guest, far, guest_measures).begin()?;
    let before = Used::read(carrier, guest, far)?;
    measuring(guest, far, guest_measures).end()?;
    let after = Used::read(carrier, guest, far)?;
    let (received, asked) = match measuring(guest, far, guest_measures).hear()? {
        Event::Received(received) => (received, None),
        Event::Asked(asked) => {
            (BulkResult { seconds: asked.seconds, ..BulkResult::default() }, Some(asked))
        }
        other => bail!("the measuring end said {other:?} and no result"),
    };
    carrier.check_alive()?;
    let moved = received.bytes + asked.map_or(0, |asked| asked.answered);
    ensure!(moved > 0, "nothing arrived in {:.1} s", received.seconds);
    let cpu = after.layers(&before, received.seconds);
    Ok(TransferRun { received, asked, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_received_is_lost_and_what_came_late_is_not_negative() {
        let of = |datagrams, sent| {
            let received = BulkResult { datagrams, sent, ..BulkResult::default() };
            TransferRun { received, ..TransferRun::default() }.lost_share()
        };
        assert_eq!([of(75, 100), of(101, 100), of(0, 0)], [0.25, 0.0, 0.0]);
    }

    #[test]
    fn who_measures_is_who_hears() {
        let times = RunTimes { warmup_s: 0.0, seconds: 1.0, cooldown_s: 0.0 };
        let measures =
            SocketWorkload::ALL.map(|workload| ends(workload, times, false).guest_measures);
        assert_eq!(measures, [false, false, true, true]);
        let SocketRole::Send(to) = ends(SocketWorkload::UdpReceive, times, false).far else {
            panic!("sends")
        };
        assert_eq!(to, GUEST);
    }
}

//! What the experiments over guests' sockets share: how one is measured, and how rounds become figures.
//!
//! Each measurement makes everything anew: two guests, each a network namespace with a program in it,
//! and what carries their frames. In every round each traffic is first measured over loopback, which is
//! the self-test of the programs, and then over the paths in turn, so that paths are compared
//! under the same weather.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use host::CpuTime;

use super::sample::spread;
use super::suite;
use crate::bench::{Between, Carrier, GuestProcess, Placement, arena, mac_text, plan};
use crate::guest::sockets::{Asked, Load, Part, Received, Room, SocketSpec, Times};
use crate::guest::{Event, Task};
use crate::measure::softirq;
use crate::report::{
    Bottleneck, Experiment, Layers, PathKind, Pattern, Pinned, RoundTrip, Transfer, Workload,
};

/// The guest's address, and the far end's: of the range for benchmarks (RFC 2544).
const GUEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// A carrier or an end that works for this share of the time is at its limit, and so are the programs
/// with this share of what they can do over loopback.
const SATURATED: f64 = 0.9;

/// Traffic to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Its kind.
    pub workload: Workload,
    /// Connections, or sockets.
    pub streams: u32,
    /// Bytes of a write, or of a datagram.
    pub send_bytes: u32,
    /// KiB of socket buffers; `None`: as the kernel gives.
    pub buffer_kib: Option<u32>,
}

/// How it is to be measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shunt itself.
    pub program: PathBuf,
    /// CPUs that may be used.
    pub cpus: Vec<usize>,
    /// The paths, in the order of measurement.
    pub paths: Vec<PathKind>,
    /// What the far end is.
    pub pattern: Pattern,
    /// How often each traffic is measured on each path.
    pub rounds: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    received: Received,
    asked: Option<Asked>,
    cpu: Layers,
}

impl Seen {
    fn gbps(&self) -> f64 {
        self.received.bytes as f64 * 8.0 / self.received.seconds.max(f64::EPSILON) / 1e9
    }

    fn lost_share(&self) -> f64 {
        let Received { datagrams, sent, .. } = self.received;
        // Some that were sent before the measurement arrive in it.
        sent.saturating_sub(datagrams) as f64 / sent.max(1) as f64
    }
}

/// Measures each traffic on each path, round by round. `done` is told of each step, and of how many.
///
/// # Errors
/// The machine lets this user make no network namespaces, or something does not work.
pub fn run(
    settings: &Settings,
    experiment: Experiment,
    traffics: &[Traffic],
    mut done: impl FnMut(usize, usize),
) -> Result<Vec<Transfer>> {
    if let Err(why) = arena::enter() {
        bail!("this experiment needs network namespaces for its guests: {why}");
    }
    let mut transfers = Vec::new();
    let steps = traffics.len() * settings.rounds * (settings.paths.len() + 1);
    let mut step = 0;
    for traffic in traffics {
        let mut limits = Vec::new();
        let mut seen = vec![Vec::new(); settings.paths.len()];
        for _ in 0..settings.rounds {
            let mut one = |path| {
                step += 1;
                let measured = measure(settings, traffic, path);
                done(step, steps);
                measured.with_context(|| match path {
                    Some(path) => format!("{experiment} on path {path}"),
                    None => format!("{experiment} over loopback"),
                })
            };
            limits.push(one(None)?);
            for (path, seen) in settings.paths.iter().zip(&mut seen) {
                seen.push(one(Some(*path))?);
            }
        }
        for (path, seen) in settings.paths.iter().zip(&seen) {
            let transfer = conclude(settings, (experiment, *path), traffic, (seen, &limits));
            transfer.check().context("the measurement contradicts itself")?;
            transfers.push(transfer);
        }
    }
    Ok(transfers)
}

/// The paths that can be measured, and what is to be said of the others.
pub fn paths() -> (Vec<PathKind>, Vec<String>) {
    suite::paths()
}

/// Which of the two ends sends.
struct Ends {
    guest: Part,
    far: Part,
    guest_measures: bool,
}

fn ends(workload: Workload, times: Times, loopback: bool) -> Ends {
    let (guest, far) =
        if loopback { (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST) } else { (GUEST, FAR) };
    let (guest, far) = match workload {
        Workload::TcpStream | Workload::UdpTransmit => (Part::Send(far), Part::Receive(times)),
        Workload::UdpReceive => (Part::Receive(times), Part::Send(guest)),
        Workload::UdpRequest => (Part::Ask(far, times), Part::Answer),
    };
    let guest_measures = matches!(guest, Part::Receive(_) | Part::Ask(..));
    Ends { guest, far, guest_measures }
}

/// Measures once; without a path, over loopback.
fn measure(settings: &Settings, traffic: &Traffic, path: Option<PathKind>) -> Result<Seen> {
    let placement = plan(&settings.cpus, 1);
    let load = Load {
        tcp: traffic.workload == Workload::TcpStream,
        streams: traffic.streams,
        bytes: traffic.send_bytes,
        buffer: traffic.buffer_kib.map(|kib| kib << 10),
    };
    let seconds = settings.seconds;
    let (warmup_s, cooldown_s) =
        ((seconds / 4.0).clamp(0.2, 5.0), (seconds / 10.0).clamp(0.1, 5.0));
    let ends = ends(traffic.workload, Times { warmup_s, seconds, cooldown_s }, path.is_none());
    let start = |cpu, room, part: &Part| {
        let spec = SocketSpec { cpu, room, part: part.clone(), load };
        GuestProcess::start_task(&settings.program, &Task::Sockets(spec))
    };
    let own = |ip, number| Room::Own { ip, mac: mac_text(number, 0).to_string() };
    let (guest_cpu, far_cpu) = cpus_of_ends(&placement);
    let guest_room = if path.is_some() { own(GUEST, 0) } else { Room::Alone };
    let mut guest = start(guest_cpu, guest_room, &ends.guest)?;
    let far_room = if path.is_some() { own(FAR, 1) } else { Room::Of(guest.pid()) };
    let mut far = start(far_cpu, far_room, &ends.far)?;
    let mut carrier = match path {
        None => Carrier::Loopback,
        Some(path) => Carrier::start(
            &settings.program,
            &Between {
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

/// The guest's CPU, and that of the far end, which is the generator's where there is one.
fn cpus_of_ends(placement: &Placement) -> (Option<usize>, Option<usize>) {
    let guest = placement.guests[0].0;
    (guest, placement.generator.or(guest))
}

/// What all have used at one moment.
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

    fn layers(&self, before: &Used, seconds: f64) -> Layers {
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
        Layers {
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

/// Reads everything when the measuring end begins and when it ends.
fn observe(
    carrier: &mut Carrier,
    [guest, far]: [&mut GuestProcess; 2],
    guest_measures: bool,
) -> Result<Seen> {
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
            (Received { seconds: asked.seconds, ..Received::default() }, Some(asked))
        }
        other => bail!("the measuring end said {other:?} and no result"),
    };
    carrier.check_alive()?;
    let moved = received.bytes + asked.map_or(0, |asked| asked.answered);
    ensure!(moved > 0, "nothing arrived in {:.1} s", received.seconds);
    let cpu = after.layers(&before, received.seconds);
    Ok(Seen { received, asked, cpu })
}

/// The figures of one traffic on one path: medians of the rounds.
fn conclude(
    settings: &Settings,
    (experiment, path): (Experiment, PathKind),
    traffic: &Traffic,
    (seen, limits): (&[Seen], &[Seen]),
) -> Transfer {
    let Traffic { workload, streams, send_bytes, buffer_kib } = *traffic;
    let requests = workload == Workload::UdpRequest;
    let placement = plan(&settings.cpus, 1);
    let (guest_cpu, far_cpu) = cpus_of_ends(&placement);
    let middle = middle(seen);
    let limit = if requests {
        median(limits, |seen| seen.asked.map_or(0.0, |asked| asked.p50_us))
    } else {
        median(limits, Seen::gbps)
    };
    let is_udp = matches!(workload, Workload::UdpTransmit | Workload::UdpReceive);
    let mut transfer = Transfer {
        experiment,
        workload,
        pattern: settings.pattern,
        path,
        streams,
        send_bytes,
        buffer_kib,
        granted_kib: (!requests).then_some((middle.received.buffer >> 10) as u32),
        seconds: settings.seconds,
        rounds: seen.len() as u32,
        gbps: (!requests).then(|| spread(seen.iter().map(Seen::gbps).collect())),
        lost_share: is_udp.then(|| median(seen, Seen::lost_share)),
        round_trip: requests.then(|| round_trip(seen)),
        limit,
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
fn middle(seen: &[Seen]) -> Seen {
    let mut sorted = seen.to_vec();
    let figure = |seen: &Seen| seen.asked.map_or_else(|| seen.gbps(), |asked| asked.p50_us);
    sorted.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn median(seen: &[Seen], of: impl Fn(&Seen) -> f64) -> f64 {
    spread(seen.iter().map(of).collect())[1]
}

fn round_trip(seen: &[Seen]) -> RoundTrip {
    let of = |what: fn(&Asked) -> f64| median(seen, |seen| seen.asked.as_ref().map_or(0.0, what));
    RoundTrip {
        p50_us: of(|asked| asked.p50_us),
        p99_us: of(|asked| asked.p99_us),
        p999_us: of(|asked| asked.p999_us),
        max_us: of(|asked| asked.max_us),
        per_s: of(|asked| asked.answered as f64 / asked.seconds),
    }
}

/// Who kept it from going faster: the programs, if they do hardly more over loopback; the carrier, if it
/// had no time left; else the guests' kernels and what they wait for.
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

/// Checks what a person asked for.
///
/// # Errors
/// One sentence that names the option, the value and what is allowed.
pub fn check(seconds: f64, rounds: usize) -> Result<(), String> {
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(format!("--seconds {seconds}: 0.1 to 3600 are possible"));
    }
    if !(1..=100).contains(&rounds) {
        return Err(format!("--rounds {rounds}: 1 to 100 are possible"));
    }
    Ok(())
}

/// What a reader has to know of these figures.
pub fn notes(settings: &Settings) -> Vec<String> {
    let mut notes = vec![
        "A guest is a network namespace, not a virtual machine: entering and leaving a guest costs nothing here.".to_owned(),
    ];
    let placement = plan(&settings.cpus, 1);
    let (guest, far) = cpus_of_ends(&placement);
    match placement.switch.zip(guest) {
        Some((carrier, guest)) if far == Some(guest) => notes.push(format!(
            "Both ends shared CPU {guest}; what carries their frames, the daemon's lane or the relays, had CPU {carrier}."
        )),
        Some(_) => {}
        None => notes.push("One CPU: both ends and what carries their frames took turns on it.".into()),
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bytes: u64, ends: f64, carrier: f64) -> Seen {
        let cpu =
            Layers { guest_system_cores: ends, carrier_user_cores: carrier, ..Layers::default() };
        let received = Received { seconds: 1.0, bytes, ..Received::default() };
        Seen { received, asked: None, cpu }
    }

    fn concluded(seen: &[Seen], limit: u64) -> Transfer {
        let settings = Settings {
            program: PathBuf::new(),
            cpus: vec![0, 1],
            paths: vec![PathKind::Virtio],
            pattern: Pattern::NorthSouth,
            rounds: seen.len(),
            seconds: 1.0,
        };
        let traffic = super::super::ntttcp::traffics()[0];
        let which = (Experiment::Ntttcp, PathKind::Virtio);
        conclude(&settings, which, &traffic, (seen, &[self::seen(limit, 1.0, 0.0)]))
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

    #[test]
    fn what_was_not_received_is_lost_and_what_came_late_is_not_negative() {
        let of = |datagrams, sent| {
            let received = Received { datagrams, sent, ..Received::default() };
            Seen { received, ..Seen::default() }.lost_share()
        };
        assert_eq!([of(75, 100), of(101, 100), of(0, 0)], [0.25, 0.0, 0.0]);
    }

    #[test]
    fn who_measures_is_who_hears() {
        let times = Times { warmup_s: 0.0, seconds: 1.0, cooldown_s: 0.0 };
        let measures = Workload::ALL.map(|workload| ends(workload, times, false).guest_measures);
        assert_eq!(measures, [false, false, true, true]);
        let Part::Send(to) = ends(Workload::UdpReceive, times, false).far else { panic!("sends") };
        assert_eq!(to, GUEST);
    }
}

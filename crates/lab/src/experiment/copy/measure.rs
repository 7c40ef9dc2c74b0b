//! One measurement of file copies.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use host::CpuTime;
use model::state::PathInForce;
use report::Pinned;
use traffic::protocol::sockets::{
    Fetched, NetNamespace, Served, SocketLoad, SocketRole, SocketSpec,
};
use traffic::{Event, Task};

use crate::bench::{
    AdapterPlan, BenchAttachment, GuestProcess, SwitchedBench, SwitchedPlan, mac_text, plan,
};
use crate::experiment::sample::{Sample, switch_counts};
use crate::measure::softirq;

/// Address of the server; guests have the following ones, of the benchmark range (RFC 2544).
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Bytes of each read, and of each sendfile(2).
const CHUNK: u32 = 128 << 10;

/// Settings of the copies.
#[derive(Clone, Debug)]
pub struct CopySettings {
    /// The shunt binary.
    pub program: PathBuf,
    /// Allowed CPUs.
    pub cpus: Vec<usize>,
    /// File size, MiB.
    pub file_mib: u32,
    /// Measurements of each setup.
    pub rounds: usize,
}

/// One guest of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GuestCopy {
    pub(super) path: PathInForce,
    /// Time from the common start to the end of its copy.
    pub(super) seconds: f64,
    /// CPU time of its process, in ticks.
    pub(super) cpu: CpuTime,
    pub(super) fetched: Fetched,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CopyRun {
    pub(super) checksum: u64,
    pub(super) guests: Vec<GuestCopy>,
    /// Time between both readings of CPU time.
    pub(super) read_s: f64,
    pub(super) server: CpuTime,
    pub(super) daemon: CpuTime,
    pub(super) lane_busy_cycles: u64,
    pub(super) lane_busy_share: f64,
    pub(super) softirq_s: f64,
}

/// CPUs of the lane, the guests and the server.
pub(super) fn cpus(allowed: &[usize], guests: usize) -> Pinned {
    let placement = plan(allowed, guests);
    let guests: Vec<usize> = placement.guests.iter().filter_map(|(cpu, _)| *cpu).collect();
    let server = placement.generator.or(guests.first().copied());
    Pinned {
        switch: placement.switch.into_iter().collect(),
        generator: server.into_iter().collect(),
        guests,
    }
}

/// Copies the file to one guest for each path, all at once.
pub(super) fn measure(settings: &CopySettings, paths: &[PathInForce]) -> Result<CopyRun> {
    let pinned = cpus(&settings.cpus, paths.len());
    let start = |cpu, number: usize, part, streams| {
        let ip = Ipv4Addr::from_bits(SERVER.to_bits() + number as u32);
        let room = NetNamespace::Own { ip, mac: mac_text(number, 0).to_string() };
        let load = SocketLoad { tcp: true, streams, bytes: CHUNK, buffer: None };
        let spec = SocketSpec { cpu, room, part, load };
        GuestProcess::start_task(&settings.program, &Task::Sockets(spec))
    };
    let server_cpu = pinned.generator.first().copied();
    let mut server =
        start(server_cpu, 0, SocketRole::Serve(settings.file_mib), paths.len() as u32)?;
    let mut guests = Vec::new();
    for number in 0..paths.len() {
        let cpu = pinned.guests.iter().cycle().nth(number).copied();
        guests.push(start(cpu, number + 1, SocketRole::Fetch(SERVER), 1)?);
    }
    let adapter = |(number, (path, guest)): (usize, (&PathInForce, &GuestProcess))| AdapterPlan {
        attached: BenchAttachment::Tap { of: guest.pid() },
        mac: mac_text(number + 1, 0),
        path: *path,
    };
    let plan = SwitchedPlan {
        cpu: pinned.switch.first().copied(),
        uplink: Some(BenchAttachment::Tap { of: server.pid() }),
        adapters: paths.iter().zip(&guests).enumerate().map(adapter).collect(),
    };
    let mut switched = SwitchedBench::start(&settings.program, &plan)?;
    server.go()?;
    guests.iter_mut().try_for_each(GuestProcess::go)?;
    let seen = observe(&mut switched, &mut server, &mut guests, paths)?;
    switched.bench.check_alive()?;
    seen.check(u64::from(settings.file_mib) << 20)?;
    Ok(seen)
}

/// Readings of all layers at one moment.
struct Reading {
    at: Instant,
    sample: Sample,
    server: CpuTime,
    softirq_s: f64,
}

impl Reading {
    fn take(
        switched: &mut SwitchedBench,
        server: &GuestProcess,
        guests: &[GuestProcess],
    ) -> Result<Reading> {
        let sample = Sample::take(Some(&mut switched.bench), guests)?;
        let (server, softirq_s) = (server.cpu()?, softirq::seconds()?);
        Ok(Reading { at: Instant::now(), sample, server, softirq_s })
    }
}

/// Starts the copies when all guests are connected, and reads every layer before and after.
fn observe(
    switched: &mut SwitchedBench,
    server: &mut GuestProcess,
    guests: &mut [GuestProcess],
    paths: &[PathInForce],
) -> Result<CopyRun> {
    server.begin()?;
    let before = Reading::take(switched, server, guests)?;
    server.mark()?;
    let fetched = guests.iter_mut().map(fetched).collect::<Result<Vec<_>>>()?;
    let after = Reading::take(switched, server, guests)?;
    let served = match server.hear()? {
        Event::Served(served) => served,
        other => bail!("the server said {other:?} and not that it has sent the file"),
    };
    let lane = switch_counts(&before.sample.stats, &after.sample.stats)?;
    let guest = |(i, fetched): (usize, Fetched)| GuestCopy {
        path: paths[i],
        seconds: seconds(&served, &fetched),
        cpu: after.sample.guests_cpu[i].since(&before.sample.guests_cpu[i]),
        fetched,
    };
    Ok(CopyRun {
        checksum: served.checksum,
        guests: fetched.into_iter().enumerate().map(guest).collect(),
        read_s: (after.at - before.at).as_secs_f64(),
        server: after.server.since(&before.server),
        daemon: after.sample.switch_cpu.since(&before.sample.switch_cpu),
        lane_busy_cycles: lane.busy_cycles,
        lane_busy_share: lane.busy_share(),
        softirq_s: (after.softirq_s - before.softirq_s).max(0.0),
    })
}

fn fetched(guest: &mut GuestProcess) -> Result<Fetched> {
    match guest.hear()? {
        Event::Fetched(fetched) => Ok(fetched),
        other => bail!("a guest said {other:?} and not that it has the file"),
    }
}

/// Time from the common start to the end of a copy.
fn seconds(served: &Served, fetched: &Fetched) -> f64 {
    fetched.ended_ns.saturating_sub(served.started_ns).max(1) as f64 / 1e9
}

impl CopyRun {
    /// Bytes received by all guests.
    pub(super) fn bytes(&self) -> u64 {
        self.guests.iter().map(|guest| guest.fetched.bytes).sum()
    }

    /// Checks that every guest has the file of `bytes` bytes.
    fn check(&self, bytes: u64) -> Result<()> {
        for (number, guest) in self.guests.iter().enumerate() {
            let (path, got) = (guest.path, guest.fetched.bytes);
            ensure!(got == bytes, "guest {number} on path {path} got {got} of {bytes} bytes");
            let (was, is) = (self.checksum, guest.fetched.checksum);
            ensure!(was == is, "guest {number} on path {path}: checksum {is:016x}, not {was:016x}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_file_or_the_guest_is_named() {
        let fetched = Fetched { ended_ns: 2_500_000_000, bytes: 100, checksum: 7, cpu_s: 0.1 };
        let served = Served { started_ns: 1_000_000_000, checksum: 7 };
        assert_eq!(seconds(&served, &fetched), 1.5);
        let guest =
            GuestCopy { path: PathInForce::Vf, seconds: 1.5, cpu: CpuTime::default(), fetched };
        let mut seen = CopyRun {
            checksum: 7,
            guests: vec![guest; 2],
            read_s: 1.5,
            server: CpuTime::default(),
            daemon: CpuTime::default(),
            lane_busy_cycles: 0,
            lane_busy_share: 0.0,
            softirq_s: 0.0,
        };
        seen.check(100).unwrap();
        assert_eq!(seen.bytes(), 200);
        let error = seen.check(101).unwrap_err().to_string();
        assert!(error.contains("guest 0 on path vf got 100 of 101 bytes"), "{error}");
        seen.guests[1].fetched.checksum = 8;
        let error = seen.check(100).unwrap_err().to_string();
        assert!(error.contains("guest 1") && error.contains("0000000000000008"), "{error}");
    }

    #[test]
    fn the_server_has_a_cpu_of_its_own_where_there_are_three() {
        let pinned = |allowed: &[usize]| super::cpus(allowed, 4);
        assert_eq!(pinned(&[3]), Pinned::default());
        let two = pinned(&[3, 5]);
        assert_eq!((two.switch, two.guests, two.generator), (vec![3], vec![5], vec![5]));
        let four = pinned(&[0, 1, 2, 3]);
        assert_eq!((four.switch, four.guests, four.generator), (vec![0], vec![2, 3], vec![1]));
    }
}

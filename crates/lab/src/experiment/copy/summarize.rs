//! Figures from rounds of file copies: minimum, median and maximum.

use super::measure::{CopyRun, CopySettings, GuestCopy, cpus};
use crate::experiment::sample::spread;
use report::copy::{CopyGuest, CopyHost, FileCopy};
use report::{CopySetup, Spread};

const KIB: f64 = 1024.0;
const GIB: f64 = KIB * KIB * KIB;

/// Figures of one setup.
pub(super) fn summarize(settings: &CopySettings, setup: CopySetup, seen: &[CopyRun]) -> FileCopy {
    let rounds: Vec<Vec<&GuestCopy>> = seen.iter().map(by_path).collect();
    let guests = rounds.first().map_or(0, Vec::len);
    let of = |guest: usize| rounds.iter().map(|round| round[guest]).collect::<Vec<_>>();
    FileCopy {
        setup,
        file_mib: settings.file_mib,
        checksum: seen.last().map_or(String::new(), |seen| hex(seen.checksum)),
        rounds: seen.len() as u32,
        seconds: over(seen, CopyRun::seconds),
        gbps: over(seen, |seen| gbps(seen.bytes(), seen.seconds())),
        guests: (0..guests).map(|number| guest(&of(number))).collect(),
        host: host(seen),
        pinned: cpus(&settings.cpus, guests),
    }
}

/// Guests of a round, sorted by path.
fn by_path(seen: &CopyRun) -> Vec<&GuestCopy> {
    let mut guests: Vec<&GuestCopy> = seen.guests.iter().collect();
    guests.sort_by_key(|guest| guest.path);
    guests
}

fn guest(rounds: &[&GuestCopy]) -> CopyGuest {
    let over = |value: fn(&GuestCopy) -> f64| over(rounds, |guest| value(guest));
    let last = rounds[rounds.len() - 1];
    CopyGuest {
        path: last.path,
        seconds: over(|guest| guest.seconds),
        gbps: over(|guest| gbps(guest.fetched.bytes, guest.seconds)),
        user_cores: over(|guest| guest.cpu.user_s / guest.seconds),
        system_cores: over(|guest| guest.cpu.system_s / guest.seconds),
        cpu_s_per_gib: over(|guest| guest.fetched.cpu_s / (guest.fetched.bytes as f64 / GIB)),
        bytes: last.fetched.bytes,
        checksum: hex(last.fetched.checksum),
    }
}

fn host(seen: &[CopyRun]) -> CopyHost {
    let cycles_per_kib =
        |seen: &CopyRun| seen.lane_busy_cycles as f64 / (seen.bytes() as f64 / KIB);
    CopyHost {
        server_user_cores: over(seen, |seen| seen.server.user_s / seen.read_s),
        server_system_cores: over(seen, |seen| seen.server.system_s / seen.read_s),
        daemon_user_cores: over(seen, |seen| seen.daemon.user_s / seen.read_s),
        daemon_system_cores: over(seen, |seen| seen.daemon.system_s / seen.read_s),
        lane_busy_share: over(seen, |seen| seen.lane_busy_share),
        lane_cycles_per_kib: over(seen, cycles_per_kib),
        softirq_cores: over(seen, |seen| seen.softirq_s / seen.read_s),
    }
}

fn over<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> Spread {
    spread(rounds.iter().map(value))
}

fn gbps(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds / 1e9
}

fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}

impl CopyRun {
    /// Time from the common start to the end of the last copy.
    fn seconds(&self) -> f64 {
        self.guests.iter().map(|guest| guest.seconds).fold(f64::MIN_POSITIVE, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use host::CpuTime;
    use model::state::PathInForce::{Synthetic, Vf};

    use super::*;
    use traffic::protocol::sockets::Fetched;

    /// A round in which each guest got 1 GiB: first path, seconds of the guests on path vf.
    fn round(first: model::state::PathInForce, vf_s: f64) -> CopyRun {
        let guest = |path| {
            let seconds = if path == Vf { vf_s } else { 4.0 };
            let cpu = CpuTime { user_s: 0.5, system_s: 1.0 };
            let fetched =
                Fetched { ended_ns: 0, bytes: 1 << 30, checksum: 0xab, cpu_s: seconds / 4.0 };
            GuestCopy { path, seconds, cpu, fetched }
        };
        let second = if first == Vf { Synthetic } else { Vf };
        CopyRun {
            checksum: 0xab,
            guests: [first, second, second, first].map(guest).to_vec(),
            read_s: 4.0,
            server: CpuTime { user_s: 0.0, system_s: 2.0 },
            daemon: CpuTime { user_s: 1.0, system_s: 3.0 },
            lane_busy_cycles: 400 << 22,
            lane_busy_share: 0.5,
            softirq_s: 1.0,
        }
    }

    #[test]
    fn guests_are_told_by_path_and_rounds_by_their_median() {
        let rounds = [round(Vf, 2.0), round(Synthetic, 1.0), round(Vf, 3.0)];
        let settings = CopySettings {
            program: Default::default(),
            cpus: vec![0, 1],
            file_mib: 1024,
            rounds: 3,
        };
        let copy = summarize(&settings, CopySetup::Together, &rounds);
        copy.check().unwrap();
        let paths: Vec<_> = copy.guests.iter().map(|guest| guest.path).collect();
        assert_eq!(paths, [Vf, Vf, Synthetic, Synthetic]);
        let vf = &copy.guests[0];
        assert_eq!(vf.seconds, [1.0, 2.0, 3.0]);
        assert_eq!(vf.cpu_s_per_gib, [0.25, 0.5, 0.75]);
        assert_eq!((vf.user_cores[1], vf.system_cores[1]), (0.25, 0.5));
        assert_eq!((vf.bytes, vf.checksum.as_str()), (1 << 30, "00000000000000ab"));
        assert_eq!(vf.checksum, copy.checksum);
        // All four: 4 GiB in 4 s: 4 Mi KiB in 400 Mi x 4 cycles.
        assert_eq!(copy.seconds, [4.0; 3]);
        assert_eq!(copy.gbps[1], 8.589934592);
        assert_eq!(copy.host.lane_cycles_per_kib, [400.0; 3]);
        assert_eq!(
            (copy.host.daemon_user_cores[1], copy.host.daemon_system_cores[1]),
            (0.25, 0.75)
        );
        assert_eq!((copy.host.server_system_cores[1], copy.host.softirq_cores[1]), (0.5, 0.25));
        assert_eq!((copy.pinned.switch, copy.pinned.guests), (vec![0], vec![1]));
    }
}

//! Text comparing our file copies with hyperv-2012's.

use model::state::PathInForce::{self, Synthetic, Vf};

use super::copy::{CopyGuest, FileCopy, by_size};
use super::format::{percent, three};
use super::names::CopySetup;
use super::published;
use super::transfer::Spread;

/// Relative difference above which we call a difference large; the paper gives no number.
const LARGE: f64 = 0.25;

/// Reason why our ratio of host work may differ from the paper's.
pub const WHY: &str = "Here NIC and switch are software in one lane, while a real NIC's work costs \
the host no CPU. A tap's copies are in the kernel on both paths, and so is what a guest's kernel \
receives: in the context of the daemon, which writes to the tap. Both are in the lane's busy \
cycles.";

/// For each file size, a sentence on the guests' CPU and on the host's, if measured.
pub fn sentences(copies: &[FileCopy]) -> Vec<String> {
    let named = by_size(copies).nth(1).is_some();
    let of_size = |copies: &[FileCopy]| {
        let mut all = of_size(copies);
        if let Some(first) = all.first_mut().filter(|_| named) {
            *first = format!("A file of {} MiB. {first}", copies[0].file_mib);
        }
        all
    };
    by_size(copies).flat_map(of_size).collect()
}

fn of_size(copies: &[FileCopy]) -> Vec<String> {
    let together = copies.iter().find(|copy| copy.setup == CopySetup::Together);
    let alone = |path| copies.iter().find(|copy| is_alone(copy, path));
    let guests = together.and_then(guests);
    let host = alone(Vf).zip(alone(Synthetic)).map(|(vf, synthetic)| host(vf, synthetic));
    guests.into_iter().chain(host.into_iter().flatten()).collect()
}

fn is_alone(copy: &FileCopy, path: PathInForce) -> bool {
    copy.setup == CopySetup::Alone && copy.guests.iter().all(|guest| guest.path == path)
}

/// CPU of the guests of both paths, copying at once.
fn guests(together: &FileCopy) -> Option<String> {
    let (vf, synthetic) = cost(together, Vf).zip(cost(together, Synthetic))?;
    let difference = difference(vf[1], synthetic[1]);
    let known = match overlap(&vf, &synthetic) {
        true => "within the spread of the rounds",
        false => "more than the spread of the rounds",
    };
    let agrees = if difference <= LARGE { "agrees" } else { "does not agree" };
    Some(format!(
        "Guests' CPU with {} copies at once: {} s for each GiB on path vf, {} s on path synthetic; \
         they differ by {}, {known}. hyperv-2012 found {} between its guests: this run {agrees} \
         (the paper gives no number; up to {} counts as that).",
        together.guests.len(),
        ranged(&vf),
        ranged(&synthetic),
        percent(difference),
        published::file_copy().guests,
        percent(LARGE),
    ))
}

/// CPU seconds for each GiB of the guests on a path: minimum, mean of the guests' medians, maximum.
fn cost(copy: &FileCopy, path: PathInForce) -> Option<Spread> {
    let guests = copy.guests.iter().filter(|guest| guest.path == path);
    let costs: Vec<Spread> = guests.map(|CopyGuest { cpu_s_per_gib, .. }| *cpu_s_per_gib).collect();
    let least = costs.iter().map(|cost| cost[0]).min_by(f64::total_cmp)?;
    let most = costs.iter().map(|cost| cost[2]).max_by(f64::total_cmp)?;
    let median = costs.iter().map(|cost| cost[1]).sum::<f64>() / costs.len() as f64;
    Some([least, median, most])
}

/// Host work for a single guest, on either path.
fn host(vf: &FileCopy, synthetic: &FileCopy) -> [String; 2] {
    let user = [vf, synthetic].map(|copy| percent(daemon_user_share(copy)));
    let [vf, synthetic] = [vf, synthetic].map(|copy| copy.host.lane_cycles_per_kib);
    let ratio = synthetic[1] / vf[1].max(f64::MIN_POSITIVE);
    let part = match overlap(&vf, &synthetic) {
        true => "The rounds of both paths overlap, so the switch's part is not resolved.".into(),
        false if ratio < 1.0 => {
            "The path with the switch used fewer cycles, so the switch's part is not resolved."
                .to_owned()
        }
        false => format!(
            "The difference, {} cycles or {} of the path synthetic, is the switch's part.",
            three(synthetic[1] - vf[1]),
            percent(1.0 - 1.0 / ratio)
        ),
    };
    let measured = format!(
        "Host work for one guest alone: {} busy cycles of the lane for each KiB on path vf, {} on \
         path synthetic, {ratio:.2} times as many. {part} NIC and switch share the lane; they \
         are not measured separately. They run in user space, with {} and {} of the daemon's CPU \
         time; the rest was the kernel's.",
        ranged(&vf),
        ranged(&synthetic),
        user[0],
        user[1],
    );
    let paper = published::file_copy();
    let [least, most] = paper.host_ratio();
    let agrees = if (least..=most).contains(&ratio) { "agrees" } else { "does not agree" };
    let compared = format!(
        "hyperv-2012 found CPU of the host's NDIS and VMBus of the order of {} with SR-IOV and \
         {} without (read from a plot), {least:.0} to {most:.0} times as much: this run \
         {agrees}.",
        paper.host_vf, paper.host_synthetic,
    );
    [measured, compared]
}

/// Share of the daemon's CPU time in user space.
fn daemon_user_share(copy: &FileCopy) -> f64 {
    let [user, system] = [copy.host.daemon_user_cores[1], copy.host.daemon_system_cores[1]];
    user / (user + system).max(f64::MIN_POSITIVE)
}

/// Difference of two values, relative to the smaller one.
fn difference(a: f64, b: f64) -> f64 {
    (a - b).abs() / a.min(b).max(f64::MIN_POSITIVE)
}

/// `true` if the ranges of two spreads overlap.
fn overlap(a: &Spread, b: &Spread) -> bool {
    a[0] <= b[2] && b[0] <= a[2]
}

/// Median, with minimum and maximum.
fn ranged([least, median, most]: &Spread) -> String {
    format!("{} ({}-{})", three(*median), three(*least), three(*most))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{copies, file_copy};
    use super::*;

    #[test]
    fn guests_that_hardly_differ_agree_with_the_paper() {
        let all = copies();
        let said = guests(&all[0]).unwrap();
        assert!(said.contains("4 copies at once: 0.40 (0.36-0.44) s"), "{said}");
        assert!(said.contains("differ by 10 %, within the spread"), "{said}");
        assert!(said.contains("no large difference") && said.contains("this run agrees"), "{said}");
        let mut far = all[0].clone();
        for guest in far.guests.iter_mut().filter(|guest| guest.path == Synthetic) {
            guest.cpu_s_per_gib = guest.cpu_s_per_gib.map(|cost| cost * 2.0);
        }
        let said = guests(&far).unwrap();
        assert!(said.contains("differ by 120 %, more than the spread"), "{said}");
        assert!(said.contains("does not agree"), "{said}");
    }

    #[test]
    fn the_switchs_part_is_the_difference_of_both_paths() {
        let alone = |path, cycles: f64| {
            let mut copy = file_copy(CopySetup::Alone, &[path]);
            copy.host.lane_cycles_per_kib = [cycles * 0.98, cycles, cycles * 1.02];
            copy
        };
        let said = |vf, synthetic| host(&alone(Vf, vf), &alone(Synthetic, synthetic)).join(" ");
        let near = said(300.0, 330.0);
        assert!(near.contains("300 (294-306) busy cycles"), "{near}");
        assert!(near.contains("1.10 times as many. The difference, 30.0 cycles or 9 %"), "{near}");
        assert!(near.contains("of the order of 1e2 with SR-IOV and 1e3..1e4 without"), "{near}");
        assert!(near.contains("10 to 100 times as much: this run does not agree"), "{near}");
        assert!(near.contains("user space, with 40 % and 40 % of"), "{near}");
        assert!(said(300.0, 303.0).contains("overlap, so the switch's part is not resolved"));
        assert!(
            said(330.0, 300.0).contains("used fewer cycles, so the switch's part is not resolved")
        );
        assert!(said(30.0, 900.0).contains("this run agrees"));
    }

    #[test]
    fn what_was_not_measured_is_not_compared() {
        let all = copies();
        assert_eq!(sentences(&all).len(), 3);
        assert_eq!(sentences(&all[..2]).len(), 1);
        assert_eq!(sentences(&all[1..]).len(), 2);
        assert!(sentences(&[]).is_empty());
    }
}

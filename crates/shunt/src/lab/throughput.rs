//! `shunt lab throughput`: NDR, PDR and latency of one point.

use anyhow::Result;
use clap::Args;
use lab::experiment::forwarding::{PointSpec, WARMUP_S};
use lab::experiment::throughput::{
    self, BackToBack, LatencyAt, Rate, Throughput as Found, ThroughputSettings,
};
use report::Align::{Left, Right};
use report::{GeneratorLoad, PathKind, Pattern, RingKind};
use traffic::Latency;

use super::common::{check_path_of_daemon, program};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print};

/// Search for the non-drop and partial-drop rates, and measure latency below them.
///
/// The search is MLRsearch (RFC 9971); terms are those of RFC 2544 and RFC 8204. The NDR has a loss
/// tolerance, since a shared machine takes CPU time away at any time. Marks a rate whose search did
/// not reach its width, and a trial whose generator missed its rate.
#[derive(Debug, Args)]
#[command(add = Title("non-drop and partial-drop rates, and latency below them"))]
#[command(after_help = "\
Examples:
  shunt lab throughput --pattern east-west --frame 64
  shunt lab throughput --pattern north-south --path vhost --vms 1 --ndr-tolerance 0 --json
  shunt lab throughput --pattern east-west --trial-seconds 1 --seconds-max 300 --width 0.01
  shunt lab throughput --pattern east-west --back-to-back 5
  shunt lab throughput --pattern east-west --soak 3600")]
pub(super) struct Throughput {
    /// Traffic pattern: north-south or east-west.
    #[arg(long, add = complete::pattern())]
    pattern: Pattern,
    #[arg(long, default_value = "vf", help = PathKind::MEANING_OF_DAEMON,
        add = complete::daemon_path())]
    path: PathKind,
    /// Guests: 1 to 8; a chain (east-west) takes 2 or more.
    #[arg(long, default_value_t = 2, value_name = "N")]
    vms: usize,
    /// Frame size with FCS, bytes: 64 to 1518.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    frame: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// Loss ratio that counts as none for the NDR.
    #[arg(long, default_value_t = 1e-5, value_name = "RATIO")]
    ndr_tolerance: f64,
    /// Loss ratio of the PDR.
    #[arg(long, default_value_t = 0.005, value_name = "RATIO")]
    pdr_loss: f64,
    /// Length of a full trial; the first ones are a quarter of it.
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    trial_seconds: f64,
    /// Total length of the trials that decide a load.
    #[arg(long, default_value_t = 1.5, value_name = "S")]
    duration_sum: f64,
    /// Maximum share of trial time with more loss that a lower bound tolerates.
    #[arg(long, default_value_t = 0.5, value_name = "RATIO")]
    exceed_ratio: f64,
    /// Maximum distance of lower and upper bound, relative to the upper one.
    #[arg(long, default_value_t = 0.02, value_name = "RATIO")]
    width: f64,
    /// Maximum number of trials.
    #[arg(long, default_value_t = 200, value_name = "N")]
    trials_max: usize,
    /// Maximum seconds of all trials.
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    seconds_max: f64,
    /// Seconds of a soak at half of the NDR, after the search; 0: none.
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    soak: f64,
    /// Searches for the longest burst without loss at the generator's highest rate (RFC 2544,
    /// section 26.4; RFC 9004), after the search: 0 to 100.
    #[arg(long, default_value_t = 0, value_name = "N")]
    back_to_back: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Throughput {
    pub(super) fn run(self) -> Result<()> {
        let spec = PointSpec {
            pattern: self.pattern,
            path: self.path,
            vms: self.vms,
            frame_bytes: self.frame,
            warmup_s: WARMUP_S,
            seconds: self.trial_seconds,
            ring: self.ring,
            load: GeneratorLoad::Closed,
        };
        spec.check().map_err(UsageError)?;
        check_path_of_daemon(self.path, "has no generator at a constant rate")?;
        if !(0.0..=86_400.0).contains(&self.soak) {
            return Err(UsageError::out_of_range("--soak", self.soak, 0, 86_400).into());
        }
        if self.back_to_back > 100 {
            let searches = self.back_to_back;
            return Err(UsageError::out_of_range("--back-to-back", searches, 0, 100).into());
        }
        let settings = ThroughputSettings {
            ndr_tolerance: self.ndr_tolerance,
            pdr_loss: self.pdr_loss,
            trial_s: (self.trial_seconds / 4.0, self.trial_seconds),
            duration_sum_s: self.duration_sum.max(self.trial_seconds),
            exceed_ratio: self.exceed_ratio,
            width: self.width,
            trials_max: self.trials_max,
            seconds_max: self.seconds_max,
            soak_s: self.soak,
            back_to_back: self.back_to_back,
        };
        let found =
            throughput::run(&program()?, &spec, host::cpu::allowed(), &settings, |trial| {
                eprintln!("{trial}");
            })?;
        let text = match self.json {
            true => serde_json::to_string_pretty(&found)? + "\n",
            false => text(&found),
        };
        Ok(print(&text)?)
    }
}

/// Result as text.
fn text(found: &Found) -> String {
    let shown = |mpps: Option<f64>| mpps.map_or("-".to_owned(), |mpps| format!("{mpps:.3}"));
    let row = |rate: &Rate| {
        let Rate { name, loss_ratio_max, lower_mpps, upper_mpps, throughput_mpps, .. } = rate;
        let [lower, upper, throughput] =
            [lower_mpps, upper_mpps, throughput_mpps].map(|it| shown(*it));
        let note = match (rate.regular, rate.loss_inversion) {
            (false, _) => "NO RESULT",
            (true, true) => "noisy: a larger load lost less",
            (true, false) => "",
        };
        let loss = format!("{loss_ratio_max:.6}");
        let ended_by = rate.ended_by.to_string();
        vec![name.to_string(), loss, lower, upper, throughput, ended_by, note.to_owned()]
    };
    let columns = [
        ("rate", Left),
        ("loss ratio", Right),
        ("lower Mpps", Right),
        ("upper Mpps", Right),
        ("throughput Mpps", Right),
        ("ended by", Left),
        ("note", Left),
    ];
    let mut text =
        format!("closed loop: {:.3} Mpps, no loss by construction\n\n", found.closed_loop_mpps);
    text += &of_stdout().table(&columns, found.rates.iter().map(row).collect());
    text += &latency(found);
    if let Some(found) = &found.back_to_back {
        text += &back_to_back(found);
    }
    let trials = found.trials.len();
    let missed = found.trials.iter().filter(|trial| !trial.regular).count();
    text += &format!(
        "\n{trials} trials, {:.0} s; in {missed} the generator missed its rate\n",
        found.seconds
    );
    let pinned = &found.pinned;
    text += &format!(
        "pinned: switch on CPU {:?}, guests {:?}, generator {:?}\n",
        pinned.switch, pinned.guests, pinned.generator
    );
    if let Some([before, after]) = found.round_trip_cycles {
        text += &format!("round trip between them: {before:.0} cycles before, {after:.0} after\n");
    }
    text
}

/// Latency at shares of the NDR, and of the soak, as text.
fn latency(found: &Found) -> String {
    let times = |times: &Latency| {
        let Latency { p50_us, p90_us, p99_us, p999_us, max_us, .. } = times;
        [p50_us, p90_us, p99_us, p999_us, max_us].map(|us| format!("{us:.1}"))
    };
    let mut rows = Vec::new();
    let mut row = |share: String, mpps: String, times: [String; 5], rest: [String; 3]| {
        rows.push([share, mpps].into_iter().chain(times).chain(rest).collect());
    };
    for at in found.latency.iter().chain(&found.soak) {
        let LatencyAt { share, load_mpps, generator_ok, left_out, account } = at;
        let late = format!("{:.1}", account.lateness.p99_us);
        let lost = account.sent.saturating_sub(account.received);
        let note = match (generator_ok, left_out) {
            (false, _) => "NO RESULT: the generator missed its rate".to_owned(),
            (true, 0) => String::new(),
            (true, n) => format!("{n} trials left out: the generator missed its rate"),
        };
        let faults = format!("{lost}/{}/{}", account.duplicated, account.reordered);
        let (share, mpps) = (format!("{:.0}%", share * 100.0), format!("{load_mpps:.3}"));
        row(share, mpps, times(&account.latency), [late, faults, note]);
        let (all, unpaused) = (account.latency.frames, &account.latency_unpaused);
        let percent = 100.0 * unpaused.frames as f64 / all.max(1) as f64;
        let (values, note) = match unpaused.frames {
            0 => (["-"; 5].map(str::to_owned), "no frame".to_owned()),
            _ => (times(unpaused), format!("{percent:.1} % of the frames")),
        };
        row("unpaused".to_owned(), String::new(), values, [String::new(), String::new(), note]);
    }
    let columns = [
        ("of NDR", Right),
        ("Mpps", Right),
        ("p50", Right),
        ("p90", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("max", Right),
        ("late p99", Right),
        ("lost/dup/reordered", Left),
        ("note", Left),
    ];
    format!(
        "\nlatency, us; late: delay of the generator's own sending; unpaused: of frames that met no \
         pause of the generator\n{}",
        of_stdout().table(&columns, rows)
    )
}

/// Longest bursts without loss, as text.
fn back_to_back(found: &BackToBack) -> String {
    let rate = found.offered_mpps.map_or("at once".to_owned(), |mpps| format!("at {mpps:.3} Mpps"));
    let mut text = format!(
        "\nback to back: {:.0} frames {rate} (least {}, most {}, standard deviation {:.0}; {} \
         searches, {} bursts)\n{}\n",
        found.average_frames,
        found.min_frames,
        found.max_frames,
        found.deviation_frames,
        found.searches,
        found.trials,
        found.statement
    );
    if found.incomplete > 0 {
        text += &format!("{} bursts were not sent in time: counted as lossy\n", found.incomplete);
    }
    text
}

#[cfg(test)]
mod tests {
    use report::Pinned;
    use traffic::PacedResult;

    use super::*;

    fn found() -> Found {
        let account = PacedResult {
            sent: 100,
            received: 97,
            duplicated: 5,
            reordered: 7,
            ..PacedResult::default()
        };
        let at = |generator_ok| LatencyAt {
            share: 0.5,
            load_mpps: 1.0,
            generator_ok,
            left_out: 0,
            account,
        };
        Found {
            closed_loop_mpps: 2.0,
            rates: Vec::new(),
            latency: vec![at(true), at(false)],
            soak: Some(at(false)),
            back_to_back: None,
            trials: Vec::new(),
            seconds: 1.0,
            pinned: Pinned { switch: vec![0], guests: vec![1], generator: vec![1] },
            round_trip_cycles: None,
        }
    }

    #[test]
    fn a_row_whose_generator_missed_its_rate_is_marked_and_all_faults_are_told() {
        let text = text(&found());
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("50%")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for (row, missed) in rows.iter().zip([false, true, true]) {
            assert!(row.contains("3/5/7"), "lost, duplicated and reordered: {row}");
            assert_eq!(row.contains("NO RESULT: the generator missed its rate"), missed, "{row}");
        }
    }

    #[test]
    fn bursts_are_told_with_their_meaning() {
        let bursts = BackToBack {
            average_frames: 1500.4,
            min_frames: 1400,
            max_frames: 1600,
            deviation_frames: 100.0,
            searches: 2,
            without_loss: 0,
            longest_tried_frames: 9000,
            trials: 30,
            incomplete: 1,
            offered_mpps: Some(3.25),
            statement: "meaning".into(),
        };
        let text = text(&Found { back_to_back: Some(bursts), ..found() });
        for words in ["back to back: 1500 frames at 3.250 Mpps", "\nmeaning\n", "1 bursts were not"]
        {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
    }
}

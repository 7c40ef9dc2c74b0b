//! `shunt lab throughput`: NDR, PDR and latency of one point.

use anyhow::Result;
use clap::Args;
use lab::experiment::forwarding::{PointSpec, WARMUP_S};
use lab::experiment::throughput::{self, LatencyAt, Rate, Settings, Throughput as Found};
use lab::report::{Load, PathKind, Pattern, RingKind};

use super::program;
use crate::{Mistake, say};

/// Search for the non-drop and partial-drop rates, and measure latency below them.
///
/// The search is MLRsearch (RFC 9971); words are those of RFC 2544 and RFC 8204. The NDR has a loss
/// tolerance, since a shared machine takes CPU time away at will. A rate whose search ended for
/// another reason than its width, and a trial whose generator missed its rate, are marked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab throughput --pattern east-west --frame 64
  shunt lab throughput --pattern north-south --path vhost --vms 1 --ndr-tolerance 0 --json
  shunt lab throughput --pattern east-west --trial-seconds 1 --seconds-max 300 --width 0.01
  shunt lab throughput --pattern east-west --soak 3600")]
pub(super) struct Throughput {
    /// Where frames go: north-south or east-west.
    #[arg(long)]
    pattern: Pattern,
    /// How they get there: vf or vhost.
    #[arg(long, default_value = "vf")]
    path: PathKind,
    /// Guests: 1 to 8; a chain (east-west) takes 2 or more.
    #[arg(long, default_value_t = 2, value_name = "N")]
    vms: usize,
    /// Bytes of a frame with its FCS: 64 to 1518.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    frame: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split")]
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
    /// Length of all trials that decide a load.
    #[arg(long, default_value_t = 1.5, value_name = "S")]
    duration_sum: f64,
    /// Largest share of trial time with more loss that a lower bound tolerates.
    #[arg(long, default_value_t = 0.5, value_name = "RATIO")]
    exceed_ratio: f64,
    /// Largest distance of lower and upper bound, relative to the upper one.
    #[arg(long, default_value_t = 0.02, value_name = "RATIO")]
    width: f64,
    /// Most trials.
    #[arg(long, default_value_t = 200, value_name = "N")]
    trials_max: usize,
    /// Most seconds of all trials.
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    seconds_max: f64,
    /// Seconds of a soak at half of the NDR, after all else; 0: none.
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    soak: f64,
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
            load: Load::Closed,
        };
        spec.check().map_err(Mistake)?;
        if self.path == PathKind::Virtio {
            let text = "--path virtio: a generator at a constant rate needs vf or vhost";
            return Err(Mistake(text.into()).into());
        }
        if !(0.0..=86_400.0).contains(&self.soak) {
            let text = format!("--soak {}: 0 to 86400 seconds are possible", self.soak);
            return Err(Mistake(text).into());
        }
        let settings = Settings {
            ndr_tolerance: self.ndr_tolerance,
            pdr_loss: self.pdr_loss,
            trial_s: (self.trial_seconds / 4.0, self.trial_seconds),
            duration_sum_s: self.duration_sum.max(self.trial_seconds),
            exceed_ratio: self.exceed_ratio,
            width: self.width,
            trials_max: self.trials_max,
            seconds_max: self.seconds_max,
            soak_s: self.soak,
        };
        let found =
            throughput::run(&program()?, &spec, host::cpu::allowed(), &settings, |trial| {
                eprintln!("{trial}");
            })?;
        let text = match self.json {
            true => serde_json::to_string_pretty(&found)? + "\n",
            false => text(&found),
        };
        Ok(say(&text)?)
    }
}

/// The result, for people.
fn text(found: &Found) -> String {
    let mut text = format!(
        "closed loop: {:.3} Mpps, no loss by construction\n\n\
         rate  loss ratio   lower Mpps  upper Mpps  throughput Mpps  ended by\n",
        found.closed_loop_mpps
    );
    let shown = |mpps: Option<f64>| mpps.map_or("-".to_owned(), |mpps| format!("{mpps:.3}"));
    for rate in &found.rates {
        let Rate { name, loss_ratio_max, lower_mpps, upper_mpps, throughput_mpps, .. } = rate;
        let [lower, upper, throughput] =
            [lower_mpps, upper_mpps, throughput_mpps].map(|it| shown(*it));
        let mark = match (rate.regular, rate.loss_inversion) {
            (false, _) => "  NO RESULT",
            (true, true) => "  noisy: a larger load lost less",
            (true, false) => "",
        };
        text += &format!(
            "{name:<4} {loss_ratio_max:>11.6} {lower:>12} {upper:>11} {throughput:>16}  {}{mark}\n",
            rate.ended_by
        );
    }
    text += "\nlatency, us; late: delay of the generator's own sending\n";
    text += &format!(
        "{:>7} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}  {}\n",
        "of NDR", "Mpps", "p50", "p90", "p99", "p99.9", "max", "late p99", "lost/dup/reordered"
    );
    for at in found.latency.iter().chain(&found.soak) {
        let LatencyAt { share, load_mpps, generator_ok, account } = at;
        let (latency, late) = (account.latency, account.lateness.p99_us);
        let lost = account.sent.saturating_sub(account.received);
        let mark = if *generator_ok { "" } else { "  NO RESULT: the generator missed its rate" };
        text += &format!(
            "{:>6.0}% {load_mpps:>9.3} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {late:>9.1}  {lost}/{}/{}{mark}\n",
            share * 100.0,
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p999_us,
            latency.max_us,
            account.duplicated,
            account.reordered
        );
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

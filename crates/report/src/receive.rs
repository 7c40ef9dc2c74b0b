//! Received frames with a queue for each guest and without.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::transfer::{Spread, TransferError};
use crate::text_table::{Align, TextFormat};

/// One frame size, received on the paths vmq and synthetic alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receive {
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Number of guests.
    pub guests: usize,
    /// Result on the path vmq.
    pub vmq: ReceivePath,
    /// Result on the path synthetic.
    pub synthetic: ReceivePath,
    /// The lane's cycles per frame on the path synthetic over those on the path vmq, for each
    /// round.
    pub cycles_ratio: Spread,
    /// Received frames on the path vmq over those on the path synthetic, for each round.
    pub throughput_ratio: Spread,
    /// Generator's rate into an instant sink, in million frames per second.
    pub generator_limit_mpps: f64,
    /// The generator was the bottleneck, so only the cycles are valid.
    pub generator_bound: bool,
    /// Rounds.
    pub rounds: usize,
    /// Published values of the paper.
    pub published: Option<PublishedThroughput>,
    /// Pinned CPUs: the switch's, and that of guests and generator.
    pub pinned: Vec<usize>,
}

/// Result on one path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivePath {
    /// Million frames per second that guests received.
    pub mpps: Spread,
    /// The same in Gbit/s, without FCS.
    pub gbps: Spread,
    /// Busy cycles of the lane for each delivered frame.
    pub switch_cycles_per_frame: Spread,
    /// Share of lost frames, in the median round.
    pub lost_share: f64,
}

/// Published throughput, in Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedThroughput {
    /// Without a queue for each guest.
    pub without_gbps: f64,
    /// With a queue for each guest.
    pub with_gbps: f64,
}

impl PublishedThroughput {
    /// Throughput with queues over that without.
    pub fn ratio(&self) -> f64 {
        self.with_gbps / self.without_gbps
    }
}

impl Receive {
    /// Checks that every number is valid.
    ///
    /// # Errors
    /// The first field that is not finite or negative.
    pub fn check(&self) -> Result<(), TransferError> {
        let mut all = vec![("generator_limit_mpps", self.generator_limit_mpps)];
        all.extend(self.cycles_ratio.map(|value| ("cycles_ratio", value)));
        all.extend(self.throughput_ratio.map(|value| ("throughput_ratio", value)));
        for (_, side) in self.sides() {
            all.extend(side.mpps.map(|value| ("mpps", value)));
            let cycles = side.switch_cycles_per_frame;
            all.extend(cycles.map(|value| ("switch_cycles_per_frame", value)));
            all.push(("lost_share", side.lost_share));
        }
        match all.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            None => Ok(()),
            Some((field, value)) => {
                let what = format!("receive, {} B", self.frame_bytes);
                Err(TransferError { what, field, value })
            }
        }
    }

    /// Results of both paths, with their names.
    pub fn sides(&self) -> [(&'static str, ReceivePath); 2] {
        [("vmq", self.vmq), ("synthetic", self.synthetic)]
    }

    /// Result as a sentence, compared with the published one.
    pub fn sentence(&self) -> String {
        let [least, median, most] = self.cycles_ratio;
        let mut text = format!(
            "{} B: without a queue for each of {} guests a frame costs the lane {median:.2} \
             times the cycles ({least:.2} to {most:.2})",
            self.frame_bytes, self.guests
        );
        let [_, more, _] = self.throughput_ratio;
        text += &match self.generator_bound {
            true => {
                "; the generator was the bottleneck, so throughput cannot be compared".to_owned()
            }
            false => format!("; with queues throughput is {more:.2} times as high"),
        };
        if let Some(published) = self.published {
            let PublishedThroughput { without_gbps, with_gbps } = published;
            let ratio = published.ratio();
            text +=
                &format!("; published: {without_gbps} and {with_gbps} Gbit/s, {ratio:.2} times");
        }
        text + "."
    }
}

/// Table for the terminal, with sentences; empty without results.
pub fn text(receives: &[Receive], format: TextFormat) -> String {
    if receives.is_empty() {
        return String::new();
    }
    let columns = [
        ("frame", Align::Right),
        ("guests", Align::Right),
        ("path", Align::Left),
        ("Mpps", Align::Right),
        ("Gbit/s", Align::Right),
        ("cycles/frame", Align::Right),
        ("min..max", Align::Right),
        ("lost", Align::Right),
    ];
    let mut rows = Vec::new();
    for receive in receives {
        for (path, side) in receive.sides() {
            let Receive { frame_bytes: bytes, guests, .. } = receive;
            let (mpps, gbps) = (side.mpps[1], side.gbps[1]);
            let [least, median, most] = side.switch_cycles_per_frame;
            let (range, lost) = (format!("{least:.1}..{most:.1}"), 100.0 * side.lost_share);
            rows.push(vec![
                bytes.to_string(),
                guests.to_string(),
                path.to_string(),
                format!("{mpps:.2}"),
                format!("{gbps:.2}"),
                format!("{median:.1}"),
                range,
                format!("{lost:.0} %"),
            ]);
        }
    }
    let text = format.table(&columns, rows);
    receives.iter().fold(text + "\n", |text, receive| text + &receive.sentence() + "\n")
}

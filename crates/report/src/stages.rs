//! Switch cycles for each delivered frame, by stage of a burst.
//!
//! Contents of each stage: `crates/engine/src/stages.rs`. The lanes measure a sample of bursts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::three;
use super::text_table::{Align, TextFormat};

/// Time-stamp cycles for each delivered frame; the sum is the busy cycles of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stages {
    /// Choice of the ring, and the burst's counters.
    pub poll: f64,
    /// Reads of the sender's and the receivers' descriptors.
    pub descriptors: f64,
    /// Look-ups, VLAN edits, sorting by receiver.
    pub classify: f64,
    /// The one copy.
    pub copy: f64,
    /// Publishing of used entries to guests.
    pub publish: f64,
    /// Interrupts.
    pub notify: f64,
    /// Busy cycles outside of bursts: rounds, empty polls, and stolen time. 0 if the sampled bursts
    /// alone exceed all busy cycles.
    pub other: f64,
    /// Readings of the counter on sampled bursts, spread over all frames.
    pub sampling: f64,
    /// Number of sampled bursts.
    pub sampled_bursts: u64,
}

impl Stages {
    /// Parts of a frame's cycles: the stages in the order of a burst, then the rest.
    pub const PARTS: [&str; 8] =
        ["poll", "descriptors", "classify", "copy", "publish", "notify", "other", "sampling"];

    /// Cycles of each of [`PARTS`](Self::PARTS).
    pub fn cycles(&self) -> [f64; 8] {
        let Stages { poll, descriptors, classify, copy, publish, notify, other, sampling, .. } =
            *self;
        [poll, descriptors, classify, copy, publish, notify, other, sampling]
    }

    /// Inverse of [`cycles`](Self::cycles).
    pub fn from_cycles(cycles: [f64; 8], sampled_bursts: u64) -> Stages {
        let [poll, descriptors, classify, copy, publish, notify, other, sampling] = cycles;
        Stages {
            poll,
            descriptors,
            classify,
            copy,
            publish,
            notify,
            other,
            sampling,
            sampled_bursts,
        }
    }
}

/// Table of stages with cycles per frame and share, and a legend.
pub fn table(stages: &Stages, format: TextFormat) -> String {
    let cycles = stages.cycles();
    let total: f64 = cycles.iter().sum();
    let share = |cycles: f64| format!("{:.1}%", 100.0 * cycles / total.max(f64::MIN_POSITIVE));
    let header = [("stage", Align::Left), ("cycles", Align::Right), ("share", Align::Right)];
    let rows = Stages::PARTS
        .iter()
        .zip(cycles)
        .map(|(name, cycles)| vec![(*name).to_owned(), three(cycles), share(cycles)]);
    let table = format.table(&header, rows.collect());
    let sampled = stages.sampled_bursts;
    format!(
        "Cycles per delivered frame by stage\n{table}\
         measured on a sample of {sampled} bursts; sampling: cost of the readings;\n\
         other: busy cycles outside of bursts (rounds, polls that found nothing)\n"
    )
}

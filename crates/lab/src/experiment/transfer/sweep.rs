//! Transfers from an experiment file.

use super::{TransferLoad, TransferSettings, run};
use crate::experiment::step::{Step, StepResult, Steps};
use report::experiment::TransferSweep;
use report::{Pattern, Transfer};

impl Steps for TransferSweep {
    fn steps(&self, experiment: &str) -> Vec<Step> {
        if self.paths.is_empty() {
            return Vec::new();
        }
        let step = |(pattern, traffic): (Pattern, TransferLoad)| {
            let TransferLoad { workload, streams, send_bytes, .. } = traffic;
            let title = format!("{pattern} {workload}, {streams} x {send_bytes} B");
            let (sweep, experiment) = (self.clone(), experiment.to_owned());
            Step::new(title, move |machine| {
                let settings = TransferSettings {
                    program: machine.program.to_owned(),
                    cpus: machine.cpus.to_vec(),
                    paths: sweep.paths.clone(),
                    pattern,
                    rounds: sweep.rounds,
                    seconds: sweep.seconds,
                };
                let published = |transfer: Transfer| Transfer {
                    published: sweep.published.get(&transfer.path).copied(),
                    ..transfer
                };
                let transfers = run(&settings, &experiment, traffic)?;
                Ok(StepResult::Transfers(transfers.into_iter().map(published).collect()))
            })
        };
        traffics(self).into_iter().map(step).collect()
    }
}

/// Each traffic with its pattern.
fn traffics(sweep: &TransferSweep) -> Vec<(Pattern, TransferLoad)> {
    let mut traffics = Vec::new();
    for &pattern in &sweep.patterns {
        for &kib in &sweep.buffer_kib {
            for &streams in &sweep.streams {
                for &send_bytes in &sweep.send_bytes {
                    let (workload, buffer_kib) = (sweep.workload, (kib > 0).then_some(kib));
                    let traffic = TransferLoad { workload, streams, send_bytes, buffer_kib };
                    traffics.push((pattern, traffic));
                }
            }
        }
    }
    traffics
}

//! Stages of a traced frame, explained from the scratch memory of its run.

use bridge::nic::{MirrorTarget, PortName};
use bridge::{DropReason, Explanation, PortId, Step, StepResult};
use port::{FrameRules, Polled};
use wire::HeaderSnapshot;

use super::{TraceDrop, TraceResult, TraceStage, TraceStep};
use crate::drops::ReasonEntry;
use crate::port::Port;
use crate::slow::scratch::Scratch;
use crate::snapshot::{ForwardingSnapshot, PortLocation, SwitchSnapshot};

/// Stages of a frame so far.
pub(super) struct Stages<'a> {
    snapshot: &'a ForwardingSnapshot,
    from: &'a Port,
    frame: &'a [u8],
    now_ns: u64,
    /// Copy of what the switch knew before the frame.
    state: Option<bridge::switch::State>,
    stages: Vec<TraceStage>,
}

impl<'a> Stages<'a> {
    /// Begins before the frame is forwarded.
    pub(super) fn begin(
        snapshot: &'a ForwardingSnapshot,
        from: &'a Port,
        frame: &'a [u8],
        now_ns: u64,
    ) -> Stages<'a> {
        let state = snapshot.switch.as_ref().map(|switch| switch.state.copy());
        Stages { snapshot, from, frame, now_ns, state, stages: Vec::new() }
    }

    /// Stage of the sender's ring.
    pub(super) fn ring(&mut self, rules: Option<FrameRules>, polled: &Polled) {
        let (len, max) = (self.frame.len(), rules.map(|rules| rules.frame_bytes_max()));
        let dropped = |name: &str| TraceResult::Dropped(reason(name));
        let (result, detail) = match (polled, max) {
            (Polled { runts: 1.., .. }, _) => {
                let detail = format!("{len} bytes; at least 14, with a tag 18");
                (dropped("runt"), detail)
            }
            (Polled { oversize: 1.., .. }, _) => {
                let max = max.unwrap_or(FrameRules::LARGEST.frame_bytes_max());
                (dropped("oversize"), format!("{len} bytes; at most {max}"))
            }
            (Polled { disabled: 1.., .. }, _) => {
                (dropped("disabled"), "the VMM has disabled the ring".to_owned())
            }
            (_, Some(max)) => (TraceResult::Passed, format!("{len} bytes; at most {max}")),
            (_, None) => {
                let detail = format!("{len} bytes; no transmit ring runs, so no limit is known");
                (TraceResult::Passed, detail)
            }
        };
        self.add(
            "ring",
            self.from.label.clone(),
            vec![TraceStep { rule: "length", result, detail }],
        );
    }

    /// Stages of NIC and switch, by the place at which the frame entered.
    pub(super) fn bridges(&mut self, scratch: &Scratch) {
        let begin = HeaderSnapshot::of_frame(self.frame);
        let then = || scratch.view_buffer.first();
        let from = self.from.label.clone();
        match self.snapshot.location(self.from) {
            Some(PortLocation::Function(id)) => {
                self.nic(id, from, &begin, scratch);
                if !scratch.switch.verdicts.is_empty() {
                    self.switch(PortId::UPLINK, PortId::UPLINK.to_string(), &then(), scratch);
                }
            }
            Some(PortLocation::Switch(id)) => {
                self.switch(id, from, &begin, scratch);
                if !scratch.nic.verdicts.is_empty() {
                    self.nic(PortId::PF, PortName(PortId::PF).to_string(), &then(), scratch);
                }
            }
            Some(PortLocation::Piped(id)) => {
                let table = &self.snapshot.table;
                let explained = table.explain_switchdev(id, &begin, &|id| self.nic_name(id));
                self.add("nic", from, explained.steps.into_iter().map(step).collect());
            }
            Some(PortLocation::Representor(of)) => {
                let detail = format!("to {}", self.nic_name(of));
                let result = match self.snapshot.table.is_up(of) {
                    true => TraceResult::Passed,
                    false => TraceResult::Dropped(reason_of(DropReason::LinkDown)),
                };
                let steps = vec![TraceStep { rule: "destination", result, detail }];
                self.add("representor", from, steps);
            }
            None => {
                let unplugged = reason("unplugged");
                let detail = unplugged.meaning.to_owned();
                let result = TraceResult::Dropped(unplugged);
                self.add("nic", from, vec![TraceStep { rule: "place", result, detail }]);
            }
        }
    }

    fn nic(&mut self, id: PortId, from: String, header: &HeaderSnapshot, scratch: &Scratch) {
        let table = &self.snapshot.table;
        let explained = table.explain(id, header, &|id| self.nic_name(id));
        debug_assert_eq!(Some(&explained.verdict), scratch.nic.verdicts.first());
        let Explanation { steps, verdict } = explained;
        let mut steps: Vec<TraceStep> = steps.into_iter().map(step).collect();
        table.mirror(id, &header.header(), verdict, |copy| {
            let to = match copy.to {
                MirrorTarget::Port(to) => self.snapshot.port(to),
                MirrorTarget::Capture(number) => self.snapshot.monitor(number),
            };
            steps.extend(to.map(|to| mirrored(to, &self.nic_name(copy.of))));
        });
        self.add("nic", from, steps);
    }

    fn switch(&mut self, id: PortId, from: String, header: &HeaderSnapshot, scratch: &Scratch) {
        let (Some(switch), Some(state)) = (&self.snapshot.switch, &self.state) else { return };
        let names = |id: PortId| switch_name(switch, id);
        let explained = switch.table.explain(state, (id, self.now_ns), header, &names);
        let verdicts = &scratch.switch.verdicts;
        debug_assert_eq!(Some(&explained.verdict), verdicts.first());
        let Explanation { steps, verdict } = explained;
        let mut steps: Vec<TraceStep> = steps.into_iter().map(step).collect();
        let mirrors = verdicts.mirrors().first().filter(|_| !verdict.is_drop());
        for mirror in (0..32).filter(|mirror| mirrors.is_some_and(|all| all >> mirror & 1 == 1)) {
            let to = switch.table.mirror_port(mirror).and_then(|to| switch.port(to));
            steps.extend(to.map(|to| mirrored(to, &from)));
        }
        self.add("switch", from, steps);
    }

    /// The stages, after a comparison with the drops that were counted: an egress may drop the
    /// frame after its verdict, and a copy of a flood is dropped uncounted.
    pub(super) fn end(mut self, drops: &[TraceDrop]) -> Vec<TraceStage> {
        let own: Vec<&TraceDrop> =
            drops.iter().filter(|drop| drop.counter.starts_with("tx_")).collect();
        let is_counted =
            |reason: &ReasonEntry| own.iter().any(|drop| drop.reason.name == reason.name);
        for step in self.stages.iter_mut().flat_map(|stage| &mut stage.steps) {
            if let TraceResult::Dropped(reason) = step.result
                && !is_counted(reason)
            {
                step.result = TraceResult::Off;
                step.detail += "; a copy of a flood, so this is no drop";
            }
        }
        let explains = |drop: &TraceDrop, step: &TraceStep| matches!(step.result, TraceResult::Dropped(reason) if reason.name == drop.reason.name);
        let steps = self.stages.iter().flat_map(|stage| &stage.steps);
        let steps: Vec<&TraceStep> = steps.collect();
        let unexplained = own.iter().filter(|drop| !steps.iter().any(|step| explains(drop, step)));
        let egress = unexplained.map(|drop| {
            let detail = match drop.reason.name {
                "no_match" => "no adapter is attached there",
                _ => drop.reason.meaning,
            };
            let (result, detail) = (TraceResult::Dropped(drop.reason), detail.to_owned());
            TraceStep { rule: "egress", result, detail }
        });
        let egress: Vec<TraceStep> = egress.collect();
        if let Some(last) = self.stages.last_mut() {
            last.steps.extend(egress);
        }
        self.stages
    }

    fn add(&mut self, stage: &'static str, from: String, steps: Vec<TraceStep>) {
        self.stages.push(TraceStage { stage, from, steps });
    }

    /// Name of a port of the NIC.
    fn nic_name(&self, id: PortId) -> String {
        match self.snapshot.port(id) {
            Some(port) if id.queue_index().is_some() => {
                format!("{} ({})", port.label, PortName(id))
            }
            Some(port) => port.label.clone(),
            None if self.snapshot.switches(id) => "the switch".to_owned(),
            None => format!("{} (not attached)", PortName(id)),
        }
    }
}

/// Name of a port of the switch.
fn switch_name(switch: &SwitchSnapshot, id: PortId) -> String {
    switch.port(id).map_or_else(|| id.to_string(), |port| port.label.clone())
}

fn mirrored(to: &Port, of: &str) -> TraceStep {
    let detail = format!("a copy of the traffic of {of} to {}", to.label);
    TraceStep { rule: "mirror", result: TraceResult::Passed, detail }
}

fn step(Step { rule, result, detail }: Step) -> TraceStep {
    let result = match result {
        StepResult::Passed => TraceResult::Passed,
        StepResult::Off => TraceResult::Off,
        StepResult::Dropped(reason) => TraceResult::Dropped(reason_of(reason)),
    };
    TraceStep { rule, result, detail }
}

/// Text of a bridge's reason.
fn reason_of(why: DropReason) -> &'static ReasonEntry {
    reason(&why.name().replace('-', "_"))
}

fn reason(name: &str) -> &'static ReasonEntry {
    ReasonEntry::find(name).expect("every reason is in the table")
}

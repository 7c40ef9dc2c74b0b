//! Scratch memory of a lane for one burst: NIC stage, switch stage, and the views between them.

use std::sync::Arc;

use bridge::{PortId, Summary};
use port::BurstBuffers;

use crate::capture::log::BurstLog;
use crate::slow::groups::Groups;
use crate::slow::view::{BurstView, ViewBuffer};
use crate::snapshot::{AclHits, SwitchSnapshot};

/// Bursts after which a lane adds its counts to the shared counters of rules, at the latest.
const FLUSH_AFTER: u32 = 256;

/// Scratch memory of the NIC stage.
#[derive(Debug)]
pub(crate) struct NicScratch {
    pub(crate) verdicts: bridge::Verdicts,
    pub(crate) groups: Groups,
    /// Cache of flows that come from the switch.
    pub(crate) flows: bridge::nic::Flows,
}

impl NicScratch {
    pub(crate) fn new() -> NicScratch {
        let (verdicts, flows) = (bridge::Verdicts::new(), bridge::nic::Flows::new());
        NicScratch { verdicts, groups: Groups::new(), flows }
    }

    /// Returns `true` if a frame of the classified burst may go to the PF.
    pub(crate) fn reaches_pf(&self, summary: Summary) -> bool {
        let may =
            |verdict: bridge::Verdict| verdict.is_flood() || verdict.as_port() == Some(PortId::PF);
        match summary {
            Summary::Uniform(verdict) => may(verdict),
            Summary::Empty => false,
            Summary::Mixed => self.verdicts.as_slice().iter().any(|verdict| may(*verdict)),
        }
    }
}

/// Scratch memory of the switch stage.
#[derive(Debug)]
pub(crate) struct SwitchScratch {
    pub(crate) verdicts: bridge::switch::SwitchVerdicts,
    pub(crate) groups: Groups,
    /// Cache of flows that come from the NIC.
    flows: bridge::switch::Flows,
    /// Hits of rules that are not yet added to `hits`.
    counted: Vec<u64>,
    hits: Arc<AclHits>,
    bursts: u32,
}

impl SwitchScratch {
    pub(crate) fn new() -> SwitchScratch {
        SwitchScratch {
            verdicts: bridge::switch::SwitchVerdicts::new(),
            groups: Groups::new(),
            flows: bridge::switch::Flows::new(),
            counted: Vec::new(),
            hits: Arc::default(),
            bursts: 0,
        }
    }

    /// Classifies a burst. `flows` is the cache of the source port, if that is not the uplink.
    pub(crate) fn classify(
        &mut self,
        switch: &SwitchSnapshot,
        from: bridge::PortId,
        view: &BurstView<'_>,
        now_ns: u64,
        flows: Option<&mut bridge::switch::Flows>,
    ) -> bridge::Summary {
        if !switch.hits.is_empty() && !Arc::ptr_eq(&self.hits, &switch.hits) {
            self.flush();
            self.hits = switch.hits.clone();
            self.counted.resize(switch.hits.len(), 0);
        }
        let snapshots = (!view.snapshots.is_empty()).then_some(view.snapshots);
        let burst = bridge::switch::Burst { from, headers: view.headers, snapshots, now_ns };
        let flows = flows.unwrap_or(&mut self.flows);
        let counted = if switch.hits.is_empty() { &mut [][..] } else { &mut self.counted[..] };
        let table = &switch.table;
        let summary = table.classify(&switch.state, &burst, flows, counted, &mut self.verdicts);
        self.bursts += 1;
        if self.bursts >= FLUSH_AFTER {
            self.flush();
        }
        summary
    }

    /// Adds the local counts to the shared counters of rules.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.bursts > 0 {
            self.bursts = 0;
            self.hits.add(&mut self.counted);
        }
    }
}

/// Scratch memory of a lane, so that forwarding allocates nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) nic: NicScratch,
    pub(crate) switch: SwitchScratch,
    pub(crate) view_buffer: ViewBuffer,
    pub(crate) actions: bridge::nic::SwitchdevActions,
    pub(crate) transmit: BurstBuffers,
    pub(crate) receive: BurstBuffers,
    /// For captures.
    pub(crate) log: BurstLog,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            nic: NicScratch::new(),
            switch: SwitchScratch::new(),
            view_buffer: ViewBuffer::new(),
            actions: bridge::nic::SwitchdevActions::new(),
            transmit: BurstBuffers::default(),
            receive: BurstBuffers::default(),
            log: BurstLog::default(),
        }
    }
}

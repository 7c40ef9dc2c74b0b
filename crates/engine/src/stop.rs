//! The room for a burst at each stop of its way: the NIC, the switch, and what lies between.

use std::sync::Arc;

use nic::{PortId, Summary};
use port::{BURST, Burst, Head, VlanEdit};
use wire::DeepHead;

use crate::groups::Groups;
use crate::scene::{Hits, Switch};
use crate::walk::View;

/// A lane counts in the shared counters of rules after so many bursts at the latest.
const FLUSH_AFTER: u32 = 256;

/// Room for a burst in the NIC.
#[derive(Debug)]
pub(crate) struct NicStop {
    pub(crate) verdicts: nic::Verdicts,
    pub(crate) groups: Groups,
    /// Of the flows that come from the switch.
    pub(crate) flows: nic::Flows,
}

impl NicStop {
    pub(crate) fn new() -> NicStop {
        let (verdicts, flows) = (nic::Verdicts::new(), nic::Flows::new());
        NicStop { verdicts, groups: Groups::new(), flows }
    }

    /// Whether a frame of the burst that was judged may go to the PF.
    pub(crate) fn reaches_pf(&self, summary: Summary) -> bool {
        let may =
            |verdict: nic::Verdict| verdict.is_flood() || verdict.as_port() == Some(PortId::PF);
        match summary {
            Summary::Uniform(verdict) => may(verdict),
            Summary::Empty => false,
            Summary::Mixed => self.verdicts.as_slice().iter().any(|verdict| may(*verdict)),
        }
    }
}

/// Room for a burst in the switch.
#[derive(Debug)]
pub(crate) struct SwitchStop {
    pub(crate) verdicts: vswitch::Verdicts,
    pub(crate) groups: Groups,
    /// Of the flows that come from the NIC.
    flows: vswitch::Flows,
    /// How often rules were met that `hits` does not know of yet.
    counted: Vec<u64>,
    hits: Arc<Hits>,
    bursts: u32,
}

impl SwitchStop {
    pub(crate) fn new() -> SwitchStop {
        SwitchStop {
            verdicts: vswitch::Verdicts::new(),
            groups: Groups::new(),
            flows: vswitch::Flows::new(),
            counted: Vec::new(),
            hits: Arc::default(),
            bursts: 0,
        }
    }

    /// Judges a burst; `flows` are those of the port that it came from, if it is not the uplink.
    pub(crate) fn classify(
        &mut self,
        switch: &Switch,
        from: vswitch::PortId,
        view: &View<'_>,
        now_ns: u64,
        flows: Option<&mut vswitch::Flows>,
    ) -> vswitch::Summary {
        if !switch.hits.is_empty() && !Arc::ptr_eq(&self.hits, &switch.hits) {
            self.flush();
            self.hits = switch.hits.clone();
            self.counted.resize(switch.hits.len(), 0);
        }
        let deep = (!view.deep.is_empty()).then_some(view.deep);
        let burst = vswitch::Burst { from, heads: view.heads, deep, now_ns };
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

    /// Tells the shared counters of rules what was counted here.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.bursts > 0 {
            self.bursts = 0;
            self.hits.add(&mut self.counted);
        }
    }
}

/// Room for frames as they look between NIC and switch, with the tags that are right there.
#[derive(Debug)]
pub(crate) struct BurstView {
    heads: Box<[Head; BURST]>,
    deep: Box<[DeepHead; BURST]>,
    frames: Box<[u8; BURST]>,
}

impl BurstView {
    pub(crate) fn new() -> BurstView {
        BurstView {
            heads: Box::new([[0; 16]; BURST]),
            deep: Box::new([DeepHead::EMPTY; BURST]),
            frames: Box::new([0; BURST]),
        }
    }

    /// The picked frames of a view after a change; `None` if it cannot be told how they begin then,
    /// for want of deep heads.
    pub(crate) fn view(
        &mut self,
        burst: &Burst<'_>,
        before: &View<'_>,
        picks: &[u8],
        edit: VlanEdit,
    ) -> Option<View<'_>> {
        let deep = !before.deep.is_empty();
        if edit == VlanEdit::Pop && !deep {
            return None;
        }
        for (place, pick) in picks.iter().enumerate() {
            let at = usize::from(*pick);
            let frame = before.frame(*pick);
            self.frames[place] = frame;
            if deep {
                self.deep[place] = edited(edit, &before.deep[at]);
                let bytes = &self.deep[place].bytes;
                self.heads[place].copy_from_slice(&bytes[..16]);
            } else {
                self.heads[place] = edited_head(edit, &before.heads[at]);
            }
        }
        debug_assert!(picks.iter().all(|pick| before.frame(*pick) < burst.frames.len() as u8));
        let len = picks.len();
        Some(View {
            heads: &self.heads[..len],
            deep: if deep { &self.deep[..len] } else { &[] },
            frames: Some(&self.frames[..len]),
            edit: crate::edit::both(before.edit, edit)?,
            skip: 0,
            flooded: before.flooded,
        })
    }
}

/// A head after a change that takes no tag off.
fn edited_head(edit: VlanEdit, head: &Head) -> Head {
    let mut after = *head;
    if let VlanEdit::Push(tag) | VlanEdit::Retag(tag) = edit {
        after[12..].copy_from_slice(&tag);
    }
    after
}

/// A deep head after a change; what a tag pushes out at its end is cut off, and what is not known
/// when one is taken off is not there.
fn edited(edit: VlanEdit, head: &DeepHead) -> DeepHead {
    let mut after = *head;
    match edit {
        VlanEdit::None => {}
        VlanEdit::Retag(tag) => after.bytes[12..16].copy_from_slice(&tag),
        VlanEdit::Push(tag) => {
            after.bytes.copy_within(12..DeepHead::LEN - 4, 16);
            after.bytes[12..16].copy_from_slice(&tag);
            after.len = (head.len + 4).min(DeepHead::LEN as u8);
        }
        VlanEdit::Pop => {
            after.bytes.copy_within(16.., 12);
            after.bytes[DeepHead::LEN - 4..].fill(0);
            after.len = head.len.saturating_sub(4);
        }
    }
    after
}

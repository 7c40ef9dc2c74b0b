//! The walk in switchdev mode: a pipe between each function and its representor, and rules that
//! lead off it.

use nic::{DropReason, Fate, PortId, Target};
use port::{BURST, BurstBuffers};

use super::{View, Walk};
use crate::forward::ALL;

impl Walk<'_> {
    /// Carries on what the NIC has sorted; says how many frames were delivered. Frames of one fate
    /// go together, in their order.
    pub(crate) fn leave_function(
        &self,
        from: PortId,
        view: &View<'_>,
        fates: &[Fate],
        area: &mut BurstBuffers,
    ) -> usize {
        let all = u64::MAX.checked_shr((BURST - fates.len().min(BURST)) as u32).unwrap_or(0);
        let mut left = all & !view.skip; // those were counted by the poll
        left &= !self.stopped(view, fates, left);
        let mut delivered = 0;
        while left != 0 {
            let fate = fates[left.trailing_zeros() as usize];
            let (mut picks, mut len, mut rest) = ([0; BURST], 0, left);
            while rest != 0 {
                let frame = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if fates[frame] == fate {
                    picks[len] = frame as u8;
                    len += 1;
                    left &= !(1 << frame);
                }
            }
            delivered += self.meet(from, view, &picks[..len], fate, area);
        }
        delivered
    }

    /// The frames that the limit of groups stops; they are counted.
    fn stopped(&self, view: &View<'_>, fates: &[Fate], of: u64) -> u64 {
        let mut stopped = 0_u64;
        for (frame, (head, fate)) in view.heads.iter().zip(fates).enumerate() {
            let is_group = head[0] & 1 == 1 && of >> frame & 1 == 1;
            let goes_on = !matches!(fate, Fate::Drop(_));
            if !is_group || !goes_on {
                continue;
            }
            if self.admits_group() {
                self.charge_segments(view, frame);
            } else {
                stopped |= 1 << frame;
            }
        }
        if stopped != 0 {
            self.drop_at_nic(DropReason::Storm, stopped.count_ones() as usize);
        }
        stopped
    }

    /// Frames of one fate.
    fn meet(
        &self,
        from: PortId,
        view: &View<'_>,
        picks: &[u8],
        fate: Fate,
        area: &mut BurstBuffers,
    ) -> usize {
        let number = match fate {
            Fate::Slow => return self.send_to_representor(from, view, picks, area),
            Fate::Drop(reason) => {
                self.drop_at_nic(reason, picks.len());
                return 0;
            }
            Fate::Rule(number) => number,
        };
        if let Some(hits) = self.scene().rules.get(usize::from(number)) {
            hits.add(picks.len() as u64, self.bytes(view, picks));
        }
        let Some(rule) = self.scene().table.rule(number) else { return 0 };
        match rule.to {
            Target::Representor => self.send_to_representor(from, view, picks, area),
            Target::Drop => {
                self.drop_at_nic(DropReason::Rule, picks.len());
                0
            }
            Target::Port(to) => {
                let edit = |pick: &u8| rule.edit(&view.heads[usize::from(*pick)]);
                let alike = picks.chunk_by(|a, b| edit(a) == edit(b));
                let view = |picks: &[u8]| View { edit: edit(&picks[0]), ..*view };
                alike
                    .map(|picks| self.pipe_to_function((from, to), &view(picks), picks, area))
                    .sum()
            }
        }
    }

    /// What the host sends to a function.
    pub(crate) fn leave_representor(
        &self,
        of: PortId,
        view: &View<'_>,
        area: &mut BurstBuffers,
    ) -> usize {
        if view.skip == 0 {
            return self.pipe_to_function((PortId::PF, of), view, &ALL[..view.heads.len()], area);
        }
        let (mut picks, mut len) = ([0; BURST], 0);
        for frame in (0..view.heads.len()).filter(|frame| view.skip >> frame & 1 == 0) {
            picks[len] = frame as u8;
            len += 1;
        }
        match len {
            0 => 0,
            _ => self.pipe_to_function((PortId::PF, of), view, &picks[..len], area),
        }
    }

    fn send_to_representor(
        &self,
        of: PortId,
        view: &View<'_>,
        picks: &[u8],
        area: &mut BurstBuffers,
    ) -> usize {
        let Some(port) = self.scene().representor(of) else {
            self.drop_at_nic(DropReason::NoMatch, picks.len());
            return 0;
        };
        let delivered = self.deliver(port, view, picks, port::VlanEdit::None, area);
        self.charge((of, PortId::PF), delivered.frames.into(), || delivered.bytes);
        delivered.frames as usize
    }

    fn pipe_to_function(
        &self,
        (from, to): (PortId, PortId),
        view: &View<'_>,
        picks: &[u8],
        area: &mut BurstBuffers,
    ) -> usize {
        if !self.scene().table.is_up(to) {
            self.drop_at_nic(DropReason::LinkDown, picks.len());
            return 0;
        }
        self.hand_over((from, to), view, picks, port::VlanEdit::None, area)
    }
}

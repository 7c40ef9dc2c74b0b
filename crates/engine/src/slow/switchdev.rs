//! The pipeline in switchdev mode: a pipe between each function and its representor, and rules that
//! bypass it.

use bridge::nic::{RuleTarget, SwitchdevAction};
use bridge::{DropReason, PortId};
use port::{BURST, BurstBuffers};

use super::Pipeline;
use crate::slow::view::{ALL_INDICES, BurstView, indices_of};

impl Pipeline<'_> {
    /// Forwards the frames that the NIC has classified; returns the number delivered. Frames with
    /// the same action go together, in their order.
    pub(crate) fn leave_function(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        actions: &[SwitchdevAction],
        buffers: &mut BurstBuffers,
    ) -> usize {
        let all = u64::MAX.checked_shr((BURST - actions.len().min(BURST)) as u32).unwrap_or(0);
        let mut left = all & !view.skip; // those were counted by the poll
        left &= !self.stopped(view, actions, left);
        let mut delivered = 0;
        while left != 0 {
            let action = actions[left.trailing_zeros() as usize];
            let (mut indices, mut len, mut rest) = ([0; BURST], 0, left);
            while rest != 0 {
                let frame = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if actions[frame] == action {
                    indices[len] = frame as u8;
                    len += 1;
                    left &= !(1 << frame);
                }
            }
            delivered += self.meet(from, view, &indices[..len], action, buffers);
        }
        delivered
    }

    /// Mask of the frames that the storm limit drops; counts them.
    fn stopped(&self, view: &BurstView<'_>, actions: &[SwitchdevAction], of: u64) -> u64 {
        let mut stopped = 0_u64;
        for (frame, (header, action)) in view.headers.iter().zip(actions).enumerate() {
            let is_group = header[0] & 1 == 1 && of >> frame & 1 == 1;
            let goes_on = !matches!(action, SwitchdevAction::Drop(_));
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
            self.drop_at_nic(DropReason::Storm, view, indices_of(stopped, &mut [0; BURST]));
        }
        stopped
    }

    /// Forwards frames of one action.
    fn meet(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        indices: &[u8],
        action: SwitchdevAction,
        buffers: &mut BurstBuffers,
    ) -> usize {
        let number = match action {
            SwitchdevAction::Slow => return self.send_to_representor(from, view, indices, buffers),
            SwitchdevAction::Drop(reason) => {
                self.drop_at_nic(reason, view, indices);
                return 0;
            }
            SwitchdevAction::Rule(number) => number,
        };
        if let Some(hits) = self.snapshot().rules.get(usize::from(number)) {
            hits.add(indices.len() as u64, self.bytes(view, indices));
        }
        let Some(rule) = self.snapshot().table.rule(number) else { return 0 };
        match rule.to {
            RuleTarget::Representor => self.send_to_representor(from, view, indices, buffers),
            RuleTarget::Drop => {
                self.drop_at_nic(DropReason::Rule, view, indices);
                0
            }
            RuleTarget::Port(to) => {
                let edit = |index: &u8| rule.edit(&view.headers[usize::from(*index)]);
                let alike = indices.chunk_by(|a, b| edit(a) == edit(b));
                let view = |indices: &[u8]| BurstView { edit: edit(&indices[0]), ..*view };
                alike
                    .map(|indices| {
                        self.pipe_to_function((from, to), &view(indices), indices, buffers)
                    })
                    .sum()
            }
        }
    }

    /// Forwards a burst that the host sends to a function.
    pub(crate) fn leave_representor(
        &self,
        of: PortId,
        view: &BurstView<'_>,
        buffers: &mut BurstBuffers,
    ) -> usize {
        if view.skip == 0 {
            return self.pipe_to_function(
                (PortId::PF, of),
                view,
                &ALL_INDICES[..view.headers.len()],
                buffers,
            );
        }
        let mut indices = [0; BURST];
        let all = u64::MAX >> (BURST - view.headers.len());
        match indices_of(all & !view.skip, &mut indices) {
            [] => 0,
            indices => self.pipe_to_function((PortId::PF, of), view, indices, buffers),
        }
    }

    fn send_to_representor(
        &self,
        of: PortId,
        view: &BurstView<'_>,
        indices: &[u8],
        buffers: &mut BurstBuffers,
    ) -> usize {
        let Some(port) = self.snapshot().representor(of) else {
            self.drop_at_nic(DropReason::NoMatch, view, indices);
            return 0;
        };
        let delivered = self.deliver(port, false, view, indices, port::VlanEdit::None, buffers);
        self.charge((of, PortId::PF), delivered.frames.into(), || delivered.bytes);
        delivered.frames as usize
    }

    fn pipe_to_function(
        &self,
        (from, to): (PortId, PortId),
        view: &BurstView<'_>,
        indices: &[u8],
        buffers: &mut BurstBuffers,
    ) -> usize {
        if !self.snapshot().table.is_up(to) {
            self.drop_at_nic(DropReason::LinkDown, view, indices);
            return 0;
        }
        self.hand_over((from, to), view, indices, port::VlanEdit::None, buffers)
    }
}

//! Which mirrors get a copy of which frame.

use wire::FrameHeader;

use crate::switch::forward::Source;
use crate::switch::{Burst, SwitchConfig, SwitchVerdicts, Table, VlanEdit};
use crate::{Action, PortId, Verdict};

/// The mirrors of a switch, ready to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    /// Who gets the copies, by mirror.
    to: Vec<PortId>,
    /// The first of the ports whose received frames are copied, by mirror.
    receiver: Vec<Option<PortId>>,
    /// By port: the mirrors of what it sends, and of what it receives.
    of_port: Vec<(u32, u32)>,
}

impl Mirrors {
    pub(crate) fn build(config: &SwitchConfig) -> Self {
        let mut of_port = vec![(0, 0); config.ports.len()];
        for (index, mirror) in config.mirrors.iter().enumerate() {
            mirror.ingress.iter().for_each(|port| of_port[port.index()].0 |= 1 << index);
            mirror.egress.iter().for_each(|port| of_port[port.index()].1 |= 1 << index);
        }
        let mirrors = config.mirrors.iter();
        let receiver = mirrors.clone().map(|mirror| mirror.egress.first().copied()).collect();
        Self { to: mirrors.map(|mirror| mirror.to).collect(), receiver, of_port }
    }

    fn of(&self, port: PortId) -> (u32, u32) {
        self.of_port.get(port.index()).copied().unwrap_or_default()
    }
}

impl Table {
    /// Who gets the copies of a mirror, by its number.
    pub fn mirror_port(&self, mirror: usize) -> Option<PortId> {
        self.mirrors.to.get(mirror).copied()
    }

    /// What to do to the tag of a frame for a mirror that gets a copy: nothing if its sender is
    /// mirrored, or else what is done for the first of the ports whose received frames are.
    pub fn mirror_edit(&self, mirror: usize, from: PortId, head: &[u8; 16]) -> VlanEdit {
        let is_sent = self.mirrors.of(from).0.checked_shr(mirror as u32).unwrap_or(0) & 1 == 1;
        match self.mirrors.receiver.get(mirror).copied().flatten() {
            Some(port) if !is_sent => self.edit(from, port, head),
            _ => VlanEdit::None,
        }
    }

    /// Notes for each frame of a judged burst which mirrors get a copy.
    pub(crate) fn mirror(&self, source: &Source, burst: &Burst<'_>, out: &mut SwitchVerdicts) {
        out.mirrored = !self.mirrors.to.is_empty();
        if !out.mirrored {
            return;
        }
        let len = out.len;
        let mut any = 0;
        for (index, head) in burst.heads.iter().enumerate().take(len) {
            let vid = source.vid_of(FrameHeader(*head).tag_bits());
            let mirrors = self.mirrors_of(source.port, vid, out.of[index]);
            out.mirrors[index] = mirrors;
            any |= mirrors;
        }
        out.mirrored = any != 0;
    }

    fn mirrors_of(&self, from: PortId, vid: u16, verdict: Verdict) -> u32 {
        let one;
        let receivers = match verdict.action() {
            Action::Port(port) => {
                one = [port];
                &one[..]
            }
            Action::Flood(flood) => self.flood_ports(from, vid, flood),
            Action::Drop(_) => &[],
        };
        let (sent, _) = self.mirrors.of(from);
        let others = receivers.iter().filter(|port| **port != from);
        let mut mirrors = others.fold(sent, |all, port| all | self.mirrors.of(*port).1);
        for (index, to) in self.mirrors.to.iter().enumerate() {
            // The sender knows its frame, and a receiver has it already.
            if *to == from || receivers.contains(to) {
                mirrors &= !(1 << index);
            }
        }
        mirrors
    }
}

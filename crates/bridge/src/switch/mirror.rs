//! Mirrors of a switch, and their copies.

use wire::FrameHeader;

use crate::switch::source::Source;
use crate::switch::{Burst, SwitchConfig, SwitchVerdicts, Table};
use crate::{Action, PortId, Verdict, VlanEdit};

/// Compiled mirrors of a switch.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    /// By mirror: port that receives the copies.
    to: Vec<PortId>,
    /// By mirror: the first port whose received frames are copied.
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
    /// Port that receives the copies of a mirror.
    pub fn mirror_port(&self, mirror: usize) -> Option<PortId> {
        self.mirrors.to.get(mirror).copied()
    }

    /// Edit of a mirror's copy: none if the sender is mirrored, otherwise that of the first
    /// mirrored receiver.
    pub fn mirror_edit(&self, mirror: usize, from: PortId, header: &[u8; 16]) -> VlanEdit {
        let is_sent = self.mirrors.of(from).0.checked_shr(mirror as u32).unwrap_or(0) & 1 == 1;
        match self.mirrors.receiver.get(mirror).copied().flatten() {
            Some(port) if !is_sent => self.edit(from, port, header),
            _ => VlanEdit::None,
        }
    }

    /// Sets, for each frame of a classified burst, the mirrors that get a copy.
    pub(crate) fn mirror(&self, source: &Source, burst: &Burst<'_>, out: &mut SwitchVerdicts) {
        out.mirrored = !self.mirrors.to.is_empty();
        if !out.mirrored {
            return;
        }
        let len = out.len;
        let mut any = 0;
        for (index, header) in burst.headers.iter().enumerate().take(len) {
            let vid = source.vid_of(FrameHeader(*header).tag_bits());
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
            // No copy for the sender or a receiver of the frame.
            if *to == from || receivers.contains(to) {
                mirrors &= !(1 << index);
            }
        }
        mirrors
    }
}

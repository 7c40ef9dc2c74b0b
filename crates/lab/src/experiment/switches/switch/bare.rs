//! The bare copying loop.

use anyhow::Result;

use super::super::launch::{BURSTS_MAX, MACS, Start, SwitchCounters, SwitchKind, SwitchProcess};
use crate::bench::bare::{BareProcess, BareSpec};

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "bare",
    about: "the bare copying loop",
    cycles: None,
    bursts_max: BURSTS_MAX,
    hugepages: 0,
    is_installed: || true,
    start: Start::Sockets(|spec, sockets| {
        let bare = BareSpec {
            guests: sockets.iter().cloned().zip(MACS).collect(),
            connect: true,
            cpu: Some(spec.switch_cpu),
            delay_cycles: spec.delay_cycles,
            packed: spec.rings.packed,
            mergeable: spec.rings.mergeable,
            with_parent: true,
        };
        Ok(Box::new(BareProcess::start(spec.program, &bare)?))
    }),
};

impl SwitchProcess for BareProcess {
    fn pids(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    fn counted(&mut self) -> Result<SwitchCounters> {
        let counters = self.counters()?;
        let (frames, busy_cycles) = (counters.frames, counters.busy_cycles);
        Ok(SwitchCounters { frames, busy_cycles, ..SwitchCounters::default() })
    }
}

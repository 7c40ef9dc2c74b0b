//! Frames that are kept for guests on their way from one host to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::plane::{ParkedCounters, TakenFrames};
use engine::Port;
use port::parked;

use super::DataPlane;

/// How often frames are handed on to a guest that has not buffers for all of them at once.
const HAND_ON: Duration = Duration::from_millis(2);
/// How long frames wait for a guest that does not come, once its move is over: longer than a mover
/// lets QEMU take to give a migration up, and each of its requests before that.
const STALE: Duration = Duration::from_secs(120);

/// For whom frames are kept, by the adapter's name.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    all: BTreeMap<String, Keeper>,
    /// Whose guests are elsewhere: what they send here all the same waits.
    held: BTreeSet<String>,
    /// Whether some guest that runs has frames waiting.
    busy: bool,
}

#[derive(Debug)]
struct Keeper {
    port: Arc<Port>,
    kept: parked::ParkedFrames,
    /// When the move was over, if it is: what waits is still handed on.
    over: Option<Instant>,
}

impl Keeper {
    fn end(&self, name: &str) {
        in_vain(name, self.kept.frames());
        self.port.park_frames(None);
    }
}

fn in_vain(name: &str, frames: usize) {
    if frames > 0 {
        tracing::warn!("{name}: {frames} frames waited in vain for its guest");
    }
}

impl Keeping {
    /// Hands on what waits, and forgets whose move is over.
    pub(super) fn look(&mut self, now: Instant) {
        self.busy = false;
        self.all.retain(|name, keeper| {
            let busy = keeper.port.deliver_parked();
            self.busy |= busy;
            let Some(over) = keeper.over else { return true };
            let stays = keeper.kept.is_waiting() && now.duration_since(over) < STALE;
            if !stays {
                keeper.end(name);
            }
            stays
        });
    }

    /// How long until frames are to be handed on again, if some wait.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.busy.then_some(HAND_ON)
    }

    fn of(&self, adapter: &str) -> Option<&parked::ParkedFrames> {
        Some(&self.all.get(adapter)?.kept)
    }
}

impl DataPlane {
    /// Keeps frames for the adapters that move, and for no others.
    pub(super) fn keep(&mut self) {
        let now = Instant::now();
        let state = &self.state;
        self.keeping.all.retain(|name, keeper| {
            let Some(adapter) = state.adapter(name) else {
                keeper.end(name);
                return false;
            };
            let moves = adapter.is_on_the_way();
            keeper.over = if moves { None } else { keeper.over.or(Some(now)) };
            true
        });
        let moving = self.state.adapters.iter().filter(|adapter| adapter.is_on_the_way());
        let names: Vec<String> = moving.map(|adapter| adapter.name.clone()).collect();
        for name in names {
            let Some(port) = self.served(&name).map(|served| served.port.clone()) else { continue };
            let known = self.keeping.all.get(&name);
            if known.is_some_and(|keeper| Arc::ptr_eq(&keeper.port, &port)) {
                continue;
            }
            let kept = parked::ParkedFrames::default();
            port.park_frames(Some(kept.clone()));
            self.keeping.all.insert(name, Keeper { port, kept, over: None });
        }
        self.pause_absent();
        self.keeping.look(now);
    }

    /// Lets what guests send wait that are elsewhere.
    fn pause_absent(&mut self) {
        let gone = self.state.adapters.iter().filter(|adapter| adapter.is_elsewhere());
        let gone: BTreeSet<String> = gone.map(|adapter| adapter.name.clone()).collect();
        for name in gone.union(&self.keeping.held) {
            if let Some(served) = self.served(name) {
                match gone.contains(name) {
                    true => served.port.pause_tx(),
                    false => served.port.resume_tx(),
                }
            }
        }
        self.keeping.held = gone;
    }

    pub(super) fn take_parked(&mut self, adapter: &str) -> TakenFrames {
        let taken = self.keeping.of(adapter).map(parked::ParkedFrames::take);
        taken.map_or_else(TakenFrames::default, |(frames, brought)| TakenFrames { frames, brought })
    }

    pub(super) fn put_parked(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        match self.keeping.of(adapter) {
            Some(kept) => kept.put_first(frames),
            None => in_vain(adapter, frames.len()), // its move was given up long ago
        }
        self.keeping.look(Instant::now());
    }

    pub(super) fn parked(&self, adapter: &str) -> ParkedCounters {
        let Some(Keeper { port, kept, .. }) = self.keeping.all.get(adapter) else {
            return ParkedCounters::default();
        };
        let traffic = port.traffic();
        ParkedCounters {
            frames: kept.frames() as u64,
            lost: kept.lost(),
            received: traffic.rx_frames,
            sent: traffic.tx_frames,
        }
    }
}

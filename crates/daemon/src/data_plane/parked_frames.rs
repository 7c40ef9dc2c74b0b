//! Frames kept for migrating guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::plane::{ParkedCounters, TakenFrames};
use engine::Port;
use port::parked;

use super::DataPlane;

/// Interval of passing frames on to a guest with too few buffers.
const HAND_ON_INTERVAL: Duration = Duration::from_millis(2);
/// Time that frames wait for a guest after its migration: longer than `shunt migrate` lets QEMU
/// take to cancel one, including all its requests.
const STALE_TIME: Duration = Duration::from_secs(120);

/// Parked frames, by adapter.
#[derive(Debug, Default)]
pub(super) struct FrameParking {
    all: BTreeMap<String, ParkedPort>,
    /// Adapters whose guests are elsewhere: frames that they still send here wait.
    paused: BTreeSet<String>,
    /// Some running guest has frames waiting.
    busy: bool,
}

#[derive(Debug)]
struct ParkedPort {
    port: Arc<Port>,
    kept: parked::ParkedFrames,
    /// End of the migration; frames that wait are still passed on.
    over: Option<Instant>,
}

impl ParkedPort {
    fn finish(&self, name: &str) {
        in_vain(name, self.kept.frames());
        self.port.park_frames(None);
    }
}

fn in_vain(name: &str, frames: usize) {
    if frames > 0 {
        tracing::warn!("{name}: {frames} frames dropped, its guest did not come");
    }
}

impl FrameParking {
    /// Passes frames on, and removes entries of finished migrations.
    pub(super) fn poll(&mut self, now: Instant) {
        self.busy = false;
        self.all.retain(|name, parked| {
            let busy = parked.port.deliver_parked();
            self.busy |= busy;
            let Some(over) = parked.over else { return true };
            let stays = parked.kept.is_waiting() && now.duration_since(over) < STALE_TIME;
            if !stays {
                parked.finish(name);
            }
            stays
        });
    }

    /// Time until frames are passed on again; `None` if none wait.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.busy.then_some(HAND_ON_INTERVAL)
    }

    fn of(&self, adapter: &str) -> Option<&parked::ParkedFrames> {
        Some(&self.all.get(adapter)?.kept)
    }
}

impl DataPlane {
    /// Keeps frames for migrating adapters only.
    pub(super) fn update_parked(&mut self) {
        let now = Instant::now();
        let state = &self.state;
        self.parked_frames.all.retain(|name, parked| {
            let Some(adapter) = state.adapter(name) else {
                parked.finish(name);
                return false;
            };
            let moves = adapter.is_on_the_way();
            parked.over = if moves { None } else { parked.over.or(Some(now)) };
            true
        });
        let moving = self.state.adapters.iter().filter(|adapter| adapter.is_on_the_way());
        let names: Vec<String> = moving.map(|adapter| adapter.name.clone()).collect();
        for name in names {
            let Some(port) = self.served(&name).map(|served| served.port.clone()) else { continue };
            let known = self.parked_frames.all.get(&name);
            if known.is_some_and(|parked| Arc::ptr_eq(&parked.port, &port)) {
                continue;
            }
            let kept = parked::ParkedFrames::default();
            port.park_frames(Some(kept.clone()));
            self.parked_frames.all.insert(name, ParkedPort { port, kept, over: None });
        }
        self.pause_absent();
        self.parked_frames.poll(now);
    }

    /// Pauses transmission of guests that are elsewhere.
    fn pause_absent(&mut self) {
        let gone = self.state.adapters.iter().filter(|adapter| adapter.is_elsewhere());
        let gone: BTreeSet<String> = gone.map(|adapter| adapter.name.clone()).collect();
        for name in gone.union(&self.parked_frames.paused) {
            if let Some(served) = self.served(name) {
                match gone.contains(name) {
                    true => served.port.pause_tx(),
                    false => served.port.resume_tx(),
                }
            }
        }
        self.parked_frames.paused = gone;
    }

    pub(super) fn take_parked(&mut self, adapter: &str) -> TakenFrames {
        let taken = self.parked_frames.of(adapter).map(parked::ParkedFrames::take);
        taken.map_or_else(TakenFrames::default, |(frames, brought)| TakenFrames { frames, brought })
    }

    pub(super) fn put_parked(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        match self.parked_frames.of(adapter) {
            Some(kept) => kept.put_first(frames),
            None => in_vain(adapter, frames.len()), // its migration ended long ago
        }
        self.parked_frames.poll(Instant::now());
    }

    pub(super) fn parked(&self, adapter: &str) -> ParkedCounters {
        let Some(ParkedPort { port, kept, .. }) = self.parked_frames.all.get(adapter) else {
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

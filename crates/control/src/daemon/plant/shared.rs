//! The plant in two hands: the API's thread changes it, and another serves its guests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Plant;
use crate::follow::Decision;
use crate::state::{Actual, DeviceNews, Kept, Plane, Refused, State, Taken};

/// The plant, as the API's thread and the one that serves guests share it.
#[derive(Debug, Clone)]
pub(in super::super) struct Shared(Arc<Mutex<Plant>>);

impl Shared {
    pub(in super::super) fn new(plant: Plant) -> Shared {
        Shared(Arc::new(Mutex::new(plant)))
    }

    pub(in super::super) fn lock(&self) -> MutexGuard<'_, Plant> {
        // A panic under the lock is a bug; what it left is no worse than without the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plane for Shared {
    fn recall(&mut self, held: BTreeMap<String, u16>) {
        self.lock().held = held;
    }

    fn reconcile(&mut self, _from: &State, to: &State) -> Result<Actual, Refused> {
        let mut plant = self.lock();
        plant.change(to)?;
        Ok(plant.actual())
    }

    fn actual(&self) -> Actual {
        self.lock().actual()
    }

    fn decisions(&self) -> Vec<Decision> {
        self.lock().following.take_news()
    }

    fn device_news(&self) -> Vec<DeviceNews> {
        let mut plant = self.lock();
        let news = plant.devices.take_news();
        news.into_iter().chain(plant.vdpas.take_news()).collect()
    }

    fn take_kept(&mut self, adapter: &str) -> Taken {
        self.lock().take_kept(adapter)
    }

    fn put_kept(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        self.lock().put_kept(adapter, frames);
    }

    fn kept(&self, adapter: &str) -> Kept {
        self.lock().kept(adapter)
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.lock().announce(adapter)
    }
}

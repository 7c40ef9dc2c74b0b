//! A device that asserts the guarantees of the state machine, for tests and fuzzing.
//!
//! It moves no frames; it records its calls and panics if a guarantee of [`BackendDevice`] is
//! broken. It can be told to refuse calls.

use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::backend::{BackendDevice, InflightArea, MemoryRegion, Refused, RingSetup, SharedArea};
use crate::features::Features;
use crate::foreign::ForeignFd;
use crate::message::RING_SIZE_MAX;
use crate::transfer;

/// Counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Rings started.
    pub starts: u64,
    /// Rings stopped.
    pub stops: u64,
    /// Memory set, added or removed.
    pub memory: u64,
    /// Interrupt or error descriptors changed on a running ring.
    pub fds: u64,
    /// Running rings that were renewed.
    pub renewals: u64,
    /// Logs set and released.
    pub logs: u64,
    /// Resets.
    pub resets: u64,
}

/// A device that checks the order and the arguments of the calls made to it.
#[derive(Debug)]
pub struct CheckedDevice {
    running: Vec<Option<RingSetup>>,
    /// Rings that run with memory or a log that was removed:
    /// [`assert_settled`](Self::assert_settled).
    stale: Vec<bool>,
    log: Option<SharedArea>,
    /// Number of rings with inflight records.
    inflight: Option<u16>,
    regions: Vec<MemoryRegion>,
    features_offered: u64,
    calls: Calls,
    /// Pattern of refusals: the lowest bit decides the next call and is moved to the top, so a
    /// pattern repeats. 0 refuses none.
    pub refusals: u64,
    /// Entries that each ring has served when it is stopped.
    pub served: u16,
    /// The bytes of the configuration space.
    pub config: Vec<u8>,
    /// The MTU last set.
    pub mtu: Option<u16>,
    /// The address a RARP was last asked for.
    pub rarp: Option<[u8; 6]>,
    /// The status last set.
    pub status: Option<u8>,
    /// State to write on save; state that was read on load.
    pub state: Vec<u8>,
    state_from: Option<ForeignFd>,
    /// Number of cleared records.
    pub cleared: u64,
}

impl CheckedDevice {
    /// A device with `rings` rings; it panics on features outside `features_offered`.
    pub fn new(rings: usize, features_offered: u64) -> Self {
        let mut running = Vec::new();
        running.resize_with(rings, || None);
        Self {
            running,
            stale: vec![false; rings],
            log: None,
            inflight: None,
            regions: Vec::new(),
            features_offered,
            calls: Calls::default(),
            refusals: 0,
            served: 0,
            config: Vec::new(),
            mtu: None,
            rarp: None,
            status: None,
            state: Vec::new(),
            state_from: None,
            cleared: 0,
        }
    }

    /// The setup of a running ring.
    pub fn ring(&self, index: usize) -> Option<&RingSetup> {
        self.running[index].as_ref()
    }

    /// Number of running rings.
    pub fn rings_running(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// Bytes of the log, if there is one.
    pub fn log(&self) -> Option<u64> {
        self.log.as_ref().map(|log| log.size)
    }

    /// Number of rings with inflight records, if any.
    pub fn inflight(&self) -> Option<u16> {
        self.inflight
    }

    /// Call it after each request: no ring may use removed memory or logs.
    pub fn assert_settled(&self) {
        for (index, stale) in self.stale.iter().enumerate() {
            assert!(!stale, "ring {index} runs with memory or a log that is no more");
        }
    }

    /// The memory.
    pub fn regions(&self) -> &[MemoryRegion] {
        &self.regions
    }

    /// Counts of calls so far.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    fn refuse(&mut self, what: &str) -> Result<(), Refused> {
        let refused = self.refusals & 1 != 0;
        self.refusals = self.refusals.rotate_right(1);
        if refused { Err(Refused::new(format!("{what} refused by the test"))) } else { Ok(()) }
    }

    fn assert_still(&self) {
        assert_eq!(self.rings_running(), 0, "device reset, or its state moved, while a ring runs");
    }

    /// Marks running rings after a replacement of memory or log.
    fn make_stale(&mut self) {
        self.stale = self.running.iter().map(Option::is_some).collect();
    }

    fn assert_possible(&self, index: usize, ring: &RingSetup) {
        assert!(!self.regions.is_empty(), "ring {index} is started without memory");
        let packed = ring.features & Features::RING_PACKED.bits() != 0;
        assert!(ring.size > 0 && u32::from(ring.size) <= RING_SIZE_MAX);
        assert!(packed || ring.size.is_power_of_two() && ring.base <= 0xffff);
        let align = if packed { 4 } else { 2 };
        assert_eq!((ring.desc % 16, ring.avail % align, ring.used % 4), (0, 0, 0));
        assert_eq!(ring.features & !self.features_offered, 0, "features that were not offered");
        assert!(ring.enabled || self.discards(index), "ring {index} is disabled");
        assert!(ring.log.is_none() || self.log.is_some(), "ring {index} logs and has no log");
    }

    fn assert_fits(&self, region: &MemoryRegion) {
        assert!(region.size > 0, "an empty region");
        let end = region.guest_addr.checked_add(region.size).expect("guest addresses wrap");
        region.user_addr.checked_add(region.size).expect("front-end addresses wrap");
        region.mmap_offset.checked_add(region.size).expect("file offsets wrap");
        for other in &self.regions {
            let apart =
                end <= other.guest_addr || other.guest_addr + other.size <= region.guest_addr;
            assert!(apart, "regions overlap");
        }
    }
}

impl BackendDevice for CheckedDevice {
    fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), Refused> {
        // An empty one may be the front-end's table, or the end.
        if !regions.is_empty() {
            self.refuse("memory")?;
        }
        self.calls.memory += 1;
        self.make_stale();
        self.regions.clear();
        for region in regions {
            self.assert_fits(&region);
            self.regions.push(region);
        }
        Ok(())
    }

    fn add_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        self.assert_fits(&region);
        self.refuse("region")?;
        self.calls.memory += 1;
        self.make_stale();
        self.regions.push(region);
        Ok(())
    }

    fn remove_region(&mut self, guest_addr: u64, user_addr: u64, size: u64) {
        self.calls.memory += 1;
        self.make_stale();
        let wanted = (guest_addr, user_addr, size);
        let at = self.regions.iter().position(|r| (r.guest_addr, r.user_addr, r.size) == wanted);
        self.regions.remove(at.expect("a region that was never added is removed"));
    }

    fn discards(&self, index: usize) -> bool {
        !index.is_multiple_of(2)
    }

    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        assert!(self.running[index].is_none(), "ring {index} is started while it runs");
        self.assert_possible(index, ring);
        self.refuse("ring")?;
        self.calls.starts += 1;
        self.running[index] = Some(ring.clone());
        Ok(())
    }

    fn renew_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        let running = self.running[index].as_ref().expect("a ring is renewed that does not run");
        let base = advanced(running, self.served);
        self.assert_possible(index, ring);
        self.refuse("renewal")?;
        self.calls.renewals += 1;
        self.stale[index] = false;
        self.running[index] = Some(RingSetup { base, ..ring.clone() });
        Ok(())
    }

    fn stop_ring(&mut self, index: usize) -> u32 {
        let ring = self.running[index].take().expect("a ring is stopped that does not run");
        self.calls.stops += 1;
        self.stale[index] = false;
        advanced(&ring, self.served)
    }

    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>) {
        let ring = self.running[index].as_mut().expect("a ring that does not run is told a call");
        ring.call = call;
        self.calls.fds += 1;
    }

    fn set_err(&mut self, index: usize, err: Option<Arc<ForeignFd>>) {
        let ring = self.running[index].as_mut().expect("a ring that does not run is told an err");
        ring.err = err;
        self.calls.fds += 1;
    }

    fn reset(&mut self) {
        self.assert_still();
        self.calls.resets += 1;
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        assert!(mtu >= 68);
        self.refuse("MTU")?;
        self.mtu = Some(mtu);
        Ok(())
    }

    fn send_rarp(&mut self, mac: [u8; 6]) {
        assert_eq!(mac[0] & 1, 0, "a multicast address");
        self.rarp = Some(mac);
    }

    fn set_status(&mut self, status: u8) {
        if status == 0 {
            self.assert_still();
        }
        self.status = Some(status);
    }

    fn set_log(&mut self, log: Option<SharedArea>) -> Result<(), Refused> {
        if let Some(log) = &log {
            assert!(log.size > 0 && log.offset.checked_add(log.size).is_some());
            self.refuse("log")?;
        }
        self.calls.logs += 1;
        self.log = log;
        for (stale, ring) in self.stale.iter_mut().zip(&self.running) {
            *stale |= ring.as_ref().is_some_and(|ring| ring.log.is_some());
        }
        Ok(())
    }

    fn create_inflight(&mut self, rings: u16, ring_size: u16) -> Result<SharedArea, Refused> {
        assert!(rings > 0 && usize::from(rings) <= self.running.len());
        assert!((1..=RING_SIZE_MAX).contains(&ring_size.into()));
        self.refuse("records")?;
        let fd = memfd_create("checked", MemfdFlags::CLOEXEC);
        let fd = fd.map_err(|errno| Refused::new(errno.to_string()))?;
        self.inflight = Some(rings);
        Ok(SharedArea { size: u64::from(rings) * 64, offset: 0, fd: fd.into() })
    }

    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused> {
        if let Some(InflightArea { area, rings, ring_size }) = &records {
            assert!(*rings > 0 && usize::from(*rings) <= self.running.len());
            assert!((1..=RING_SIZE_MAX).contains(&u32::from(*ring_size)));
            assert!(area.size > 0 && area.offset.checked_add(area.size).is_some());
            self.refuse("records")?;
        }
        self.inflight = records.map(|records| records.rings);
        Ok(())
    }

    fn clear_inflight(&mut self, index: usize) {
        assert!(self.running[index].is_none(), "the record of a ring that runs is cleared");
        self.cleared += 1;
    }

    fn save_state(&mut self, to: ForeignFd) -> Result<(), Refused> {
        self.assert_still();
        self.refuse("state")?;
        transfer::save(&to, &self.state).map_err(|error| Refused::new(error.to_string()))
    }

    fn load_state(&mut self, from: ForeignFd) -> Result<(), Refused> {
        self.assert_still();
        self.refuse("state")?;
        transfer::check(&from).map_err(|error| Refused::new(error.to_string()))?;
        self.state_from = Some(from);
        Ok(())
    }

    fn check_state(&mut self) -> Result<(), Refused> {
        let Some(from) = self.state_from.take() else { return Ok(()) };
        let state = transfer::load(&from).map_err(|error| Refused::new(error.to_string()))?;
        self.state = state;
        Ok(())
    }

    fn config(&self) -> Vec<u8> {
        self.config.clone()
    }
}

/// Position of a ring after `served` more entries.
fn advanced(ring: &RingSetup, served: u16) -> u32 {
    if ring.features & Features::RING_PACKED.bits() == 0 {
        return u32::from((ring.base as u16).wrapping_add(served));
    }
    let (size, base) = (u32::from(ring.size), ring.base);
    let next = (base & 0x7fff) + u32::from(served);
    let wrap = (base ^ ((next / size) << 15)) & 0x8000;
    let half = (next % size) | wrap;
    half | half << 16
}

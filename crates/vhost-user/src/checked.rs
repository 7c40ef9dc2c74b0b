//! A device that asserts what the state machine promises, for tests and fuzzing.
//!
//! It serves nothing; it keeps what it was given and panics when a promise of [`Device`] is
//! broken. It can be told to refuse calls.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::backend::{Device, MemoryRegion, Refused, RingSetup};
use crate::features::Features;
use crate::message::RING_SIZE_MAX;

/// Counts of the calls that were made.
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
    /// Resets.
    pub resets: u64,
}

/// A device that checks the order and the arguments of the calls made to it.
#[derive(Debug)]
pub struct CheckedDevice {
    running: Vec<Option<RingSetup>>,
    regions: Vec<MemoryRegion>,
    features_offered: u64,
    calls: Calls,
    /// Whether calls that can be refused are: the lowest bit decides the next one and is moved
    /// to the top, so a pattern repeats. 0 refuses none.
    pub refusals: u64,
    /// How far each ring is said to have come when it is stopped.
    pub served: u16,
    /// The bytes of the configuration space.
    pub config: Vec<u8>,
    /// The MTU last set.
    pub mtu: Option<u16>,
    /// The address a RARP was last asked for.
    pub rarp: Option<[u8; 6]>,
    /// The status last set.
    pub status: Option<u8>,
}

impl CheckedDevice {
    /// A device with this many rings; features outside of `features_offered` must not come.
    pub fn new(rings: usize, features_offered: u64) -> Self {
        let mut running = Vec::new();
        running.resize_with(rings, || None);
        Self {
            running,
            regions: Vec::new(),
            features_offered,
            calls: Calls::default(),
            refusals: 0,
            served: 0,
            config: Vec::new(),
            mtu: None,
            rarp: None,
            status: None,
        }
    }

    /// The setup of a ring that runs.
    pub fn ring(&self, index: usize) -> Option<&RingSetup> {
        self.running[index].as_ref()
    }

    /// Number of rings that run.
    pub fn rings_running(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// The memory.
    pub fn regions(&self) -> &[MemoryRegion] {
        &self.regions
    }

    /// The calls made so far.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    fn refuse(&mut self, what: &str) -> Result<(), Refused> {
        let refused = self.refusals & 1 != 0;
        self.refusals = self.refusals.rotate_right(1);
        if refused { Err(Refused::new(format!("{what} refused by the test"))) } else { Ok(()) }
    }

    fn assert_still(&self) {
        assert_eq!(self.rings_running(), 0, "memory changed or device reset while a ring runs");
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

impl Device for CheckedDevice {
    fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), Refused> {
        self.assert_still();
        if !regions.is_empty() {
            self.refuse("memory")?;
        }
        self.calls.memory += 1;
        self.regions.clear();
        for region in regions {
            self.assert_fits(&region);
            self.regions.push(region);
        }
        Ok(())
    }

    fn add_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        self.assert_still();
        self.assert_fits(&region);
        self.refuse("region")?;
        self.calls.memory += 1;
        self.regions.push(region);
        Ok(())
    }

    fn remove_region(&mut self, guest_addr: u64, user_addr: u64, size: u64) {
        self.assert_still();
        self.calls.memory += 1;
        let wanted = (guest_addr, user_addr, size);
        let at = self.regions.iter().position(|r| (r.guest_addr, r.user_addr, r.size) == wanted);
        self.regions.remove(at.expect("a region that was never added is removed"));
    }

    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        assert!(self.running[index].is_none(), "ring {index} is started while it runs");
        assert!(!self.regions.is_empty(), "ring {index} is started without memory");
        let packed = ring.features & Features::RING_PACKED.bits() != 0;
        assert!(ring.size > 0 && u32::from(ring.size) <= RING_SIZE_MAX);
        assert!(packed || ring.size.is_power_of_two() && ring.base <= 0xffff);
        let align = if packed { 4 } else { 2 };
        assert_eq!((ring.desc % 16, ring.avail % align, ring.used % 4), (0, 0, 0));
        assert_eq!(ring.features & !self.features_offered, 0, "features that were not offered");
        self.refuse("ring")?;
        self.calls.starts += 1;
        self.running[index] = Some(ring.clone());
        Ok(())
    }

    fn stop_ring(&mut self, index: usize) -> u32 {
        let ring = self.running[index].take().expect("a ring is stopped that does not run");
        self.calls.stops += 1;
        advanced(&ring, self.served)
    }

    fn set_call(&mut self, index: usize, call: Option<Arc<OwnedFd>>) {
        let ring = self.running[index].as_mut().expect("a ring that does not run is told a call");
        ring.call = call;
        self.calls.fds += 1;
    }

    fn set_err(&mut self, index: usize, err: Option<Arc<OwnedFd>>) {
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

    fn config(&self) -> Vec<u8> {
        self.config.clone()
    }
}

/// Where a ring stops that came so many entries further.
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

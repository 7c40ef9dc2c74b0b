//! The device of a front-end: virtio-net rings, on a port of a soft NIC.

mod handover;
mod identity;
mod memory;
mod ring;

pub(super) use handover::FrontendSettings;
pub(super) use identity::Identity;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bridge::rate::StormLimit;
use engine::{Half, Port, SoftNic};
use guestmem::{DirtyLog, GuestMemory, Quota, Region};
use port::notifier::WriteBudget;
use port::virtio_net::RingEvents;
use vhost_user::transfer::Transfer;
use vhost_user::{
    BackendDevice, Closer, ForeignFd, InflightArea, MemoryRegion, Refused, RingSetup, SharedArea,
};
use wire::Mac;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net as net;

use memory::{map, map_area, refused, refused_chain, unmapped};

use super::inflight::{InflightMemory, InflightRecords};
use super::migrated_config::MigratedConfig;
use super::saved_rings::SavedRings;
use super::vmq::Vmq;
use model::state::VhostUser;

/// Maximum announcements of a front-end per second; a tenth of them at once. Each is a broadcast
/// outside the function's rate limits. QEMU requests five within a second after a migration.
const ANNOUNCEMENTS_PER_S: u32 = 100;

/// Device of one guest.
#[derive(Debug)]
pub(super) struct GuestDevice {
    nic: Arc<SoftNic>,
    port: Arc<Port>,
    identity: Identity,
    queue_pairs: u16,
    mtu: u16,
    /// MTU of the representor in switchdev mode, reported to the guest up to `mtu`.
    representor_mtu: Option<u32>,
    /// MTU set by the front-end, at most `mtu`.
    mtu_set: u16,
    memory: Arc<GuestMemory>,
    /// Quota of mapped memory, of this session and in total.
    quota: Arc<Quota>,
    /// Files behind `memory`, for a handover.
    files: Vec<MemoryRegion>,
    /// Dirty log during a live migration, and its file.
    log: Option<Arc<DirtyLog>>,
    log_file: Option<SharedArea>,
    /// Writes outside former logs of this session, and a flag that this was logged.
    unlogged: u64,
    unlogged_reported: bool,
    /// In-flight records of the front-end, and their file.
    records: Option<InflightRecords>,
    records_file: Option<InflightArea>,
    /// Memory for new records.
    records_memory: InflightMemory,
    /// Records of packed rings in the run directory, for front-ends without in-flight records.
    saved_rings: SavedRings,
    /// Transfer of the adapter state in a live migration.
    transfer: Option<Transfer>,
    /// Runs blocking calls on the front-end's files, and frees its memory.
    closer: Closer,
    /// The last receive ring, which an uplink queue may fill.
    vmq: Vmq,
    /// Set when a descriptor of the front-end blocked one of our threads.
    stalled: Arc<AtomicBool>,
    /// Time budget of interrupts, and the number of moves off the lanes already reported.
    budget: Arc<WriteBudget>,
    moves_reported: u64,
    created: Instant,
    announcements: StormLimit,
}

impl GuestDevice {
    pub(super) fn new(
        nic: Arc<SoftNic>,
        port: Arc<Port>,
        attachment: &VhostUser,
        identity: Identity,
        run_dir: &Path,
        quota: Arc<Quota>,
    ) -> GuestDevice {
        let pairs = usize::from(attachment.queue_pairs);
        let (last, closer) = (pairs.saturating_sub(1), Closer::default());
        GuestDevice {
            nic,
            saved_rings: SavedRings::new(run_dir, &port.label, pairs * 2),
            vmq: Vmq::new(port.clone(), last, attachment.mtu),
            port,
            identity,
            queue_pairs: attachment.queue_pairs,
            mtu: attachment.mtu,
            representor_mtu: None,
            mtu_set: attachment.mtu,
            memory: Arc::default(),
            quota,
            files: Vec::new(),
            log: None,
            log_file: None,
            unlogged: 0,
            unlogged_reported: false,
            records: None,
            records_file: None,
            records_memory: InflightMemory::of(attachment.queue_pairs * 2, &closer),
            transfer: None,
            closer,
            stalled: Arc::default(),
            budget: Arc::default(),
            moves_reported: 0,
            created: Instant::now(),
            announcements: StormLimit::new(ANNOUNCEMENTS_PER_S, 0),
        }
    }

    /// Changes its addresses; a driver reads them when it starts.
    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Sets the MTU of its representor; the driver reads it when it starts.
    pub(super) fn set_representor_mtu(&mut self, mtu: Option<u32>) {
        self.representor_mtu = mtu;
    }

    pub(super) fn vmq(&mut self) -> &mut Vmq {
        &mut self.vmq
    }

    /// Describes how frames of the adapter's queue reach the guest; `None` without a queue.
    pub(super) fn describe_vmq(&self) -> Option<String> {
        self.vmq.describe()
    }

    /// Returns `true` if the front-end blocked one of our threads.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Returns `true` if interrupts were moved off the lanes since the last call, and counts it.
    pub(super) fn take_moved_notifies(&mut self) -> bool {
        let moves = self.budget.moves();
        let is_new = moves > self.moves_reported;
        if is_new {
            self.moves_reported = moves;
            self.port.count_moved_notifies();
        }
        is_new
    }

    /// Bytes that the kernel pins for an uplink queue.
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.vmq.pinned_bytes()
    }

    /// Number of memory regions.
    pub(super) fn regions(&self) -> usize {
        self.memory.regions().len()
    }

    pub(super) fn label(&self) -> &str {
        &self.port.label
    }

    pub(super) fn is_attached(&self) -> bool {
        self.port.is_attached()
    }

    /// Returns `true` while the front-end shares memory.
    pub(super) fn has_memory(&self) -> bool {
        !self.memory.regions().is_empty()
    }

    pub(super) fn has_mac(&self) -> bool {
        self.identity.mac.is_some()
    }

    /// Resets the front-end's settings for the next one; returns `true` if this one blocked one of
    /// our threads. No ring may run.
    pub(super) fn end_session(&mut self) -> bool {
        self.mtu_set = self.mtu;
        self.transfer = None;
        (self.unlogged, self.unlogged_reported) = (0, false);
        self.stalled.swap(false, Ordering::Relaxed)
    }

    /// Checks the total size of the session's mappings.
    fn check_size(
        &self,
        files: &[MemoryRegion],
        more: &[MemoryRegion],
        log: Option<&SharedArea>,
    ) -> Result<(), Refused> {
        let sizes = files.iter().chain(more).map(|file| file.size);
        let sizes = sizes.chain(log.map(|log| log.size));
        self.quota.check_session(sizes).map_err(|error| unmapped(&error))
    }

    /// Runs blocking calls on the front-end's files.
    pub(super) fn closer(&self) -> &Closer {
        &self.closer
    }

    /// Returns `true` while calls on a state's pipe are pending, which cannot be handed over.
    pub(super) fn is_under_way(&mut self, now: Instant) -> bool {
        let closer = &self.closer;
        self.transfer.as_mut().is_some_and(|transfer| transfer.is_under_way(closer, now))
    }

    /// Returns `true` while a device state is being transferred; called when the front-end asks for
    /// the result.
    pub(super) fn is_transferring(&mut self, now: Instant) -> bool {
        let closer = &self.closer;
        self.transfer.as_mut().is_some_and(|transfer| !transfer.is_done(closer, now))
    }

    fn replace_memory(&mut self, regions: Vec<Region>) -> Result<(), Refused> {
        self.memory = Arc::new(GuestMemory::new(regions).map_err(refused)?);
        Ok(())
    }

    /// Number of writes outside the front-end's log in this session; reported once.
    pub(super) fn unlogged(&mut self) -> Option<u64> {
        let unlogged = self.unlogged + self.log.as_ref().map_or(0, |log| log.outside());
        let is_new = unlogged > 0 && !self.unlogged_reported;
        self.unlogged_reported |= is_new;
        is_new.then_some(unlogged)
    }

    /// Longest frame that the guest may send, in bytes.
    fn frame_bytes_max(&self) -> u32 {
        u32::from(self.mtu_set) + OVERHEAD_MAX
    }

    /// Configuration promised to the guest.
    fn promised(&self) -> MigratedConfig {
        MigratedConfig::new(self.identity.mac, self.mtu_set)
    }
}

/// Half of a queue pair that a ring belongs to: even rings receive (virtio 1.2, section 5.1.2).
fn half(index: usize) -> Half {
    if index.is_multiple_of(2) { Half::Receive } else { Half::Transmit }
}

impl BackendDevice for GuestDevice {
    fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), Refused> {
        self.check_size(&regions, &[], self.log_file.as_ref())?;
        let map = |region| map(region, &self.quota, &self.closer);
        self.replace_memory(regions.iter().map(map).collect::<Result<_, _>>()?)?;
        self.files = regions;
        Ok(())
    }

    fn add_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        self.check_size(&self.files, std::slice::from_ref(&region), self.log_file.as_ref())?;
        let mut regions = self.memory.regions().to_vec();
        regions.push(map(&region, &self.quota, &self.closer)?);
        self.replace_memory(regions)?;
        self.files.push(region);
        Ok(())
    }

    fn remove_region(&mut self, guest_addr: u64, user_addr: u64, _size: u64) {
        let mut regions = self.memory.regions().to_vec();
        regions.retain(|region| (region.guest_addr, region.user_addr) != (guest_addr, user_addr));
        self.files.retain(|file| (file.guest_addr, file.user_addr) != (guest_addr, user_addr));
        self.replace_memory(regions).expect("a subset of valid regions is valid");
    }

    fn discards(&self, index: usize) -> bool {
        half(index) == Half::Transmit
    }

    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        let pair = index / 2;
        // Even rings are the guest's Rx, odd ones its Tx (virtio 1.2, section 5.1.2).
        let created = self.ring(index, ring);
        let events = created.events();
        match half(index) {
            Half::Receive if self.vmq.is(pair) => self.vmq.start(created)?,
            Half::Receive => self.port.attach_receive(pair, Box::new(created.receive()?)),
            Half::Transmit => {
                let half = created.transmit_at(ring.base, self.frame_bytes_max())?;
                self.port.attach_transmit(pair, Box::new(half));
            }
        }
        // The previous owner may have died between using a buffer and notifying the guest.
        events.notify();
        tracing::debug!("{}: ring {index} of {} entries started", self.label(), ring.size);
        Ok(())
    }

    fn renew_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        let pair = index / 2;
        let created = self.ring(index, ring);
        let there = match half(index) {
            Half::Receive if self.vmq.is(pair) => return self.vmq.renew(created),
            Half::Receive => self.port.renew_receive(pair, |old| -> Result<_, Refused> {
                Ok(Box::new(created.receive_at(old.stop())?))
            })?,
            Half::Transmit => {
                let longest = self.frame_bytes_max();
                self.port.renew_transmit(pair, |old| -> Result<_, Refused> {
                    Ok(Box::new(created.transmit_at(old.stop(), longest)?))
                })?
            }
        };
        match there {
            true => Ok(()),
            false => Err(Refused::new("the ring does not run any more")),
        }
    }

    fn stop_ring(&mut self, index: usize) -> u32 {
        let pair = index / 2;
        let next = match half(index) {
            Half::Receive if self.vmq.is(pair) => self.vmq.stop(),
            Half::Receive => self.port.detach_receive(pair).map_or(0, |mut ring| ring.stop()),
            Half::Transmit => self.port.detach_transmit(pair).map_or(0, |mut ring| ring.stop()),
        };
        tracing::debug!("{}: ring {index} stopped", self.label());
        next
    }

    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>) {
        let pair = index / 2;
        match half(index) {
            Half::Receive if self.vmq.is(pair) => {
                self.vmq.change(|ring| ring.call = call.clone());
            }
            half => self.port.change_events(half, pair, |events| events.set_call(call.clone())),
        }
        // QEMU starts a ring before it sets the call eventfd: notify now of buffers used until
        // here.
        let stalled = self.stalled.clone();
        let budget = self.budget.clone();
        let events = RingEvents { call, stalled, budget, ..RingEvents::default() };
        events.notify();
    }

    fn set_err(&mut self, index: usize, error: Option<Arc<ForeignFd>>) {
        let pair = index / 2;
        match half(index) {
            Half::Receive if self.vmq.is(pair) => self.vmq.change(|ring| ring.err = error),
            half => self.port.change_events(half, pair, |events| events.set_error(error)),
        }
    }

    fn reset(&mut self) {
        tracing::debug!("{}: device reset", self.label());
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        if mtu > self.mtu {
            let ours = self.mtu;
            return Err(Refused::new(format!("MTU {mtu} is above the port's maximum {ours}")));
        }
        self.mtu_set = mtu; // for rings started from now on
        Ok(())
    }

    fn send_rarp(&mut self, mac: [u8; 6]) {
        let may = self.identity.announces.as_ref().is_none_or(|macs| macs.contains(&Mac(mac)));
        if !may {
            let (label, mac) = (self.label(), Mac(mac));
            return tracing::debug!("{label}: not announced: {mac} is not an address of it");
        }
        if self.announcements.admit(1, self.created.elapsed().as_nanos() as u64) == 0 {
            return tracing::debug!("{}: not announced: too many", self.label());
        }
        let frame = wire::rarp::announcement(Mac(mac));
        let sent = self.nic.inject(&self.port, &frame);
        tracing::debug!("{}: announced {} ({sent} receivers)", self.label(), Mac(mac));
    }

    fn set_status(&mut self, status: u8) {
        tracing::debug!("{}: device status {status:#x}", self.label());
    }

    fn set_log(&mut self, log: Option<SharedArea>) -> Result<(), Refused> {
        self.check_size(&self.files, &[], log.as_ref())?;
        let map = |area: &SharedArea| -> Result<_, Refused> {
            Ok(Arc::new(DirtyLog::of(map_area(area, area.size, &self.quota, &self.closer)?)))
        };
        let log_of = log.as_ref().map(map).transpose()?;
        let former = std::mem::replace(&mut self.log, log_of);
        self.unlogged += former.map_or(0, |log| log.outside());
        self.log_file = log;
        let change = if self.log.is_some() { "dirty log set" } else { "dirty log removed" };
        tracing::debug!("{}: {change}", self.label());
        Ok(())
    }

    fn create_inflight(&mut self, rings: u16, ring_size: u16) -> Result<SharedArea, Refused> {
        let created =
            self.records_memory.create(rings, ring_size).map_err(|error| refused_chain(&error));
        let (records, area) = created?;
        let fd = area.fd.as_fd().try_clone_to_owned().map_err(refused)?;
        self.records = Some(records);
        let copy = SharedArea { fd: ForeignFd::new(fd, &self.closer), ..area };
        self.records_file = Some(InflightArea { area: copy, rings, ring_size });
        Ok(area)
    }

    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused> {
        let open = |given: &InflightArea| {
            // The front-end may report an area larger than the records.
            let size = given.area.size.min(InflightRecords::bytes(given.rings, given.ring_size));
            InflightRecords::open(given, map_area(&given.area, size, &self.quota, &self.closer)?)
        };
        self.records = records.as_ref().map(open).transpose()?;
        self.records_file = records;
        Ok(())
    }

    fn clear_inflight(&mut self, index: usize) {
        if let Some(records) = &self.records {
            records.clear(index);
        }
        self.saved_rings.clear(index);
    }

    fn save_state(&mut self, to: ForeignFd) -> Result<(), Refused> {
        let transfer = Transfer::save(to, self.promised().to_bytes(), &self.closer);
        self.transfer = Some(transfer.map_err(|error| refused_chain(&error))?);
        Ok(())
    }

    fn load_state(&mut self, from: ForeignFd) -> Result<(), Refused> {
        self.transfer = Some(Transfer::load(from).map_err(|error| refused_chain(&error))?);
        Ok(())
    }

    fn check_state(&mut self) -> Result<(), Refused> {
        let Some(transfer) = self.transfer.take() else { return Ok(()) };
        let state = transfer.end().map_err(|error| refused_chain(&error))?;
        let Some(state) = state else { return Ok(()) };
        let here = MigratedConfig::new(self.identity.mac, self.mtu);
        MigratedConfig::from_bytes(&state)?.check_target(&here)
    }

    fn config(&self) -> Vec<u8> {
        let link_up = self.nic.snapshot().is_up(&self.port);
        // Clamped to at least 68, the driver's minimum MTU.
        let told = |mtu: u32| u16::try_from(mtu).unwrap_or(self.mtu).clamp(68, self.mtu);
        let config = net::Config {
            mac: self.identity.mac.unwrap_or(Mac::ZERO),
            status: if link_up { net::STATUS_LINK_UP } else { 0 }.into(),
            max_virtqueue_pairs: self.queue_pairs.into(),
            mtu: self.representor_mtu.map_or(self.mtu, told).into(),
            ..net::Config::default()
        };
        config.to_bytes().to_vec()
    }
}

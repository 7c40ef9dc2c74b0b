//! The device that a front-end sees: virtio-net rings, on a port of a soft NIC.

mod handover;
mod identity;
mod memory;
mod ring;

pub(super) use handover::DeviceHandover;
pub(super) use identity::Identity;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bridge::rate::StormLimit;
use engine::{Port, SoftNic};
use guestmem::{DirtyLog, GuestMemory, Quota, Region};
use port::notifier::WriteBudget;
use port::virtio_net::RingEvents;
use vhost_user::transfer::Transfer;
use vhost_user::{
    Closer, Device, ForeignFd, InflightArea, MemoryRegion, Refused, RingSetup, SharedArea,
};
use wire::Mac;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net as net;

use memory::{map, map_area, refused, refused_chain};

use super::carried::Carried;
use super::inflight::{self, Records};
use super::kept::Kept;
use super::vmq::Vmq;
use model::state::VhostUser;

/// Announcements that a front-end may have sent in a second, a tenth of them at once: each is a
/// broadcast that its function's limits do not count. QEMU asks for five in a second, after a
/// migration.
const ANNOUNCEMENTS_PER_S: u32 = 100;

/// One guest's device.
#[derive(Debug)]
pub(super) struct GuestDevice {
    nic: Arc<SoftNic>,
    port: Arc<Port>,
    identity: Identity,
    queue_pairs: u16,
    mtu: u16,
    /// That of its representor, in switchdev mode: what the guest is told, up to `mtu`.
    representor_mtu: Option<u32>,
    /// What the front-end set, at most `mtu`.
    mtu_set: u16,
    memory: Arc<GuestMemory>,
    /// What it, and all others together, may have mapped.
    quota: Arc<Quota>,
    /// The files behind it, for a process that takes over.
    files: Vec<MemoryRegion>,
    /// Where writes to it are logged, while it is moved, and the file behind that.
    log: Option<Arc<DirtyLog>>,
    log_file: Option<SharedArea>,
    /// Writes that former logs of this session had no bit for, and whether it was said that there
    /// are any.
    unlogged: u64,
    told_unlogged: bool,
    /// Where it is written down how far its rings have come, and the file behind that.
    records: Option<Records>,
    records_file: Option<InflightArea>,
    /// Where new ones are made.
    records_memory: inflight::Memory,
    /// The same of packed rings, where the front-end does not keep it.
    kept: Kept,
    /// What is promised to the guest, on its way to another adapter or from one.
    transfer: Option<Transfer>,
    /// Makes the calls on the front-end's files that may wait, and frees its memory.
    closer: Closer,
    /// The last receive ring, which a queue of the uplink's interface may fill.
    vmq: Vmq,
    /// Set by whoever was held up by a descriptor of the front-end's.
    stalled: Arc<AtomicBool>,
    /// Time that its interrupts take, and how often it was said that they were moved.
    budget: Arc<WriteBudget>,
    moves_told: u64,
    made: Instant,
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
            kept: Kept::new(run_dir, &port.label, pairs * 2),
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
            told_unlogged: false,
            records: None,
            records_file: None,
            records_memory: inflight::Memory::of(attachment.queue_pairs * 2, &closer),
            transfer: None,
            closer,
            stalled: Arc::default(),
            budget: Arc::default(),
            moves_told: 0,
            made: Instant::now(),
            announcements: StormLimit::new(ANNOUNCEMENTS_PER_S, 0),
        }
    }

    /// Gives it other addresses: a driver reads them when it starts.
    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Tells it the MTU of its representor: the guest reads it when its driver starts.
    pub(super) fn set_representor_mtu(&mut self, mtu: Option<u32>) {
        self.representor_mtu = mtu;
    }

    pub(super) fn vmq(&mut self) -> &mut Vmq {
        &mut self.vmq
    }

    /// How frames of the adapter's queue reach it, if it could have one.
    pub(super) fn describe_vmq(&self) -> Option<String> {
        self.vmq.describe()
    }

    /// Whether the front-end held up one of our threads.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether interrupts were moved off the lanes since the last call, which counts it.
    pub(super) fn take_moved_notifies(&mut self) -> bool {
        let moves = self.budget.moves();
        let is_new = moves > self.moves_told;
        if is_new {
            self.moves_told = moves;
            self.port.count_moved_notifies();
        }
        is_new
    }

    pub(super) fn label(&self) -> &str {
        &self.port.label
    }

    pub(super) fn is_attached(&self) -> bool {
        self.port.is_attached()
    }

    pub(super) fn has_mac(&self) -> bool {
        self.identity.mac.is_some()
    }

    /// Forgets what a front-end set, for the next one has its own wishes; says whether this one
    /// held up one of our threads. No ring may run any more.
    pub(super) fn end_session(&mut self) -> bool {
        self.mtu_set = self.mtu;
        self.transfer = None;
        (self.unlogged, self.told_unlogged) = (0, false);
        self.stalled.swap(false, Ordering::Relaxed)
    }

    /// Checks the bytes that this session would have mapped.
    fn check_size(
        &self,
        files: &[MemoryRegion],
        more: &[MemoryRegion],
        log: Option<&SharedArea>,
    ) -> Result<(), Refused> {
        let sizes = files.iter().chain(more).map(|file| file.size);
        let sizes = sizes.chain(log.map(|log| log.size));
        self.quota.check_session(sizes).map_err(refused)
    }

    /// The thread for calls on its front-end's files that may wait.
    pub(super) fn closer(&self) -> &Closer {
        &self.closer
    }

    /// Whether calls on a state's pipe are under way, which another process could not go on with.
    pub(super) fn is_under_way(&mut self, now: Instant) -> bool {
        let closer = &self.closer;
        self.transfer.as_mut().is_some_and(|transfer| transfer.is_under_way(closer, now))
    }

    /// Whether a state is still on its way, now that the front-end asks how it went.
    pub(super) fn is_transferring(&mut self, now: Instant) -> bool {
        let closer = &self.closer;
        self.transfer.as_mut().is_some_and(|transfer| !transfer.is_done(closer, now))
    }

    fn replace_memory(&mut self, regions: Vec<Region>) -> Result<(), Refused> {
        self.memory = Arc::new(GuestMemory::new(regions).map_err(refused)?);
        Ok(())
    }

    /// Writes to memory that the front-end's log has no bit for, in this session; told once.
    pub(super) fn unlogged(&mut self) -> Option<u64> {
        let unlogged = self.unlogged + self.log.as_ref().map_or(0, |log| log.outside());
        let is_new = unlogged > 0 && !self.told_unlogged;
        self.told_unlogged |= is_new;
        is_new.then_some(unlogged)
    }

    /// The longest frame that a guest may send, bytes.
    fn frame_bytes_max(&self) -> u32 {
        u32::from(self.mtu_set) + OVERHEAD_MAX
    }

    /// What its guest is promised.
    fn promised(&self) -> Carried {
        Carried::new(self.identity.mac, self.mtu_set)
    }
}

impl Device for GuestDevice {
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
        self.replace_memory(regions).expect("fewer regions of a good memory are a good memory");
    }

    fn discards(&self, index: usize) -> bool {
        !index.is_multiple_of(2)
    }

    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        let pair = index / 2;
        // Even rings are the guest's Rx, odd ones its Tx (virtio 1.2, section 5.1.2).
        let made = self.ring(index, ring);
        let events = made.events();
        match index.is_multiple_of(2) {
            true if self.vmq.is(pair) => self.vmq.start(made)?,
            true => self.port.attach_receive(pair, Box::new(made.receive()?)),
            false => {
                let half = made.transmit_at(ring.base, self.frame_bytes_max())?;
                self.port.attach_transmit(pair, Box::new(half));
            }
        }
        // The owner before us may have died between showing a buffer and saying so.
        events.notify();
        tracing::debug!("{}: ring {index} of {} entries started", self.label(), ring.size);
        Ok(())
    }

    fn renew_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused> {
        let pair = index / 2;
        let made = self.ring(index, ring);
        let there = match index.is_multiple_of(2) {
            true if self.vmq.is(pair) => return self.vmq.renew(made),
            true => self.port.renew_receive(pair, |old| -> Result<_, Refused> {
                Ok(Box::new(made.receive_at(old.stop())?))
            })?,
            false => {
                let longest = self.frame_bytes_max();
                self.port.renew_transmit(pair, |old| -> Result<_, Refused> {
                    Ok(Box::new(made.transmit_at(old.stop(), longest)?))
                })?
            }
        };
        match there {
            true => Ok(()),
            false => Err(Refused::new("the ring is not there any more")),
        }
    }

    fn stop_ring(&mut self, index: usize) -> u32 {
        let pair = index / 2;
        let next = match index.is_multiple_of(2) {
            true if self.vmq.is(pair) => self.vmq.stop(),
            true => self.port.detach_receive(pair).map_or(0, |mut ring| ring.stop()),
            false => self.port.detach_transmit(pair).map_or(0, |mut ring| ring.stop()),
        };
        tracing::debug!("{}: ring {index} stopped", self.label());
        next
    }

    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>) {
        let pair = index / 2;
        match index.is_multiple_of(2) {
            true if self.vmq.is(pair) => self.vmq.change(|ring| ring.call = call.clone()),
            true => self.port.set_receive_call(pair, call.clone()),
            false => self.port.set_transmit_call(pair, call.clone()),
        }
        // QEMU starts a ring before it says whom to interrupt: what was shown until now is told
        // here.
        let stalled = self.stalled.clone();
        let budget = self.budget.clone();
        let events = RingEvents { call, stalled, budget, ..RingEvents::default() };
        events.notify();
    }

    fn set_err(&mut self, index: usize, error: Option<Arc<ForeignFd>>) {
        let pair = index / 2;
        match index.is_multiple_of(2) {
            true if self.vmq.is(pair) => self.vmq.change(|ring| ring.err = error),
            true => self.port.set_receive_error(pair, error),
            false => self.port.set_transmit_error(pair, error),
        }
    }

    fn reset(&mut self) {
        tracing::debug!("{}: device reset", self.label());
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        if mtu > self.mtu {
            let ours = self.mtu;
            return Err(Refused::new(format!("MTU {mtu} is above the port's own of {ours}")));
        }
        self.mtu_set = mtu; // for rings that start from now on
        Ok(())
    }

    fn send_rarp(&mut self, mac: [u8; 6]) {
        let may = self.identity.announces.as_ref().is_none_or(|macs| macs.contains(&Mac(mac)));
        if !may {
            let (label, mac) = (self.label(), Mac(mac));
            return tracing::debug!("{label}: not announced: {mac} is none of its addresses");
        }
        if self.announcements.admit(1, self.made.elapsed().as_nanos() as u64) == 0 {
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
        let said = if self.log.is_some() { "a log of what is written" } else { "no log any more" };
        tracing::debug!("{}: {said}", self.label());
        Ok(())
    }

    fn create_inflight(&mut self, rings: u16, ring_size: u16) -> Result<SharedArea, Refused> {
        let made =
            self.records_memory.create(rings, ring_size).map_err(|error| refused_chain(&error));
        let (records, area) = made?;
        let fd = area.fd.as_fd().try_clone_to_owned().map_err(refused)?;
        self.records = Some(records);
        let kept = SharedArea { fd: ForeignFd::new(fd, &self.closer), ..area };
        self.records_file = Some(InflightArea { area: kept, rings, ring_size });
        Ok(area)
    }

    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused> {
        let open = |given: &InflightArea| {
            // The front-end may say that the area is larger than records are.
            let size = given.area.size.min(Records::bytes(given.rings, given.ring_size));
            Records::open(given, map_area(&given.area, size, &self.quota, &self.closer)?)
        };
        self.records = records.as_ref().map(open).transpose()?;
        self.records_file = records;
        Ok(())
    }

    fn clear_inflight(&mut self, index: usize) {
        if let Some(records) = &self.records {
            records.clear(index);
        }
        self.kept.clear(index);
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
        let here = Carried::new(self.identity.mac, self.mtu);
        Carried::from_bytes(&state)?.suits(&here)
    }

    fn config(&self) -> Vec<u8> {
        let link_up = self.nic.snapshot().is_up(&self.port);
        // No less than the least that the driver takes for an MTU.
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

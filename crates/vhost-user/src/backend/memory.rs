//! The memory table: which regions exist. The device holds their mappings.
//!
//! Specification: vhost-user.rst, `SET_MEM_TABLE`, `ADD_MEM_REG`, `REM_MEM_REG`.

use std::mem::size_of;
use std::os::fd::OwnedFd;

use zerocopy::FromBytes;

use crate::features::ProtocolFeatures;
use crate::message::Message;
use crate::payload::{RegionPayload, SingleRegion, TableHeader};

use super::device::{Device, MemoryRegion};
use super::error::Reason;
use super::shape::prefix;
use super::{Answer, Backend};

/// A region that the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) guest_addr: u64,
    pub(super) user_addr: u64,
    pub(super) size: u64,
}

impl Slot {
    /// Checks one region against those that are there already.
    ///
    /// Two regions may share front-end addresses (a front-end may show the same memory at two
    /// guest addresses), but not guest addresses, for then translation would be ambiguous.
    fn check(region: &RegionPayload, others: &[Slot]) -> Result<Self, Reason> {
        let RegionPayload { guest_addr, size, user_addr, mmap_offset } = *region;
        let bad = |problem| Err(Reason::BadRegion { guest_addr, size, problem });
        if size == 0 {
            return bad("it is empty");
        }
        let Some(guest_end) = guest_addr.checked_add(size) else {
            return bad("its guest addresses wrap around");
        };
        if user_addr.checked_add(size).is_none() {
            return bad("its front-end addresses wrap around");
        }
        if mmap_offset.checked_add(size).is_none() {
            return bad("its file offsets wrap around");
        }
        let overlaps = |other: &Slot| {
            guest_addr < other.guest_addr + other.size && other.guest_addr < guest_end
        };
        if others.iter().any(overlaps) {
            return bad("its guest addresses overlap those of another region");
        }
        Ok(Self { guest_addr, user_addr, size })
    }
}

impl MemoryRegion {
    fn new(region: &RegionPayload, fd: OwnedFd) -> Self {
        let RegionPayload { guest_addr, size, user_addr, mmap_offset } = *region;
        Self { guest_addr, size, user_addr, mmap_offset, fd }
    }
}

impl Backend {
    pub(super) fn set_mem_table(
        &mut self,
        message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        let mut slots = Vec::new();
        let mut regions = Vec::new();
        let payloads = message.payload[size_of::<TableHeader>()..]
            .chunks_exact(size_of::<RegionPayload>())
            .filter_map(|bytes| RegionPayload::read_from_bytes(bytes).ok());
        for (payload, fd) in payloads.zip(message.fds) {
            slots.push(Slot::check(&payload, &slots)?);
            regions.push(MemoryRegion::new(&payload, fd));
        }
        self.change_memory(device, |backend, device| {
            device.set_memory(regions).map_err(Reason::Device)?;
            backend.slots = slots;
            Ok(())
        })
    }

    pub(super) fn add_region(
        &mut self,
        mut message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        let SingleRegion { region, .. } = prefix(&message)?;
        let slot = Slot::check(&region, &self.slots)?;
        let max = self.config.mem_slots_max;
        if self.slots.len() as u64 >= max {
            return Err(Reason::NoSlotLeft { max });
        }
        let Some(fd) = message.fds.pop() else {
            return Err(Reason::FdCount { expected: 1, got: 0 });
        };
        self.change_memory(device, |backend, device| {
            device.add_region(MemoryRegion::new(&region, fd)).map_err(Reason::Device)?;
            backend.slots.push(slot);
            Ok(())
        })
    }

    pub(super) fn remove_region(
        &mut self,
        message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        // "The memory region to be removed is identified by its guest address, user address and
        // size. The mmap offset is ignored."
        let SingleRegion { region: RegionPayload { guest_addr, size, user_addr, .. }, .. } =
            prefix(&message)?;
        let wanted = Slot { guest_addr, user_addr, size };
        let Some(at) = self.slots.iter().position(|slot| *slot == wanted) else {
            return Err(Reason::NoSuchRegion { guest_addr, size });
        };
        self.change_memory(device, |backend, device| {
            device.remove_region(guest_addr, user_addr, size);
            backend.slots.remove(at);
            Ok(())
        })
    }

    /// Changes memory while all rings stand, and lets them go on where they stopped. If the
    /// change is refused they go on with the memory they had.
    fn change_memory<D: Device>(
        &mut self,
        device: &mut D,
        change: impl FnOnce(&mut Self, &mut D) -> Result<(), Reason>,
    ) -> Result<Answer, Reason> {
        self.stop_all(device);
        let changed = change(self, device);
        let started = self.start_all(device);
        changed.and(started).map(|()| Answer::Done)
    }
}

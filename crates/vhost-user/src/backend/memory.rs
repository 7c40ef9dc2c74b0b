//! The memory table: the list of regions. The device holds their mappings.
//!
//! Running rings change to new memory without a pause. A ring outside the new memory stops, and
//! continues when it is inside again: front-ends change a region by removing and re-adding it.
//!
//! Specification: vhost-user.rst, `SET_MEM_TABLE`, `ADD_MEM_REG`, `REM_MEM_REG`.

use std::mem::size_of;

use zerocopy::FromBytes;

use crate::features::ProtocolFeatures;
use crate::foreign::ForeignFd;
use crate::message::{Message, Request};
use crate::payload::{RegionPayload, SingleRegion, TableHeader};

use super::device::{BackendDevice, MemoryRegion};
use super::error::Reason;
use super::format::prefix;
use super::{Backend, Reply};

/// A region that the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySlot {
    pub(super) guest_addr: u64,
    pub(super) user_addr: u64,
    pub(super) size: u64,
}

impl MemorySlot {
    /// Checks one region against the existing ones.
    ///
    /// Two regions may share front-end addresses (a front-end may map the same memory at two guest
    /// addresses), but not guest addresses: translation would be ambiguous.
    fn check(region: &RegionPayload, others: &[MemorySlot]) -> Result<Self, Reason> {
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
        let overlaps = |other: &MemorySlot| {
            guest_addr < other.guest_addr + other.size && other.guest_addr < guest_end
        };
        if others.iter().any(overlaps) {
            return bad("its guest addresses overlap those of another region");
        }
        Ok(Self { guest_addr, user_addr, size })
    }
}

impl MemoryRegion {
    fn new(region: &RegionPayload, fd: ForeignFd) -> Self {
        let RegionPayload { guest_addr, size, user_addr, mmap_offset } = *region;
        Self { guest_addr, size, user_addr, mmap_offset, fd }
    }
}

impl Backend {
    pub(super) fn set_mem_table(
        &mut self,
        message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        let mut slots = Vec::new();
        let mut regions = Vec::new();
        let payloads = message.payload[size_of::<TableHeader>()..]
            .chunks_exact(size_of::<RegionPayload>())
            .filter_map(|bytes| RegionPayload::read_from_bytes(bytes).ok());
        for (payload, fd) in payloads.zip(message.fds) {
            slots.push(MemorySlot::check(&payload, &slots)?);
            regions.push(MemoryRegion::new(&payload, fd));
        }
        device.set_memory(regions).map_err(Reason::Device)?;
        self.slots = slots;
        self.renew_all(device);
        self.start_all(device).map(|()| Reply::Done)
    }

    pub(super) fn add_region(
        &mut self,
        mut message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        let SingleRegion { region, .. } = prefix(&message)?;
        let slot = MemorySlot::check(&region, &self.slots)?;
        let max = self.config.mem_slots_max;
        if self.slots.len() as u64 >= max {
            return Err(Reason::NoSlotLeft { max });
        }
        let Some(fd) = message.fds.pop() else {
            return Err(Reason::FdCount { expected: 1, got: 0 });
        };
        device.add_region(MemoryRegion::new(&region, fd)).map_err(Reason::Device)?;
        self.slots.push(slot);
        self.renew_all(device);
        // A ring may wait for the next region, so a ring that cannot start is no error of this one.
        let started = self.start_all(device);
        self.note(Request::AddMemReg, started);
        Ok(Reply::Done)
    }

    pub(super) fn remove_region(
        &mut self,
        message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        // "The memory region to be removed is identified by its guest address, user address and
        // size. The mmap offset is ignored."
        let SingleRegion { region: RegionPayload { guest_addr, size, user_addr, .. }, .. } =
            prefix(&message)?;
        let wanted = MemorySlot { guest_addr, user_addr, size };
        let Some(at) = self.slots.iter().position(|slot| *slot == wanted) else {
            return Err(Reason::NoSuchRegion { guest_addr, size });
        };
        device.remove_region(guest_addr, user_addr, size);
        self.slots.remove(at);
        self.renew_all(device);
        Ok(Reply::Done)
    }
}

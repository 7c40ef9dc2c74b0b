//! What a front-end has set, handed over to another process and taken up there.

use vhost_user::transfer::Transfer;
use vhost_user::{Device, ForeignFd, InflightArea, MemoryRegion, Refused, SharedArea};

use super::GuestDevice;

/// What a front-end has set.
#[derive(Debug)]
pub(in super::super) struct DeviceHandover<'a> {
    pub(in super::super) mtu: u16,
    pub(in super::super) files: &'a [MemoryRegion],
    pub(in super::super) log: Option<&'a SharedArea>,
    pub(in super::super) records: Option<&'a InflightArea>,
    pub(in super::super) arriving: Option<&'a ForeignFd>,
}

impl GuestDevice {
    /// What a front-end has set, for a process that takes over.
    pub(in super::super) fn handover(&self) -> DeviceHandover<'_> {
        let GuestDevice {
            // As the configuration says.
            nic: _,
            port: _,
            identity: _,
            queue_pairs: _,
            mtu: _,
            // As the representor has it.
            representor_mtu: _,
            mtu_set,
            // Mapped anew.
            memory: _,
            quota: _,
            files,
            log: _,
            log_file,
            // Said by then, or with the next one.
            unlogged: _,
            told_unlogged: _,
            records: _,
            records_file,
            // The next records are made in other memory.
            records_memory: _,
            // In files, which whoever takes over finds.
            kept: _,
            transfer,
            // Its own, in this process.
            closer: _,
            // Its ring is started like the others, its queue steered anew.
            vmq: _,
            // A front-end that blocks is noticed again, and what it may cause in a second begins
            // anew.
            stalled: _,
            budget: _,
            moves_told: _,
            made: _,
            announcements: _,
        } = self;
        DeviceHandover {
            mtu: *mtu_set,
            files,
            log: log_file.as_ref(),
            records: records_file.as_ref(),
            arriving: transfer.as_ref().and_then(Transfer::source),
        }
    }

    /// Takes over what a front-end has set; records go on as they are.
    pub(in super::super) fn inherit(
        &mut self,
        mtu: u16,
        files: Vec<MemoryRegion>,
        (log, records): (Option<SharedArea>, Option<InflightArea>),
        arriving: Option<ForeignFd>,
    ) -> Result<(), Refused> {
        self.set_mtu(mtu)?;
        self.set_memory(files)?;
        self.set_log(log)?;
        self.set_inflight(records)?;
        self.transfer = arriving.map(|pipe| Transfer::Awaited(pipe.into()));
        Ok(())
    }
}

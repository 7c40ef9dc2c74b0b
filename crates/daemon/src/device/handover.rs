//! Handover of a front-end's settings to another process.

use vhost_user::transfer::Transfer;
use vhost_user::{BackendDevice, ForeignFd, InflightArea, MemoryRegion, Refused, SharedArea};

use super::GuestDevice;

/// Settings of a front-end.
#[derive(Debug)]
pub(in super::super) struct FrontendSettings<'a> {
    pub(in super::super) mtu: u16,
    pub(in super::super) files: &'a [MemoryRegion],
    pub(in super::super) log: Option<&'a SharedArea>,
    pub(in super::super) records: Option<&'a InflightArea>,
    pub(in super::super) arriving: Option<&'a ForeignFd>,
}

impl GuestDevice {
    /// Hands over a front-end's settings.
    pub(in super::super) fn handover(&self) -> FrontendSettings<'_> {
        let GuestDevice {
            // From the configuration.
            nic: _,
            port: _,
            identity: _,
            queue_pairs: _,
            mtu: _,
            // From the representor.
            representor_mtu: _,
            mtu_set,
            // Mapped again.
            memory: _,
            quota: _,
            files,
            log: _,
            log_file,
            // Logged by now, or with the next report.
            unlogged: _,
            unlogged_reported: _,
            records: _,
            records_file,
            // The next records are created in other memory.
            records_memory: _,
            // In files, which the new process finds.
            saved_rings: _,
            transfer,
            // Specific to this process.
            closer: _,
            // Its ring is started like the others, and its queue steered again.
            vmq: _,
            // A blocking front-end is detected again, and its limits start again.
            stalled: _,
            budget: _,
            moves_reported: _,
            created: _,
            announcements: _,
        } = self;
        FrontendSettings {
            mtu: *mtu_set,
            files,
            log: log_file.as_ref(),
            records: records_file.as_ref(),
            arriving: transfer.as_ref().and_then(Transfer::source),
        }
    }

    /// Adopts a front-end's settings; records continue unchanged.
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

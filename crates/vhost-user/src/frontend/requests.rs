//! The requests of a session: memory, rings, configuration.

use zerocopy::IntoBytes;

use crate::features::{Features, ProtocolFeatures};
use crate::message::{PAYLOAD_SIZE_MAX, Request, TABLE_REGIONS_MAX};
use crate::payload::{ConfigHeader, SingleRegion, TableHeader, VRING_LOG, VringAddr, VringState};

use super::exchange::{name, wrong};
use super::{EMPTY, Frontend, FrontendError, RingConfig, SharedRegion};

impl Frontend {
    /// Shares memory, in place of all memory shared before. At most 8 regions.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_memory(&mut self, regions: &[SharedRegion<'_>]) -> Result<(), FrontendError> {
        let request = Request::SetMemTable;
        if regions.len() > TABLE_REGIONS_MAX {
            let what = format!("{} regions (at most {TABLE_REGIONS_MAX})", regions.len());
            return Err(FrontendError::TooMuch { request: name(request), what });
        }
        let header = TableHeader { count: regions.len() as u32, padding: 0 };
        let mut payload = header.as_bytes().to_vec();
        for region in regions {
            payload.extend_from_slice(region.payload().as_bytes());
        }
        let fds: Vec<_> = regions.iter().map(|region| region.fd).collect();
        self.set(request, &payload[..], &fds)
    }

    /// Shares one more region. Needs `CONFIGURE_MEM_SLOTS`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn add_region(&mut self, region: &SharedRegion<'_>) -> Result<(), FrontendError> {
        self.need(Request::AddMemReg, ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        let payload = SingleRegion { padding: 0, region: region.payload() };
        self.set(Request::AddMemReg, &payload, &[region.fd])
    }

    /// Removes a region. Needs `CONFIGURE_MEM_SLOTS`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn remove_region(&mut self, region: &SharedRegion<'_>) -> Result<(), FrontendError> {
        self.need(Request::RemMemReg, ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        let payload = SingleRegion { padding: 0, region: region.payload() };
        self.set(Request::RemMemReg, &payload, &[])
    }

    /// Number of memory regions the back-end can hold. Needs `CONFIGURE_MEM_SLOTS`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn mem_slots_max(&mut self) -> Result<u64, FrontendError> {
        self.need(Request::GetMaxMemSlots, ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
        self.get(Request::GetMaxMemSlots, &EMPTY)
    }

    /// Configures a ring. It runs once it is also enabled.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn start_ring(&mut self, index: u8, ring: &RingConfig<'_>) -> Result<(), FrontendError> {
        let &RingConfig { size, base, kick, call, err, .. } = ring;
        let state = |num: u32| VringState { index: index.into(), num };
        self.set(Request::SetVringNum, &state(size.into()), &[])?;
        self.set(Request::SetVringBase, &state(base), &[])?;
        self.set_ring_addresses(index, ring)?;
        let index = u32::from(index);
        self.set_ring_fd(Request::SetVringCall, index, call)?;
        self.set_ring_fd(Request::SetVringErr, index, err)?;
        // Last, since the kick completes a ring.
        self.set_ring_fd(Request::SetVringKick, index, kick)
    }

    /// Sets the addresses of a ring and the logging of its writes; allowed while it runs.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_ring_addresses(
        &mut self,
        index: u8,
        ring: &RingConfig<'_>,
    ) -> Result<(), FrontendError> {
        let &RingConfig { desc, avail, used, log, .. } = ring;
        let flags = if log.is_some() { VRING_LOG } else { 0 };
        let (index, log) = (u32::from(index), log.unwrap_or(0));
        let addresses = VringAddr { index, flags, desc, used, avail, log };
        self.set(Request::SetVringAddr, &addresses, &[])
    }

    /// Enables or disables a ring; a disabled Tx ring discards frames. Without `PROTOCOL_FEATURES`
    /// rings are always enabled.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn enable_ring(&mut self, index: u8, enabled: bool) -> Result<(), FrontendError> {
        if self.features & Features::PROTOCOL_FEATURES.bits() == 0 {
            if enabled {
                return Ok(());
            }
            let feature = "PROTOCOL_FEATURES".to_owned();
            let request = name(Request::SetVringEnable);
            return Err(FrontendError::NotNegotiated { request, feature });
        }
        let state = VringState { index: index.into(), num: enabled.into() };
        self.set(Request::SetVringEnable, &state, &[])
    }

    /// Stops a ring. Returns its position. To continue, start it again with this base.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn stop_ring(&mut self, index: u8) -> Result<u32, FrontendError> {
        let state = VringState { index: index.into(), num: 0 };
        let reply: VringState = self.get(Request::GetVringBase, &state)?;
        Ok(reply.num)
    }

    /// Reads the device's configuration space. Needs `CONFIG`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn config(&mut self, offset: u32, size: u32) -> Result<Vec<u8>, FrontendError> {
        let request = Request::GetConfig;
        self.need(request, ProtocolFeatures::CONFIG)?;
        let header = ConfigHeader { offset, size, flags: 0 };
        let total = size_of::<ConfigHeader>() + size as usize;
        if total > PAYLOAD_SIZE_MAX {
            let what = format!("{size} bytes of configuration");
            return Err(FrontendError::TooMuch { request: name(request), what });
        }
        let mut payload = header.as_bytes().to_vec();
        payload.resize(total, 0);
        let mut reply = self.exchange(request, &payload[..])?;
        match reply.payload.len() {
            // "The back-end uses zero length of payload to indicate an error."
            0 => Err(FrontendError::Refused { request: name(request), answer: 1 }),
            len if len == total => Ok(reply.payload.split_off(size_of::<ConfigHeader>())),
            _ => Err(wrong(request, &reply)),
        }
    }

    /// Sets the MTU in bytes. Needs `NET_MTU`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), FrontendError> {
        self.need(Request::NetSetMtu, ProtocolFeatures::NET_MTU)?;
        self.set(Request::NetSetMtu, &u64::from(mtu), &[])
    }

    /// Asks the back-end to announce this address. Needs `RARP`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn send_rarp(&mut self, mac: [u8; 6]) -> Result<(), FrontendError> {
        self.need(Request::SendRarp, ProtocolFeatures::RARP)?;
        let mut payload = [0; 8];
        payload[..6].copy_from_slice(&mac);
        self.set(Request::SendRarp, &payload, &[])
    }

    /// Sends the virtio device status. Needs `STATUS`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_status(&mut self, status: u8) -> Result<(), FrontendError> {
        self.need(Request::SetStatus, ProtocolFeatures::STATUS)?;
        self.set(Request::SetStatus, &u64::from(status), &[])
    }

    /// Reads the virtio device status. Needs `STATUS`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn status(&mut self) -> Result<u8, FrontendError> {
        self.need(Request::GetStatus, ProtocolFeatures::STATUS)?;
        let status: u64 = self.get(Request::GetStatus, &EMPTY)?;
        Ok(status as u8)
    }

    /// Resets the device: rings stop and lose their settings, and features must be set again by
    /// [`negotiate`](Self::negotiate). Needs `RESET_DEVICE`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn reset_device(&mut self) -> Result<(), FrontendError> {
        self.need(Request::ResetDevice, ProtocolFeatures::RESET_DEVICE)?;
        self.set(Request::ResetDevice, &EMPTY, &[])?;
        self.features = 0;
        Ok(())
    }
}

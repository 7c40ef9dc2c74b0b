//! Creation of vDPA devices, and records to find them again after a restart.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guestmem::Mapping;
use model::state::Vduse;
use serde::{Deserialize, Serialize};
use vduse::{DeviceSpec, Origin, VduseDevice, VduseError};
use vhost_user::{InflightArea, SharedArea};
use wire::Mac;
use wire::virtio_net::{self as net, feature};

use super::super::device::Identity;
use super::super::inflight;
use super::super::offer::OFFLOADS;

/// One queue pair: more would need a control queue, which the kernel does not allow.
const RINGS: u32 = 2;
/// Entries of a ring; the kernel's driver uses all of them, and the kernel has at most 64 MiB of
/// bounce pages.
const RING_SIZE: u16 = 256;

/// Device parameters for an attachment; `has_mac` if its function has an address.
pub(super) fn spec(attachment: &Vduse, has_mac: bool, config: Vec<u8>) -> DeviceSpec {
    let mut bits = vec![
        feature::VIRTIO_F_VERSION_1,
        // Required by the kernel: addresses are those of its IOVA domain, or of a VMM's memory.
        feature::VIRTIO_F_ACCESS_PLATFORM,
        feature::VIRTIO_F_RING_INDIRECT_DESC,
        feature::VIRTIO_F_RING_EVENT_IDX,
        feature::VIRTIO_NET_F_MTU,
        feature::VIRTIO_NET_F_STATUS,
    ];
    let optional = [
        (has_mac, feature::VIRTIO_NET_F_MAC),
        (attachment.mergeable, feature::VIRTIO_NET_F_MRG_RXBUF),
        (attachment.packed, feature::VIRTIO_F_RING_PACKED),
    ];
    bits.extend(optional.into_iter().filter_map(|(wanted, bit)| wanted.then_some(bit)));
    if attachment.offload {
        bits.extend(OFFLOADS);
    }
    DeviceSpec {
        name: attachment.name.clone(),
        features: feature::mask(&bits),
        rings: RINGS,
        ring_size_max: RING_SIZE,
        config,
    }
}

/// Configuration space for the driver. A followed MTU can only lower its own.
pub(super) fn config(
    attachment: &Vduse,
    identity: &Identity,
    (mtu, link_up): (Option<u32>, bool),
) -> Vec<u8> {
    let mtu = mtu.map_or(attachment.mtu, |mtu| mtu.min(attachment.mtu.into()) as u16);
    let config = net::Config {
        mac: identity.mac.unwrap_or(Mac::ZERO),
        status: if link_up { net::STATUS_LINK_UP } else { 0 }.into(),
        max_virtqueue_pairs: 1.into(),
        mtu: mtu.into(),
        ..net::Config::default()
    };
    config.to_bytes().to_vec()
}

/// Directory of records about our devices and their parameters, which the kernel does not keep. It
/// is in the run directory, which lasts as long as the devices.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct DeviceRecords(PathBuf);

/// Parameters of a created device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DeviceRecord {
    features: u64,
    rings: u32,
    ring_size_max: u16,
    config_bytes: usize,
}

impl DeviceRecord {
    fn of(spec: &DeviceSpec) -> DeviceRecord {
        let DeviceSpec { features, rings, ring_size_max, ref config, .. } = *spec;
        DeviceRecord { features, rings, ring_size_max, config_bytes: config.len() }
    }
}

impl DeviceRecords {
    /// Records of the daemon with this run directory.
    pub(in super::super) fn new(run_dir: &Path) -> DeviceRecords {
        DeviceRecords(run_dir.join("vdpa"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// File of the in-flight records: the kernel does not know ring positions, and a packed ring
    /// does not contain its own.
    fn inflight_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.rings"))
    }

    /// In-flight records of a device; empty ones if it was just `made`.
    pub(super) fn inflight(
        &self,
        spec: &DeviceSpec,
        made: bool,
    ) -> anyhow::Result<inflight::InflightRecords> {
        let path = self.inflight_path(&spec.name);
        let rings = spec.rings as u16;
        fs::create_dir_all(&self.0)?;
        let file = File::options().create(made).truncate(made).read(true).write(true).open(path)?;
        let size = inflight::InflightRecords::bytes(rings, spec.ring_size_max);
        if made {
            file.set_len(size)?;
            return Ok(inflight::InflightRecords::begin(file.as_fd(), rings, spec.ring_size_max)?);
        }
        let mapping = Mapping::new(file.as_fd(), size, 0)?;
        let area = SharedArea { size, offset: 0, fd: file.into() };
        let area = InflightArea { area, rings, ring_size: spec.ring_size_max };
        Ok(inflight::InflightRecords::open(&area, mapping)?)
    }

    /// Returns `true` if there is a record of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Compares a device's record with `spec`; `None` without a record.
    pub(super) fn is(&self, spec: &DeviceSpec) -> Option<bool> {
        let record = fs::read(self.path(&spec.name)).ok()?;
        Some(serde_json::from_slice::<DeviceRecord>(&record).ok()? == DeviceRecord::of(spec))
    }

    /// Records the parameters of a created device. Without a record it is unknown after a restart,
    /// and must be removed by hand.
    pub(super) fn put(&self, spec: &DeviceSpec) {
        let record = serde_json::to_vec(&DeviceRecord::of(spec)).expect("numbers");
        let path = self.path(&spec.name);
        let written = fs::create_dir_all(&self.0).and_then(|()| fs::write(&path, record));
        if let Err(error) = written {
            let shown = path.display();
            tracing::warn!("cannot write {shown}, so {} ends with the daemon: {error}", spec.name);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        for path in [self.path(name), self.inflight_path(name)] {
            let _ = fs::remove_file(path); // a remaining file is harmless
        }
    }
}

/// An open device that is not served yet. Dropped unserved, a new one is removed again.
#[derive(Debug)]
pub(in super::super) struct OpenedVdpa {
    device: Option<VduseDevice>,
    pub(super) origin: Origin,
    /// In-flight records.
    inflight: Option<inflight::InflightRecords>,
    /// Reason to replace it by a new device.
    pub(super) replace_reason: Option<String>,
    records: DeviceRecords,
}

impl OpenedVdpa {
    /// Creates a device, or finds our own; waits up to `appears` for its file.
    pub(super) fn open(
        spec: &DeviceSpec,
        records: &DeviceRecords,
        appears: Duration,
    ) -> Result<OpenedVdpa, VduseError> {
        let (device, origin) = VduseDevice::open(spec, appears)?;
        let made = origin == Origin::Made;
        let (mut replace_reason, device) = (None, Some(device));
        let mut opened = OpenedVdpa {
            device,
            origin,
            inflight: None,
            replace_reason: None,
            records: records.clone(),
        };
        match records.is(spec) {
            _ if made => records.put(spec),
            None => {
                let why = "which another program created";
                return Err(VduseError::Other { name: spec.name.clone(), why });
            }
            Some(false) => replace_reason = Some("it was created with other settings".to_owned()),
            Some(true) => {
                let checked = opened.device.as_ref().map_or(Ok(()), |device| device.check(spec));
                replace_reason = checked.err().map(|error| error.to_string());
            }
        }
        match records.inflight(spec, made) {
            Ok(inflight) => opened.inflight = Some(inflight),
            Err(error) if made => {
                let name = &spec.name;
                tracing::warn!("{name}: packed rings will not survive a restart: {error:#}");
            }
            Err(error) => replace_reason = Some(format!("unknown ring positions: {error:#}")),
        }
        opened.replace_reason = replace_reason;
        Ok(opened)
    }

    /// Takes the device to serve it.
    pub(super) fn take(mut self) -> Option<(VduseDevice, Option<inflight::InflightRecords>)> {
        Some((self.device.take()?, self.inflight.take()))
    }
}

impl Drop for OpenedVdpa {
    fn drop(&mut self) {
        if let Some(device) = self.device.take()
            && self.origin == Origin::Made
        {
            remove(device, &self.records);
        }
    }
}

/// Closes a device, and removes it unless it is on the vDPA bus; returns `true` if removed.
pub(super) fn remove(device: VduseDevice, records: &DeviceRecords) -> bool {
    let name = device.name().to_owned();
    drop(device);
    let removed = vduse::remove(&name).is_ok();
    if removed {
        records.remove(&name);
    }
    removed
}

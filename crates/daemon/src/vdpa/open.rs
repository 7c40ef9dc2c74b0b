//! How a vDPA device is made, found again after a restart, and what is remembered of it meanwhile.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use guestmem::Mapping;
use model::state::Vduse;
use serde::{Deserialize, Serialize};
use vduse::{Device, Origin, Spec, VduseError};
use vhost_user::{InflightArea, SharedArea};
use wire::Mac;
use wire::virtio_net::{self as net, feature};

use super::super::device::Identity;
use super::super::inflight;
use super::super::offer::OFFLOADS;

/// One pair: without a control queue, which the kernel does not let a device have, there can be no
/// more.
const RINGS: u32 = 2;
/// Entries of a ring, which a driver of this kernel takes all of; the kernel copies through 64 MiB
/// of pages at most.
const RING_SIZE: u16 = 256;

/// The device for an attachment; `has_mac` if its function has an address.
pub(super) fn spec(attachment: &Vduse, has_mac: bool, config: Vec<u8>) -> Spec {
    let mut bits = vec![
        feature::VIRTIO_F_VERSION_1,
        // The kernel demands it: addresses are those of its domain, or of a VMM's memory.
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
    Spec {
        name: attachment.name.clone(),
        features: feature::mask(&bits),
        rings: RINGS,
        ring_size_max: RING_SIZE,
        config,
    }
}

/// The configuration that the driver reads. An MTU that it follows can only be smaller than its
/// own.
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

/// Where a file says which devices are ours, and how they were made: the kernel does not tell. It
/// is in the run directory, for that lasts as long as the devices do.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Records(PathBuf);

/// How a device was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    features: u64,
    rings: u32,
    ring_size_max: u16,
    config_bytes: usize,
}

impl Record {
    fn of(spec: &Spec) -> Record {
        let Spec { features, rings, ring_size_max, ref config, .. } = *spec;
        Record { features, rings, ring_size_max, config_bytes: config.len() }
    }
}

impl Records {
    /// Those of the daemon with this run directory.
    pub(in super::super) fn new(run_dir: &Path) -> Records {
        Records(run_dir.join("vdpa"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// The file in which it is written down how far its rings have come: the kernel does not know,
    /// and of packed rings their memory does not tell.
    fn progress_path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.rings"))
    }

    /// How far the rings of a device have come, from nowhere on if it was `made`.
    pub(super) fn progress(&self, spec: &Spec, made: bool) -> anyhow::Result<inflight::Records> {
        let path = self.progress_path(&spec.name);
        let rings = spec.rings as u16;
        fs::create_dir_all(&self.0)?;
        let file = File::options().create(made).truncate(made).read(true).write(true).open(path)?;
        let size = inflight::Records::bytes(rings, spec.ring_size_max);
        if made {
            file.set_len(size)?;
            return Ok(inflight::Records::begin(file.as_fd(), rings, spec.ring_size_max)?);
        }
        let mapping = Mapping::new(file.as_fd(), size, 0)?;
        let area = SharedArea { size, offset: 0, fd: file.into() };
        let area = InflightArea { area, rings, ring_size: spec.ring_size_max };
        Ok(inflight::Records::open(&area, mapping)?)
    }

    /// Whether there is, or was, a device of ours of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Whether a device was made as `spec` says; `None` if it is not known to be ours.
    pub(super) fn is(&self, spec: &Spec) -> Option<bool> {
        let record = fs::read(self.path(&spec.name)).ok()?;
        Some(serde_json::from_slice::<Record>(&record).ok()? == Record::of(spec))
    }

    /// Notes how a device was made. Without that it is nobody's after a restart, and then has to be
    /// removed by hand.
    pub(super) fn put(&self, spec: &Spec) {
        let record = serde_json::to_vec(&Record::of(spec)).expect("numbers");
        let path = self.path(&spec.name);
        let written = fs::create_dir_all(&self.0).and_then(|()| fs::write(&path, record));
        if let Err(error) = written {
            let shown = path.display();
            tracing::warn!("cannot write {shown}, so {} ends with the daemon: {error}", spec.name);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        for path in [self.path(name), self.progress_path(name)] {
            let _ = fs::remove_file(path); // what is left is of a device that is not there
        }
    }
}

/// A device that was opened, and nobody serves yet. If nobody does one that was made is removed
/// again.
#[derive(Debug)]
pub(in super::super) struct Opened {
    device: Option<Device>,
    pub(super) origin: Origin,
    /// How far its rings have come.
    progress: Option<inflight::Records>,
    /// Why it cannot be gone on with, but must be made anew.
    pub(super) unfit: Option<String>,
    records: Records,
}

impl Opened {
    /// Makes a device, or finds our own. Its file may take so long to appear.
    pub(super) fn open(
        spec: &Spec,
        records: &Records,
        appears: Duration,
    ) -> Result<Opened, VduseError> {
        let (device, origin) = Device::open(spec, appears)?;
        let made = origin == Origin::Made;
        let (mut unfit, device) = (None, Some(device));
        let mut opened =
            Opened { device, origin, progress: None, unfit: None, records: records.clone() };
        match records.is(spec) {
            _ if made => records.put(spec),
            None => {
                let why = "which this daemon did not make";
                return Err(VduseError::Other { name: spec.name.clone(), why });
            }
            Some(false) => unfit = Some("it was made with other settings".to_owned()),
            Some(true) => {
                let checked = opened.device.as_ref().map_or(Ok(()), |device| device.check(spec));
                unfit = checked.err().map(|error| error.to_string());
            }
        }
        match records.progress(spec, made) {
            Ok(progress) => opened.progress = Some(progress),
            Err(error) if made => {
                let name = &spec.name;
                tracing::warn!("{name}: packed rings of it will not survive the daemon: {error:#}");
            }
            Err(error) => {
                unfit = Some(format!("how far its rings have come is not known: {error:#}"))
            }
        }
        opened.unfit = unfit;
        Ok(opened)
    }

    /// The device, for whoever serves it.
    pub(super) fn take(mut self) -> Option<(Device, Option<inflight::Records>)> {
        Some((self.device.take()?, self.progress.take()))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(device) = self.device.take()
            && self.origin == Origin::Made
        {
            remove(device, &self.records);
        }
    }
}

/// Lets a device go, and removes it if nothing is on the vDPA bus; says whether it did.
pub(super) fn remove(device: Device, records: &Records) -> bool {
    let name = device.name().to_owned();
    drop(device);
    let removed = vduse::remove(&name).is_ok();
    if removed {
        records.remove(&name);
    }
    removed
}

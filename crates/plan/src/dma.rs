//! PCIe transactions between NIC and driver for each frame.
//!
//! # Model
//! To send: the host writes the tail pointer, the device reads the descriptor and the data, writes
//! the descriptor back, may interrupt, and the host may read the head pointer. To receive: the host
//! writes the tail pointer behind free buffers, the device reads their descriptors, writes the
//! data, writes the descriptor back, may interrupt, and the host may read the head. Each step
//! serves a batch of frames ([`Batches`]). Frames are in memory without their FCS.
//!
//! # Sources
//! Intel 82599 datasheet 1.9.1, 1.9.2, 7.1.6, 7.1.7, 7.2.1.2 and 7.2.3; pcie-bench (Neugebauer et
//! al., SIGCOMM 2018), whose published program counts the same. That program drops the cost of
//! reading receive descriptors (an assignment in place of an addition); this one counts it.

use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::frames::FrameMix;
use crate::pcie::PcieLink;
use crate::units::Bytes;

/// FCS in bytes; present on the wire only.
pub const FCS: f64 = 4.0;
/// Size of any descriptor, in bytes.
const DESCRIPTOR: f64 = 16.0;
/// Size of a pointer write, and of an interrupt message's data, in bytes.
const POINTER: f64 = 4.0;

/// Frames for each occurrence of a step; 0: the step never happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batches {
    /// Host's write of the transmit tail.
    pub transmit_tail: u16,
    /// Device's read of transmit descriptors.
    pub transmit_fetch: u16,
    /// Device's write-back of transmit descriptors; 0 if it reports completion in another way.
    pub transmit_write_back: u16,
    /// Host's read of the transmit head.
    pub transmit_head: u16,
    /// Host's write of the receive tail.
    pub receive_tail: u16,
    /// Device's read of receive descriptors.
    pub receive_fetch: u16,
    /// Device's write-back of receive descriptors.
    pub receive_write_back: u16,
    /// Host's read of the receive head.
    pub receive_head: u16,
    /// Interrupts, each way.
    pub interrupt: u16,
}

impl Batches {
    /// Device without batching.
    pub const SIMPLE: Self = Self {
        transmit_tail: 1,
        transmit_fetch: 1,
        transmit_write_back: 0,
        transmit_head: 1,
        receive_tail: 1,
        receive_fetch: 1,
        receive_write_back: 1,
        receive_head: 1,
        interrupt: 1,
    };

    /// 82599 with the Linux driver.
    pub const KERNEL: Self = Self {
        transmit_tail: 1,
        transmit_fetch: 40,
        transmit_write_back: 8,
        transmit_head: 1,
        receive_tail: 32,
        receive_fetch: 1,
        receive_write_back: 1,
        receive_head: 8,
        interrupt: 32,
    };

    /// 82599 with a polling driver, such as DPDK's.
    pub const POLLING: Self =
        Self { transmit_tail: 32, transmit_head: 0, receive_head: 0, interrupt: 0, ..Self::KERNEL };
}

/// Bytes on the link, by direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Crossing {
    /// From the device to the host.
    pub up: Bytes,
    /// From the host to the device.
    pub down: Bytes,
}

impl Add for Crossing {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { up: self.up + other.up, down: self.down + other.down }
    }
}

/// Mean cost of a frame of a mix.
pub fn mean(frames: &FrameMix, each: impl Fn(f64) -> Crossing) -> Crossing {
    Crossing {
        up: frames.mean(|bytes| each(bytes).up),
        down: frames.mean(|bytes| each(bytes).down),
    }
}

/// Cost of `step` for each frame, if it is done once for `batch` frames.
fn each(batch: u16, step: impl FnOnce(f64) -> Bytes) -> Bytes {
    match batch {
        0 => Bytes(0.0),
        batch => step(f64::from(batch)) / f64::from(batch),
    }
}

/// Cost of sending a frame of `frame` bytes, FCS included.
pub fn transmit(link: &PcieLink, batches: &Batches, frame: f64) -> Crossing {
    let data = frame - FCS;
    let descriptors = |n: f64| n * DESCRIPTOR;
    let tail = each(batches.transmit_tail, |_| link.write(POINTER));
    let asked = each(batches.transmit_fetch, |n| link.read_requests(descriptors(n)));
    let given = each(batches.transmit_fetch, |n| link.completions(descriptors(n)));
    let written_back = each(batches.transmit_write_back, |n| link.write(descriptors(n)));
    let interrupt = each(batches.interrupt, |_| link.write(POINTER));
    let head = head_read(link, batches.transmit_head);
    Crossing {
        up: asked + link.read_requests(data) + written_back + interrupt + head.up,
        down: tail + given + link.completions(data) + head.down,
    }
}

/// Cost of receiving a frame of `frame` bytes, FCS included.
pub fn receive(link: &PcieLink, batches: &Batches, frame: f64) -> Crossing {
    let data = frame - FCS;
    let descriptors = |n: f64| n * DESCRIPTOR;
    let tail = each(batches.receive_tail, |_| link.write(POINTER));
    let asked = each(batches.receive_fetch, |n| link.read_requests(descriptors(n)));
    let given = each(batches.receive_fetch, |n| link.completions(descriptors(n)));
    let written_back = each(batches.receive_write_back, |n| link.write(descriptors(n)));
    let interrupt = each(batches.interrupt, |_| link.write(POINTER));
    let head = head_read(link, batches.receive_head);
    Crossing {
        up: asked + link.write(data) + written_back + interrupt + head.up,
        down: tail + given + head.down,
    }
}

/// Host's read of a device pointer: the request goes down, the data up.
fn head_read(link: &PcieLink, batch: u16) -> Crossing {
    Crossing {
        up: each(batch, |_| link.completions(POINTER)),
        down: each(batch, |_| link.read_requests(POINTER)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gbit/s each way without FCS, as printed by pcie-bench's program
    /// (github.com/pcie-bench/pcie-model) with its one defect fixed. Gen3 x8, MPS 256, MRRS 512:
    /// unbatched device, 82599 with the Linux driver, 82599 with a polling driver.
    const PUBLISHED: [(f64, [f64; 3]); 6] = [
        (64.0, [11.577, 15.719, 18.070]),
        (128.0, [19.719, 25.189, 28.016]),
        (256.0, [29.648, 35.324, 37.967]),
        (512.0, [38.090, 42.435, 44.272]),
        (1024.0, [43.542, 46.237, 47.302]),
        (1518.0, [45.597, 47.553, 48.306]),
    ];

    #[test]
    fn the_terms_are_those_of_pcie_bench() {
        let link = PcieLink { generation: 3, lanes: 8, max_payload: 256, max_read_request: 512 };
        for (frame, expected) in PUBLISHED {
            let kinds = [Batches::SIMPLE, Batches::KERNEL, Batches::POLLING];
            for (batches, expected) in kinds.iter().zip(expected) {
                let both = transmit(&link, batches, frame) + receive(&link, batches, frame);
                let rate = link.tlp() / both.up.max(both.down);
                let gbps = (rate * Bytes(frame - FCS)).as_gbps();
                let off = (gbps / expected - 1.0).abs();
                assert!(
                    off < 0.02,
                    "{frame} B: {gbps:.3} Gbit/s, published are {expected}: {batches:?}"
                );
            }
        }
    }
}

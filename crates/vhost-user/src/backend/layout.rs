//! Rules of the two ring layouts: size, alignment and start position.
//!
//! Specification: virtio 1.2, sections 2.7 and 2.8.

use crate::features::Features;
use crate::message::RING_SIZE_MAX;

use super::error::Reason;

/// Addresses of a ring's parts, in the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) desc: u64,
    pub(super) avail: u64,
    pub(super) used: u64,
}

/// Ring layout with its rules: virtio 1.2, sections 2.7 and 2.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingLayout {
    Split,
    Packed,
}

impl RingLayout {
    pub(super) fn of(features: u64) -> RingLayout {
        if features & Features::RING_PACKED.bits() == 0 {
            RingLayout::Split
        } else {
            RingLayout::Packed
        }
    }

    pub(super) fn check_size(self, index: u32, size: u32) -> Result<u16, Reason> {
        let possible = size > 0 && size <= RING_SIZE_MAX;
        match possible && (self == RingLayout::Packed || size.is_power_of_two()) {
            true => Ok(size as u16),
            false => Err(Reason::RingSize { index, size }),
        }
    }

    pub(super) fn check_addresses(self, index: u32, addresses: Addresses) -> Result<(), Reason> {
        let Addresses { desc, avail, used } = addresses;
        let parts = match self {
            RingLayout::Split => [
                ("descriptor table", desc, 16),
                ("available ring", avail, 2),
                ("used ring", used, 4),
            ],
            RingLayout::Packed => [
                ("descriptor ring", desc, 16),
                ("driver event area", avail, 4),
                ("device event area", used, 4),
            ],
        };
        for (part, addr, align) in parts {
            if addr % align != 0 {
                return Err(Reason::RingAlignment { index, part, addr, align });
            }
        }
        Ok(())
    }

    pub(super) fn check_base(self, index: u32, base: u32) -> Result<(), Reason> {
        match self == RingLayout::Packed || base <= 0xffff {
            true => Ok(()),
            false => Err(Reason::RingBase { index, base }),
        }
    }
}

//! What can be wrong with a request.

use crate::features::{Features, ProtocolFeatures};
use crate::message::{CONFIG_SIZE_MAX, RING_SIZE_MAX, RequestName, TABLE_REGIONS_MAX};

use super::device::Refused;

/// A request that was not carried out; nothing of it was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{request}: {reason}")]
pub struct ProtocolError {
    /// The request.
    pub request: RequestName,
    /// What was wrong with it.
    pub reason: Reason,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A reply, which only a back-end sends.
    #[error("a front-end sent a reply, but no request was made to it")]
    IsReply,
    /// A request that does not exist.
    #[error("this request does not exist")]
    UnknownRequest,
    /// A request that is not served.
    #[error("this request needs a feature that was not offered")]
    NotOffered,
    /// A request that needs a protocol feature that was not negotiated.
    #[error("this request needs protocol feature {0:?}, which was not negotiated")]
    NotNegotiated(ProtocolFeatures),
    /// The payload has the wrong size.
    #[error("payload of {got} bytes, {expected} expected")]
    PayloadSize {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there were.
        got: usize,
    },
    /// The wrong number of descriptors.
    #[error("{got} file descriptors, {expected} expected")]
    FdCount {
        /// Descriptors there should be.
        expected: usize,
        /// Descriptors there were.
        got: usize,
    },
    /// Feature bits that were not offered.
    #[error("features {0:#x} were not offered")]
    FeaturesNotOffered(u64),
    /// No such ring.
    #[error("ring {index} does not exist, this device has {rings} rings")]
    NoSuchRing {
        /// The index asked for.
        index: u32,
        /// Number of rings.
        rings: usize,
    },
    /// A ring's size is not possible.
    #[error(
        "size {size} of ring {index} is not possible; up to {RING_SIZE_MAX} is, \
         and of a split ring a power of two"
    )]
    RingSize {
        /// The ring.
        index: u32,
        /// The size asked for.
        size: u32,
    },
    /// A ring's base does not fit a split ring.
    #[error("base {base} of ring {index} is not possible; 0 to 65535 is")]
    RingBase {
        /// The ring.
        index: u32,
        /// The base asked for.
        base: u32,
    },
    /// A part of a ring is not aligned.
    #[error("{part} of ring {index} at {addr:#x} is not aligned to {align} bytes")]
    RingAlignment {
        /// The ring.
        index: u32,
        /// Which part.
        part: &'static str,
        /// Its address in the front-end.
        addr: u64,
        /// The alignment virtio demands, in bytes.
        align: u64,
    },
    /// Flags of a ring address that are unknown.
    #[error("address flags {flags:#x} of ring {index} are not possible; 0 and 1 (log) are")]
    RingFlags {
        /// The ring.
        index: u32,
        /// The flags asked for.
        flags: u32,
    },
    /// A setting that cannot be changed while the ring runs.
    #[error("ring {index} runs; stop it with GET_VRING_BASE or disable it first")]
    RingRuns {
        /// The ring.
        index: u32,
    },
    /// A flag that is neither 0 nor 1.
    #[error("{value} for ring {index} is neither 0 (disable) nor 1 (enable)")]
    NotABoolean {
        /// The ring.
        index: u32,
        /// The value.
        value: u32,
    },
    /// Bits beside index and no-descriptor flag.
    #[error("bits {0:#x} beside ring index and flag must be zero")]
    VringFdBits(u64),
    /// A descriptor that is no event.
    #[error("the file descriptor must be an eventfd and is {kind:?}")]
    NotAnEvent {
        /// What `/proc/self/fd` calls it.
        kind: String,
    },
    /// A descriptor of which nobody can tell what it is.
    #[error("cannot tell whether the file descriptor is an eventfd ({errno}); is /proc mounted?")]
    UnknownFile {
        /// The system's answer.
        errno: rustix::io::Errno,
    },
    /// Too many regions.
    #[error("{got} memory regions, at most {TABLE_REGIONS_MAX} fit into one table")]
    TooManyRegions {
        /// Regions in the message.
        got: u32,
    },
    /// No slot left.
    #[error("all {max} memory slots are taken")]
    NoSlotLeft {
        /// Slots offered.
        max: u64,
    },
    /// A region that is empty or wraps around.
    #[error("memory region at guest address {guest_addr:#x}, {size:#x} bytes: {problem}")]
    BadRegion {
        /// Its guest address.
        guest_addr: u64,
        /// Its size in bytes.
        size: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No such region.
    #[error("no memory region at guest address {guest_addr:#x} with {size:#x} bytes")]
    NoSuchRegion {
        /// Guest address asked for.
        guest_addr: u64,
        /// Size asked for, in bytes.
        size: u64,
    },
    /// A range outside the configuration space.
    #[error("configuration bytes {offset}..{end} are outside the {CONFIG_SIZE_MAX} there can be")]
    ConfigRange {
        /// First byte.
        offset: u32,
        /// End of the range.
        end: u64,
    },
    /// A write to configuration that is read-only.
    #[error("the device configuration is read-only")]
    ConfigReadOnly,
    /// A status that is not a byte.
    #[error("device status {0:#x} has more than 8 bits")]
    Status(u64),
    /// An MTU that is not possible.
    #[error("MTU {0} is not possible; 68 to 65535 is")]
    Mtu(u64),
    /// A RARP for an address that is none of a station.
    #[error("a RARP cannot be sent for a multicast or zero address")]
    RarpAddress,
    /// A range of a file that wraps around, or an empty one.
    #[error("{size} bytes at offset {offset:#x} of the file: that is no range")]
    BadArea {
        /// Bytes.
        size: u64,
        /// Offset in the file.
        offset: u64,
    },
    /// More rings than there are, or none; or entries that no ring has.
    #[error(
        "records for {rings} rings of {ring_size} entries; this device has {has} rings of 1 to \
         {RING_SIZE_MAX}"
    )]
    InflightRings {
        /// Rings asked for.
        rings: u16,
        /// Entries of each.
        ring_size: u16,
        /// Rings there are.
        has: usize,
    },
    /// A descriptor for requests of ours that is none.
    #[error("the file descriptor for requests to the front-end must be a Unix stream socket")]
    NotASocket,
    /// Neither of the directions, or another phase.
    #[error("state in direction {direction}, phase {phase}; 0 (save) and 1 (load) in phase 0 are")]
    StateTransfer {
        /// The direction asked for.
        direction: u32,
        /// The phase asked for.
        phase: u32,
    },
    /// The state is asked for while a ring runs.
    #[error("the device's state is only moved while all rings stand; stop them first")]
    StateWhileRunning,
    /// The device refused.
    #[error("refused by the device: {0}")]
    Device(Refused),
}

impl Reason {
    /// True if the message is not even of the form its request has. Such a message is never
    /// acknowledged: front-end and back-end do not speak the same language.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::IsReply | Self::PayloadSize { .. } | Self::FdCount { .. })
    }
}

/// Why a back-end cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Number of queue pairs.
    #[error("{0} queue pairs are not possible; 1 to 128 are")]
    QueuePairs(u16),
    /// Number of memory slots.
    #[error("{0} memory slots are not possible; 1 to 512 are")]
    MemSlots(u64),
    /// Features that are not served.
    #[error("features {0:?} cannot be offered: they are not served")]
    Features(Features),
    /// Protocol features that are not served.
    #[error("protocol features {0:?} cannot be offered: they are not served")]
    ProtocolFeatures(ProtocolFeatures),
}

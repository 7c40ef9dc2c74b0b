//! Errors of requests.

use crate::features::{Features, ProtocolFeatures};
use crate::message::{CONFIG_SIZE_MAX, RING_SIZE_MAX, RequestName, TABLE_REGIONS_MAX};

use super::device::Refused;

/// A request that failed; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{request}: {reason}")]
pub struct ProtocolError {
    /// The request.
    pub request: RequestName,
    /// Cause.
    pub reason: Reason,
}

/// Reasons that a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A reply, which only a back-end sends.
    #[error("unexpected reply")]
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
        "size {size} of ring {index}; allowed: up to {RING_SIZE_MAX}, \
         and for a split ring a power of two"
    )]
    RingSize {
        /// The ring.
        index: u32,
        /// The size asked for.
        size: u32,
    },
    /// A ring's base does not fit a split ring.
    #[error("base {base} of ring {index}; allowed: 0 to 65535")]
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
    #[error("address flags {flags:#x} of ring {index}; allowed: 0 and 1 (log)")]
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
    /// Bits other than index and no-descriptor flag.
    #[error("bits {0:#x} next to ring index and flag must be zero")]
    VringFdBits(u64),
    /// A descriptor that is not an eventfd.
    #[error("the file descriptor must be an eventfd, but is {kind:?}")]
    NotAnEvent {
        /// Its name in `/proc/self/fd`.
        kind: String,
    },
    /// A descriptor whose type cannot be determined.
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
    /// All slots are in use.
    #[error("all {max} memory slots are in use")]
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
        /// Problem with it.
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
    #[error("MTU {0}; allowed: 68 to 65535")]
    Mtu(u64),
    /// A RARP for an address that is not a station's.
    #[error("a RARP cannot be sent for a multicast or zero address")]
    RarpAddress,
    /// A range of a file that overflows or is empty.
    #[error("{size} bytes at file offset {offset:#x}: empty range or overflow")]
    BadArea {
        /// Bytes.
        size: u64,
        /// Offset in the file.
        offset: u64,
    },
    /// A number of rings or entries that the device does not have, or 0.
    #[error(
        "records for {rings} rings of {ring_size} entries; this device has {has} rings of 1 to \
         {RING_SIZE_MAX}"
    )]
    InflightRings {
        /// Rings asked for.
        rings: u16,
        /// Entries of each.
        ring_size: u16,
        /// Rings of the device.
        has: usize,
    },
    /// A descriptor for back-end requests that is not a socket.
    #[error("the file descriptor for requests to the front-end must be a Unix stream socket")]
    NotASocket,
    /// An unknown direction or phase.
    #[error(
        "state transfer in direction {direction}, phase {phase}; allowed: 0 (save) and 1 (load), phase 0"
    )]
    StateTransfer {
        /// The direction asked for.
        direction: u32,
        /// The phase asked for.
        phase: u32,
    },
    /// A state transfer while a ring runs.
    #[error(
        "the device's state can be transferred only while all rings are stopped; stop them first"
    )]
    StateWhileRunning,
    /// The device refused.
    #[error("refused by the device: {0}")]
    Device(Refused),
}

impl Reason {
    /// Returns `true` if the message does not have the format of its request. Such a message is
    /// never acknowledged, since front-end and back-end disagree on the protocol.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::IsReply | Self::PayloadSize { .. } | Self::FdCount { .. })
    }
}

/// Reasons that a back-end cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Number of queue pairs.
    #[error("{0} queue pairs; allowed: 1 to 128")]
    QueuePairs(u16),
    /// Number of memory slots.
    #[error("{0} memory slots; allowed: 1 to 512")]
    MemSlots(u64),
    /// Features that are not supported.
    #[error("features {0:?} are not supported")]
    Features(Features),
    /// Protocol features that are not supported.
    #[error("protocol features {0:?} are not supported")]
    ProtocolFeatures(ProtocolFeatures),
}

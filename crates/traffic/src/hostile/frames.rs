//! Frames of all kinds: valid ones, and those that no guest may send.

use guestmem::GuestSlice;
use report::statistics::random::Random;
use wire::Mac;

use super::memory::SLOT;

/// EtherType for local experiments (IEEE 802): marks frames of the hostile guest.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of the virtio-net header.
const HEADER: u32 = 12;

/// Addresses of all guests.
#[derive(Clone, Debug)]
pub(super) struct GuestAddresses {
    /// MAC address of the guest.
    pub(super) own: Mac,
    /// Destinations of valid frames.
    pub(super) peers: Vec<Mac>,
    /// Addresses to forge.
    pub(super) honest: Vec<Mac>,
}

/// Writes a frame with its header to `slot`; returns the bytes of both.
pub(super) fn write(random: &mut Random, cast: &GuestAddresses, slot: GuestSlice<'_>) -> u32 {
    let mut bytes = [0; SLOT as usize];
    for chunk in bytes[HEADER as usize..][..64].chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes());
    }
    if random.one_in(4) {
        // offloads that were not negotiated
        bytes[..8].copy_from_slice(&random.bits().to_le_bytes());
    }
    let frame = &mut bytes[HEADER as usize..];
    if !random.one_in(16) {
        frame[..6].copy_from_slice(&destination(random, cast).0);
        frame[6..12].copy_from_slice(&source(random, cast).0);
        frame[12..14].copy_from_slice(&TYPE);
    }
    if random.one_in(8) {
        let tpid = random.pick(&[[0x81, 0x00], [0x88, 0xa8]]);
        let vid = random.pick(&[0u16, 1, 99, 4095, 0x2000]);
        frame[12..14].copy_from_slice(&tpid);
        frame[14..16].copy_from_slice(&vid.to_be_bytes());
    }
    slot.write_bytes(&bytes);
    HEADER + frame_len(random)
}

fn destination(random: &mut Random, cast: &GuestAddresses) -> Mac {
    match random.below(16) {
        0..9 => random.pick(&cast.peers),
        9..12 => random.pick(&cast.honest),
        12 => Mac::BROADCAST,
        13 => Mac([0x33, 0x33, 0, 0, 0, 1]),
        14 => cast.own,
        _ => Mac::from_key(random.bits() & Mac::KEY_MASK),
    }
}

fn source(random: &mut Random, cast: &GuestAddresses) -> Mac {
    match random.below(16) {
        0..12 => cast.own,
        12 | 13 => random.pick(&cast.honest),
        14 => random.pick(&cast.peers),
        _ => Mac::from_key(random.bits() & Mac::KEY_MASK), // half of these are group addresses
    }
}

/// Length without header, up to the size of a slot.
fn frame_len(random: &mut Random) -> u32 {
    const EDGES: [u32; 14] = [0, 1, 13, 14, 15, 16, 17, 18, 59, 60, 1514, 1518, 1522, 1523];
    match random.below(4) {
        0 => random.pick(&EDGES),
        1 => random.below(SLOT - u64::from(HEADER)) as u32,
        _ => random.between(60, 1514) as u32,
    }
}

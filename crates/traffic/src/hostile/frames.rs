//! Frames of all kinds: good ones, and those that no guest may send.

use guestmem::GuestSlice;
use report::statistics::random::Random;
use wire::Mac;

use super::memory::SLOT;

/// For local experiments (IEEE 802): marks what the hostile guest made up.
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of the virtio-net header.
const HEADER: u32 = 12;

/// Who there is.
#[derive(Clone, Debug)]
pub(super) struct Cast {
    /// The guest's own address.
    pub(super) own: Mac,
    /// Who it sends good frames to.
    pub(super) peers: Vec<Mac>,
    /// Whom it pretends to be.
    pub(super) honest: Vec<Mac>,
}

/// Writes a frame and its header to `slot`; says how many bytes both have.
pub(super) fn write(random: &mut Random, cast: &Cast, slot: GuestSlice<'_>) -> u32 {
    let mut bytes = [0; SLOT as usize];
    for chunk in bytes[HEADER as usize..][..64].chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes());
    }
    if random.one_in(4) {
        bytes[..8].copy_from_slice(&random.bits().to_le_bytes()); // offloads that nobody offered
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

fn destination(random: &mut Random, cast: &Cast) -> Mac {
    match random.below(16) {
        0..9 => random.pick(&cast.peers),
        9..12 => random.pick(&cast.honest),
        12 => Mac::BROADCAST,
        13 => Mac([0x33, 0x33, 0, 0, 0, 1]),
        14 => cast.own,
        _ => Mac::from_key(random.bits() & Mac::KEY_MASK),
    }
}

fn source(random: &mut Random, cast: &Cast) -> Mac {
    match random.below(16) {
        0..12 => cast.own,
        12 | 13 => random.pick(&cast.honest),
        14 => random.pick(&cast.peers),
        _ => Mac::from_key(random.bits() & Mac::KEY_MASK), // half of these are groups
    }
}

/// Without the header, up to what a slot holds.
fn frame_len(random: &mut Random) -> u32 {
    const EDGES: [u32; 14] = [0, 1, 13, 14, 15, 16, 17, 18, 59, 60, 1514, 1518, 1522, 1523];
    match random.below(4) {
        0 => random.pick(&EDGES),
        1 => random.below(SLOT - u64::from(HEADER)) as u32,
        _ => random.between(60, 1514) as u32,
    }
}

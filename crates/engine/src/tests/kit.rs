//! Guests in this process, on the ports of a fabric whose lanes run.

mod bench;
mod guest;
mod net;

use std::time::{Duration, Instant};

use bridge::nic::Function;

pub(crate) use bench::Bench;
pub(crate) use guest::{FRAME_MAX, Guest, Shape, TREASON};
pub(crate) use net::{Adapter, Net, Path, Settings, Tags, switch_port};
pub(crate) use testguest::is_signalled;

/// Limit of every wait: only a bug reaches it.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// The MAC of VF `n`.
pub(crate) fn mac(n: u8) -> wire::Mac {
    wire::Mac([2, 0, 0, 0, 0, n + 1])
}

/// The MAC of a machine out on the wire.
pub(crate) const OUTSIDE: wire::Mac = wire::Mac([2, 0xff, 0, 0, 0, 1]);

/// Untagged VF `n`.
pub(crate) fn plain(n: u8) -> Function {
    Function::new(mac(n))
}

/// VF `n` as access port of a VLAN.
pub(crate) fn access(n: u8, vid: u16) -> Function {
    Function { vlan: Some(wire::Vid::new(vid).unwrap().into()), ..plain(n) }
}

/// A frame of `len` bytes with its number.
pub(crate) fn frame(dst: wire::Mac, src: wire::Mac, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = [dst.0, src.0].concat();
    bytes.extend([0x88, 0xb5]); // for local experiments
    bytes.extend(number.to_be_bytes());
    let seed = number.wrapping_mul(0x9e37_79b9);
    let rest = (bytes.len()..len).map(|i| (seed >> (i % 24)).wrapping_add(i as u32) as u8);
    bytes.extend(rest);
    bytes.truncate(len);
    bytes
}

/// The number of an untagged frame.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// The frame with a tag behind its addresses.
pub(crate) fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

//! Every ring fault, provoked in a transmit and in a receive ring of a running daemon, and found in
//! `stats` by its name.

use api::stats::FAULTS;
use testguest::{GUEST_ADDR, QueuePair, USER_ADDR};
use vhost_user::Features;

use crate::enforced::drops::wait_until_shown;
use crate::guest::*;
use crate::host::*;

/// Flags of a descriptor (virtio 1.2, section 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// An entry of a ring, with the available index that announces it.
struct Forged {
    addr: u64,
    len: u32,
    flags: u16,
    head: u16,
    available: u16,
}

/// A ring entry with this fault, besides [`truncated`](truncate); `flag` is the direction's.
fn forged(fault: &str, flag: u16) -> Forged {
    let good = Forged { addr: GUEST_ADDR, len: 100, flags: flag, head: 0, available: 1 };
    match fault {
        "index_jump" => Forged { available: RING + 1, ..good },
        "bad_index" => Forged { head: RING, ..good },
        "chain_too_long" => Forged { flags: flag | NEXT, ..good },
        "chain_too_large" => Forged { len: (1 << 20) + 1, ..good },
        "outside_memory" => Forged { addr: 0, ..good },
        "wrong_direction" => Forged { flags: flag ^ WRITE, ..good },
        "bad_indirect" => Forged { flags: flag | INDIRECT, ..good },
        "truncated" => Forged { addr: MORE_GUEST, ..good },
        other => panic!("no entry provokes {other}"),
    }
}

/// Writes an entry to an empty ring. Its link leads to itself.
fn write(pair: &QueuePair, index: u8, forged: &Forged) {
    let ring = pair.ring(index);
    let at = |addr: u64, bytes: &[u8]| {
        pair.mapping().slice(addr - USER_ADDR, bytes.len()).unwrap().write_bytes(bytes);
    };
    at(ring.desc, &forged.addr.to_le_bytes());
    at(ring.desc + 8, &forged.len.to_le_bytes());
    at(ring.desc + 12, &forged.flags.to_le_bytes());
    at(ring.desc + 14, &0u16.to_le_bytes());
    at(ring.avail + 4, &forged.head.to_le_bytes());
    at(ring.avail + 2, &forged.available.to_le_bytes());
    pair.kick();
}

/// Provokes a fault in a ring of VF 0.
fn provoke(counter: &str, fault: &str) {
    let host = Host::start(TWO);
    let (index, flag) = if counter.starts_with("tx_") { (TX, 0) } else { (RX, WRITE) };
    let mut guest = Guest::wanting(Features::VERSION_1);
    guest.pair = QueuePair::new(virtq::Features::empty(), 2048).unwrap();
    guest.connect(&host.socket("vf0"));
    let [mut other] = host.guests(["vf1"]);
    if fault == "truncated" {
        // A file without seals.
        let file = rustix::fs::memfd_create("shrinks", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, MORE).unwrap();
        guest.add_region(&file);
        rustix::fs::ftruncate(&file, 0).unwrap();
    }
    write(&guest.pair, index, &forged(fault, flag));
    if index == RX {
        other.send(&frame(mac(0), mac(1), 1));
    }
    wait_until_shown(&host, "n/vf0", "faults", counter);
}

#[test]
fn every_ring_fault_is_shown_by_its_name() {
    for fault in &FAULTS {
        for counter in fault.counters() {
            println!("{counter}"); // shown if it fails
            provoke(counter, fault.name);
        }
    }
}

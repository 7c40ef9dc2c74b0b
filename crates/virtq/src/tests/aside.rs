//! Buffers that are set aside: more in hand than are staged at a time, and used in order later.

use std::sync::atomic::Ordering;

use guestmem::Ticket;

use super::kit::{Forge, memory};
use crate::{BURST, Content, DeviceQueue, Features};

const SIZE: u16 = 256;

fn guest() -> Forge {
    let mut guest = Forge::new(memory(1 << 20), SIZE, Content::Writable);
    (0..SIZE).for_each(|index| guest.offer_good(index));
    guest
}

/// Sets all that is available aside; gives their tickets.
fn set_aside_all(device: &mut DeviceQueue) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    while device.stage(BURST) > 0 {
        let staged = device.buffers().0;
        tickets.extend(staged.iter().map(|buffer| buffer.ticket));
        device.set_aside(device.buffers().0.len());
    }
    tickets
}

fn ids(tickets: &[Ticket]) -> Vec<u16> {
    tickets.iter().map(|ticket| ticket.id).collect()
}

#[test]
fn a_whole_ring_is_set_aside_and_used_in_order() {
    let guest = guest();
    let mut device = guest.device(Features::empty());
    let tickets = set_aside_all(&mut device);
    assert_eq!(ids(&tickets), (0..SIZE).collect::<Vec<_>>());
    assert_eq!(guest.ring.used_idx().load(Ordering::Acquire), 0);
    for ticket in tickets {
        device.add_used_set_aside(ticket, u32::from(ticket.id) + 12);
    }
    device.publish();
    assert_eq!(guest.ring.used_idx().load(Ordering::Acquire), SIZE);
    for id in 0..SIZE {
        assert_eq!(guest.ring.used_entry(id), (u32::from(id), u32::from(id) + 12));
    }
}

#[test]
fn unused_set_aside_buffers_go_to_the_next_owner() {
    let guest = guest();
    let mut device = guest.device(Features::empty());
    let tickets = set_aside_all(&mut device);
    tickets[..100].iter().for_each(|ticket| device.add_used_set_aside(*ticket, 60));
    device.publish();
    assert_eq!(device.position(), 100);
    drop(device);
    let mut next = guest.device(Features::empty());
    assert_eq!(ids(&set_aside_all(&mut next)), (100..SIZE).collect::<Vec<_>>());
}

#[test]
fn staged_buffers_can_be_set_aside_later() {
    let guest = guest();
    let mut device = guest.device(Features::empty());
    assert_eq!(device.stage(10), 10);
    device.set_aside(3);
    assert_eq!(device.buffers().0[0].ticket.id, 3);
    assert_eq!(ids(&set_aside_all(&mut device)), (3..SIZE).collect::<Vec<_>>());
}

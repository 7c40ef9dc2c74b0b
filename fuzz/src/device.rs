//! A hostile driver against the device's side.

use guestmem::Ticket;
use virtq::{BURST, CHAIN_BYTES_MAX, CHAIN_MAX, Content, DeviceQueue};

use crate::Reached;
use crate::guest::Guest;
use crate::input::Input;

/// The device's side, and what it promised so far.
struct Checked {
    queue: DeviceQueue,
    /// Staged and not used.
    staged: usize,
    /// The used index with, and without, what is not yet published; of a packed ring, the place.
    used: u16,
    published: u16,
    /// Of a packed ring: what is used and not yet published, by place, id and length.
    hidden: Vec<(u16, u16, u32)>,
    faulted: bool,
}

/// `n` descriptors further in a packed ring.
fn advance(place: u16, n: u16, size: u16) -> u16 {
    let next = u32::from(place & 0x7fff) + u32::from(n);
    let turned = next >= u32::from(size);
    let index = (next % u32::from(size)) as u16;
    index | (place ^ if turned { 0x8000 } else { 0 }) & 0x8000
}

impl Checked {
    fn new(guest: &Guest) -> Checked {
        Checked::on(guest.device())
    }

    fn on(queue: DeviceQueue) -> Checked {
        let start = queue.position() as u16;
        let hidden = Vec::new();
        Checked { queue, staged: 0, used: start, published: start, hidden, faulted: false }
    }

    /// A new owner: of a split ring it goes on where the used index says, which may be a lie, of a
    /// packed one where this one is.
    fn next_owner(&self, guest: &Guest) -> Checked {
        match guest.is_packed() {
            true => Checked::on(guest.device_at(self.queue.position())),
            false => Checked::new(guest),
        }
    }

    fn stage(&mut self, guest: &Guest, want: usize, reached: &mut Reached) {
        let before = self.staged;
        self.staged = self.queue.stage(want);
        assert!(self.staged >= before && self.staged <= before.max(want.min(BURST)));
        assert!(!self.faulted || self.staged == before, "nothing more after a fault");
        let (buffers, arena) = self.queue.buffers();
        assert_eq!(buffers.len(), self.staged);
        for buffer in buffers {
            assert!(guest.is_packed() || buffer.ticket.id < guest.size);
            assert!(buffer.ticket.descriptors <= guest.size && buffer.len <= CHAIN_BYTES_MAX);
            let mut sum = 0;
            let mut count = 0;
            for slice in buffer.slices(arena) {
                guest.assert_inside(slice);
                sum += slice.len();
                count += 1;
                if !slice.is_empty() {
                    let last: [u8; 1] = slice.read(slice.len() - 1);
                    slice.write(0, last);
                }
            }
            assert_eq!(sum, buffer.len);
            assert!(count <= CHAIN_MAX);
            reached.add("buffers in pieces", u64::from(count > 1));
        }
        reached.add("buffers", (self.staged - before) as u64);
        if let Some(fault) = self.queue.fault()
            && !self.faulted
        {
            self.faulted = true;
            reached.add(fault.name(), 1);
        }
    }

    fn add_used(&mut self, guest: &Guest, len: u32, reached: &mut Reached) {
        if self.staged == 0 {
            return;
        }
        let ticket = self.queue.buffers().0[0].ticket;
        self.queue.add_used(len);
        self.note_used(guest, ticket, len);
        if !guest.is_packed() {
            let entry = guest.used_entry(self.used.wrapping_sub(1));
            assert_eq!(entry, (u32::from(ticket.id), len));
        }
        reached.add("done", 1);
    }

    fn note_used(&mut self, guest: &Guest, ticket: Ticket, len: u32) {
        self.staged -= 1;
        if guest.is_packed() {
            self.hidden.push((self.used, ticket.id, len));
            self.used = advance(self.used, ticket.descriptors, guest.size);
        } else {
            self.used = self.used.wrapping_add(1);
        }
    }

    fn add_used_all(&mut self, guest: &Guest, reached: &mut Reached) {
        let tickets: Vec<_> = self.queue.buffers().0.iter().map(|buffer| buffer.ticket).collect();
        self.queue.add_used_all();
        tickets.iter().for_each(|ticket| self.note_used(guest, *ticket, 0));
        reached.add("done", tickets.len() as u64);
        assert!(self.staged == 0 && self.queue.buffers().0.is_empty());
    }

    /// Checks a packed ring's publication: each buffer, or one for all.
    fn check_shown(&mut self, guest: &Guest) {
        let mut shown = std::mem::take(&mut self.hidden);
        if guest.is_used_in_one()
            && let [(place, ..), .., (_, id, len)] = shown[..]
        {
            shown = vec![(place, id, len)];
        }
        for (place, id, len) in shown {
            let found = guest.used_descriptor(place & 0x7fff);
            let used = if place & 0x8000 != 0 { 0x8080 } else { 0 };
            let written = if len > 0 { 2 } else { 0 };
            assert_eq!(found, (id, len, used | written));
        }
    }

    fn publish(&mut self, guest: &Guest) {
        let notify = self.queue.publish();
        // A packed ring that was used as a whole is where it was, but for the wrap counter.
        assert!(!notify || self.published != self.used, "notified of nothing");
        if guest.is_packed() {
            self.check_shown(guest);
        } else if self.published != self.used {
            assert_eq!(guest.peek(guest.used_at(2)), self.used.to_le_bytes());
        }
        self.published = self.used;
        let half = u32::from(self.published);
        let other = if guest.is_packed() { half << 16 } else { 0 };
        assert_eq!(self.queue.position(), half | other);
    }
}

/// `data` is a hostile driver's acts, and when the device looks.
pub(crate) fn device_ring(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let content = match input.below(4) {
        0 | 1 => Content::Writable,
        2 => Content::Readable { header: 12, keep: true },
        _ => Content::Readable { header: 0, keep: true },
    };
    let mut guest = Guest::new(&mut input, content);
    let mut device = Checked::new(&guest);
    let mut reached = Reached::default();
    while !input.is_empty() {
        match input.below(16) {
            0..=7 => guest.act(&mut input),
            8 | 9 => {
                let want = input.pick(&[0, 1, 2, 3, 10, BURST, BURST + 1, usize::MAX]);
                device.stage(&guest, want, &mut reached);
            }
            10 => {
                for _ in 0..input.below(70) {
                    device.add_used(&guest, u32::from(content == Content::Writable), &mut reached);
                }
            }
            11 => {
                device.add_used_all(&guest, &mut reached);
            }
            12 => device.publish(&guest),
            13 => {
                let there = device.queue.enable_notification();
                assert!(!there || !device.faulted, "a stopped ring keeps a lane awake");
            }
            14 => device.queue.disable_notification(),
            _ if input.below(4) == 0 => device = device.next_owner(&guest),
            _ => (),
        }
    }
    reached
}

//! A hostile driver against the device's side.

use virtq::{BURST, CHAIN_BYTES_MAX, CHAIN_MAX, Content, DeviceQueue};

use crate::Seen;
use crate::guest::Guest;
use crate::input::Input;

/// The device's side, and what it promised so far.
struct Checked {
    queue: DeviceQueue,
    /// Staged and not used.
    staged: usize,
    /// The used index with, and without, what is not yet published.
    used: u16,
    published: u16,
    faulted: bool,
}

impl Checked {
    fn new(guest: &Guest) -> Checked {
        let queue = guest.device();
        let start = queue.position() as u16;
        Checked { queue, staged: 0, used: start, published: start, faulted: false }
    }

    fn stage(&mut self, guest: &Guest, want: usize, seen: &mut Seen) {
        let before = self.staged;
        self.staged = self.queue.stage(want);
        assert!(self.staged >= before && self.staged <= before.max(want.min(BURST)));
        assert!(!self.faulted || self.staged == before, "nothing more after a fault");
        let (buffers, arena) = self.queue.buffers();
        assert_eq!(buffers.len(), self.staged);
        for buffer in buffers {
            assert!(buffer.ticket.id < guest.size && buffer.len <= CHAIN_BYTES_MAX);
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
            seen.in_pieces += u64::from(count > 1);
        }
        seen.buffers += (self.staged - before) as u64;
        if let Some(fault) = self.queue.fault()
            && !self.faulted
        {
            self.faulted = true;
            seen.faults[fault as usize] += 1;
        }
    }

    fn use_next(&mut self, guest: &Guest, len: u32, seen: &mut Seen) {
        if self.staged == 0 {
            return;
        }
        let head = self.queue.buffers().0[0].ticket.id;
        self.queue.use_next(len);
        assert_eq!(guest.used_entry(self.used), (u32::from(head), len));
        self.staged -= 1;
        self.used = self.used.wrapping_add(1);
        seen.done += 1;
    }

    fn publish(&mut self, guest: &Guest) {
        let notify = self.queue.publish();
        assert!(!notify || self.published != self.used, "notified of nothing");
        if self.published != self.used {
            assert_eq!(guest.peek(guest.used_at(2)), self.used.to_le_bytes());
        }
        self.published = self.used;
        assert_eq!(self.queue.position(), u32::from(self.published));
    }
}

/// `data` is a hostile driver's acts, and when the device looks.
pub fn device_ring(data: &[u8]) -> Seen {
    let mut input = Input::new(data);
    let content = match input.below(4) {
        0 | 1 => Content::Writable,
        2 => Content::Readable { header: 12, keep: true },
        _ => Content::Readable { header: 0, keep: true },
    };
    let mut guest = Guest::new(&mut input, content);
    let mut device = Checked::new(&guest);
    let mut seen = Seen::default();
    while !input.is_empty() {
        match input.below(16) {
            0..=7 => guest.act(&mut input),
            8 | 9 => {
                let want = input.pick(&[0, 1, 2, 3, 10, BURST, BURST + 1, usize::MAX]);
                device.stage(&guest, want, &mut seen);
            }
            10 => {
                for _ in 0..input.below(70) {
                    device.use_next(&guest, u32::from(content == Content::Writable), &mut seen);
                }
            }
            11 => {
                device.queue.use_all();
                device.used = device.used.wrapping_add(device.staged as u16);
                seen.done += device.staged as u64;
                device.staged = 0;
                assert!(device.queue.buffers().0.is_empty());
            }
            12 => device.publish(&guest),
            13 => {
                let there = device.queue.arm();
                assert!(!there || !device.faulted, "a stopped ring keeps a lane awake");
            }
            14 => device.queue.disarm(),
            // A new owner, rarely: it goes on where the used index says, which may be a lie.
            _ if input.below(4) == 0 => device = Checked::new(&guest),
            _ => (),
        }
    }
    seen
}

//! Two hostile guests, one sending to the other.

use std::collections::BTreeSet;

use port::virtio_net::{
    HEADER_LEN, HEADER_LEN_LEGACY, ReceiveLayout, ReceiveRing, RingEvents, TransmitRing,
};
use port::{BurstBuffers, GuestRing, OffloadSet, Polled, Receive, Transmit, VlanEdit};
use virtq::{BURST, Content};

use crate::Reached;
use crate::guest::Guest;
use crate::input::Input;

const FRAME_BYTES_MAX: u32 = 1518;

struct Link {
    from: Guest,
    transmit: TransmitRing,
    to: Guest,
    receive: ReceiveRing,
    /// The lane's buffers, for each direction.
    buffers: [BurstBuffers; 2],
    reached: Reached,
    /// Set once the fault of either ring was counted.
    counted: [bool; 2],
}

impl Link {
    fn new(input: &mut Input<'_>) -> Link {
        let header = input.pick(&[HEADER_LEN, HEADER_LEN, HEADER_LEN_LEGACY]);
        let mergeable = header == HEADER_LEN && input.flag();
        let [leaves, takes] = [(); 2].map(|()| OffloadSet::from_bits_truncate(input.byte()));
        let from = Guest::new(input, Content::Readable { header, keep: !leaves.is_empty() });
        let to = Guest::new(input, Content::Writable);
        let layout = ReceiveLayout { header, mergeable };
        let events = RingEvents::default();
        Link {
            transmit: TransmitRing::new(from.device(), events.clone(), FRAME_BYTES_MAX, leaves),
            receive: ReceiveRing::new(to.device(), events, layout, takes),
            from,
            to,
            buffers: Default::default(),
            reached: Reached::default(),
            counted: [false; 2],
        }
    }

    fn count(&mut self, ring: usize, fault: Option<virtq::Fault>) {
        if let Some(fault) = fault
            && !self.counted[ring]
        {
            self.counted[ring] = true;
            self.reached.add(fault.name(), 1);
        }
    }

    /// One burst on its way, while both guests go on writing.
    fn carry(&mut self, input: &mut Input<'_>) {
        let polled = self.transmit.poll(&mut self.buffers[0]);
        self.count(0, polled.fault);
        let headers = self.check(polled);
        // After the poll, nothing that the sender writes changes what was classified.
        (0..input.below(4)).for_each(|_| self.from.act(input));
        assert_eq!(self.transmit.burst(&self.buffers[0]).headers, headers);
        for _ in 0..input.below(3) {
            if !headers.is_empty() {
                self.deliver(input);
            }
            (0..input.below(4)).for_each(|_| self.to.act(input));
        }
        // No interrupts: these guests have no eventfds.
        let _ = self.receive.publish();
        if polled.frames > 0 {
            let _ = self.transmit.complete();
        }
        assert!(self.transmit.burst(&self.buffers[0]).frames.is_empty());
    }

    /// Checks what a poll says of its burst; returns the snapshots.
    fn check(&mut self, polled: Polled) -> Vec<port::HeaderBytes> {
        let burst = self.transmit.burst(&self.buffers[0]);
        assert_eq!(burst.frames.len(), polled.frames as usize);
        assert_eq!(burst.headers.len(), burst.frames.len());
        assert!(burst.frames.len() <= BURST);
        assert_eq!(burst.malformed.count_ones(), polled.malformed());
        let bytes: u64 = burst.frames.iter().map(|frame| u64::from(frame.len)).sum();
        assert_eq!(bytes, polled.bytes);
        for (i, frame) in burst.frames.iter().enumerate() {
            let is_cut = burst.offload(i).gso_size.get() > 0; // its segments count
            let longest = if is_cut { 65535 + 22 } else { FRAME_BYTES_MAX };
            let fine = (14..=longest).contains(&frame.len);
            assert!(fine || burst.malformed >> i & 1 == 1);
            let pieces = frame.slices(burst.arena).map(|slice| self.from.assert_inside(slice));
            self.reached.add("buffers in pieces", u64::from(pieces.count() > 1));
        }
        self.reached.add("buffers", u64::from(polled.frames));
        burst.headers.to_vec()
    }

    /// Delivers some frames, malformed ones too: their receiver must not matter.
    fn deliver(&mut self, input: &mut Input<'_>) {
        let before = self.from.dump();
        let [lent, receive] = &mut self.buffers;
        let burst = self.transmit.burst(lent);
        let count = burst.frames.len() as u32;
        let indices: BTreeSet<u8> =
            (0..input.below(BURST as u32 + 1)).map(|_| input.below(count) as u8).collect();
        let indices = Vec::from_iter(indices);
        let edit = match input.below(6) {
            0 => VlanEdit::Push(input.u32().to_be_bytes()),
            1 => VlanEdit::Retag(input.u32().to_be_bytes()),
            2 => VlanEdit::Pop,
            _ => VlanEdit::None,
        };
        let delivered = self.receive.deliver(&burst, &indices, edit, receive);
        let sum = delivered.frames + delivered.no_buffer + delivered.too_small;
        match burst.offloads {
            [] => assert_eq!(sum as usize, indices.len(), "every frame is counted once"),
            _ => assert!((1..=513).contains(&(sum as usize).div_ceil(indices.len().max(1)).max(1))),
        }
        let most: u64 =
            burst.frames.iter().map(|frame| u64::from(frame.len) + 12).max().unwrap_or(0);
        assert!(delivered.bytes <= most * u64::from(delivered.frames));
        self.reached.add("done", u64::from(delivered.frames));
        self.reached.add("refused", u64::from(delivered.no_buffer + delivered.too_small));
        self.count(1, delivered.fault);
        assert!(self.from.dump() == before, "delivering wrote to the sender's memory");
    }
}

/// `data` is two guests' acts, and when a lane looks.
pub(crate) fn port_rings(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut link = Link::new(&mut input);
    while !input.is_empty() {
        match input.below(16) {
            0..=4 => link.from.act(&mut input),
            5..=11 => link.to.act(&mut input),
            12 | 13 => link.carry(&mut input),
            14 => {
                let _ = link.transmit.enable_notification();
            }
            _ => link.transmit.disable_notification(),
        }
    }
    link.reached
}

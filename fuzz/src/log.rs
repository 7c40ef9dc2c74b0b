//! Two hostile guests, one sending to the other, while both are moved: what the daemon's side
//! writes to their memory is in their front-ends' logs.

use std::collections::BTreeSet;
use std::sync::Arc;

use guestmem::{DirtyLog, LOG_PAGE, Pages, SharedFile};
use port::virtio_net::{
    HEADER_LEN, HEADER_LEN_LEGACY, ReceiveLayout, ReceiveRing, RingEvents, TransmitRing,
};
use port::{BurstBuffers, GuestRing, OffloadSet, Receive, Transmit, VlanEdit};
use virtq::{BURST, Content, Log, Position, Start};

use crate::Reached;
use crate::guest::{BASE, Guest};
use crate::input::Input;

/// Bytes of a log for all of a guest's memory, and of one that is too short for it.
const LOG_BYTES: u64 = (BASE + (128 << 10)) / LOG_PAGE / 8;
const LOG_BYTES_SHORT: u64 = LOG_BYTES - 2;

/// A guest and its log.
struct Side {
    guest: Guest,
    bits: SharedFile,
    log: Arc<DirtyLog>,
    /// Logged accesses: all, and the used ring's address as the front-end says.
    logs: Option<Option<u64>>,
}

impl Side {
    fn new(input: &mut Input<'_>, content: Content) -> Side {
        let guest = Guest::new(input, content);
        let size = input.pick(&[LOG_BYTES, LOG_BYTES, LOG_BYTES_SHORT]);
        let bits = SharedFile::create("bits", size, Pages::Ordinary).expect("a little memory");
        let log = Arc::new(DirtyLog::new(bits.fd(), size, 0).expect("a mapping of all of it"));
        Side { guest, bits, log, logs: None }
    }

    /// Switches the log on or off.
    fn switch(&mut self, input: &mut Input<'_>) {
        self.logs = match input.below(6) {
            0 => None,
            1 => Some(None),
            2 => Some(Some(input.u64())),
            _ => Some(Some(self.guest.used_at(0))),
        };
    }

    fn start(&self, base: Position) -> Start {
        let log = |used| Log { pages: self.log.clone(), buffers: true, used };
        Start { log: self.logs.map(log), ..Start::at(base) }
    }

    /// Compares what changed with what is logged, and takes that out of the log; says how many
    /// pages it was.
    fn check(&self, before: &[u8], outside: u64) -> u64 {
        let after = self.guest.dump();
        let logged = self.take();
        if self.logs.is_none() {
            assert!(logged.is_empty(), "logged without a request: {logged:x?}");
            return 0;
        }
        let page = LOG_PAGE as usize;
        let pages = before.chunks(page).zip(after.chunks(page)).zip(BASE / LOG_PAGE..);
        let changed = pages.filter(|((old, new), _)| old != new).map(|(_, number)| number);
        let has_bit = |number: &u64| number / 8 < self.log.size() as u64;
        let (inside, beyond): (BTreeSet<u64>, BTreeSet<u64>) = changed.partition(has_bit);
        assert!(inside.is_subset(&logged), "not logged: {:x?}", inside.difference(&logged));
        assert!(beyond.is_empty() || self.log.outside() > outside, "not counted: {beyond:x?}");
        inside.len() as u64
    }

    fn take(&self) -> BTreeSet<u64> {
        let all = self.bits.mapping().slice(0, self.bits.mapping().size()).expect("all of it");
        let mut bytes = vec![0; all.len() as usize];
        all.read_bytes(&mut bytes);
        all.write_bytes(&vec![0; bytes.len()]);
        let of = |(at, byte): (u64, u8)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        };
        (0..).zip(bytes).filter(|(_, byte)| *byte != 0).flat_map(of).collect()
    }
}

struct Link {
    from: Side,
    to: Side,
    transmit: TransmitRing,
    receive: ReceiveRing,
    /// The lane's buffers, for each direction.
    buffers: [BurstBuffers; 2],
    layout: ReceiveLayout,
    leaves: OffloadSet,
    takes: OffloadSet,
    reached: Reached,
}

impl Link {
    fn new(input: &mut Input<'_>) -> Link {
        let header = input.pick(&[HEADER_LEN, HEADER_LEN, HEADER_LEN_LEGACY]);
        let layout = ReceiveLayout { header, mergeable: header == HEADER_LEN && input.flag() };
        let [leaves, takes] = [(); 2].map(|()| OffloadSet::from_bits_truncate(input.byte()));
        let from = Side::new(input, Content::Readable { header, keep: !leaves.is_empty() });
        let to = Side::new(input, Content::Writable);
        Link {
            transmit: TransmitRing::new(from.guest.device(), RingEvents::default(), 1518, leaves),
            receive: ReceiveRing::new(to.guest.device(), RingEvents::default(), layout, takes),
            buffers: Default::default(),
            from,
            to,
            layout,
            leaves,
            takes,
            reached: Reached::default(),
        }
    }

    /// One act of the daemon's side, between two looks at both guests' memory.
    fn watched<T>(&mut self, act: impl FnOnce(&mut Link) -> T) -> T {
        let before = [&self.from, &self.to].map(|side| (side.guest.dump(), side.log.outside()));
        let done = act(self);
        for (side, (before, outside)) in [&self.from, &self.to].into_iter().zip(&before) {
            self.reached.add("logged pages", side.check(before, *outside));
        }
        done
    }

    /// Another owner of a ring, that logs what it writes, or does not any more.
    fn renew(&mut self, input: &mut Input<'_>) {
        let is_from = input.flag();
        let base = self.watched(|link| match is_from {
            true => link.transmit.stop(),
            false => link.receive.stop(),
        });
        let side = if is_from { &mut self.from } else { &mut self.to };
        side.switch(input);
        self.watched(|link| match is_from {
            true => {
                let queue = link.from.guest.device_with(link.from.start(base));
                link.transmit = TransmitRing::new(queue, RingEvents::default(), 1518, link.leaves);
            }
            false => {
                let queue = link.to.guest.device_with(link.to.start(base));
                link.receive =
                    ReceiveRing::new(queue, RingEvents::default(), link.layout, link.takes);
            }
        });
    }

    /// One burst on its way, while both guests go on writing.
    fn carry(&mut self, input: &mut Input<'_>) {
        let polled = self.watched(|link| link.transmit.poll(&mut link.buffers[0]));
        self.reached.add("buffers", u64::from(polled.frames));
        (0..input.below(4)).for_each(|_| self.to.guest.act(input));
        if polled.frames > 0 {
            let indices: BTreeSet<u8> = (0..input.below(BURST as u32 + 1))
                .map(|_| input.below(polled.frames) as u8)
                .collect();
            let indices = Vec::from_iter(indices);
            let edit = match input.below(4) {
                0 => VlanEdit::Push(input.u32().to_be_bytes()),
                _ => VlanEdit::None,
            };
            // A used entry means nothing before it is published, and is logged then.
            let delivered = self.watched(|link| {
                let [lent, receive] = &mut link.buffers;
                let burst = link.transmit.burst(lent);
                let delivered = link.receive.deliver(&burst, &indices, edit, receive);
                let _ = link.receive.publish();
                delivered.frames
            });
            self.reached.add("done", u64::from(delivered));
        }
        if polled.frames > 0 {
            let _ = self.watched(|link| link.transmit.complete());
        }
    }
}

/// `data` is two guests' acts, when a lane looks, and when the logs are switched on and off.
pub(crate) fn logged_rings(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut link = Link::new(&mut input);
    link.renew(&mut input);
    while !input.is_empty() {
        match input.below(32) {
            0..=9 => link.from.guest.act(&mut input),
            10..=22 => link.to.guest.act(&mut input),
            23..=27 => link.carry(&mut input),
            28 => link.watched(|link| {
                let _ = link.transmit.enable_notification();
            }),
            29 => link.watched(|link| link.transmit.disable_notification()),
            _ => link.renew(&mut input),
        }
    }
    link.reached
}

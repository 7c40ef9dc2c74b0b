//! One burst, from a guest's transmit ring to the receive rings it is for.

use guestmem::{Buffer, Pages, SharedFile};
use nic::{Action, DropReason, Flows, Monitor, PortId, StormLimit, Table, Verdicts, VlanEdit};
use port::{Area, BURST, Burst, Delivered, Edit, Polled, Transmit};

use crate::fabric::{Port, SoftNic, word};

/// A lane's own working space, so that the way of a frame allocates nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    verdicts: Verdicts,
    groups: Groups,
    transmit: Area,
    receive: Area,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let (transmit, receive) = (Area::default(), Area::default());
        Scratch { verdicts: Verdicts::new(), groups: Groups::new(), transmit, receive }
    }
}

/// The frames of a burst in order: the picks of a burst that goes to one port.
const ALL: [u8; BURST] = {
    let mut all = [0; BURST];
    let mut i = 0;
    while i < BURST {
        all[i] = i as u8;
        i += 1;
    }
    all
};

/// What a lane keeps of a transmit ring from burst to burst.
#[derive(Debug)]
pub(crate) struct Sender {
    /// What the classifier remembers of its flows.
    flows: Flows,
    storm: StormLimit,
    /// The time, ns.
    pub(crate) now_ns: u64,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender { flows: Flows::new(), storm: StormLimit::new(0, 0), now_ns: 0 }
    }

    /// Lets so many broadcasts and multicasts pass in a second; 0 for all.
    pub(crate) fn limit_storms(&mut self, per_second: u32, now_ns: u64) {
        self.storm = StormLimit::new(per_second, now_ns);
    }
}

/// A burst on its way: where it comes from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) nic: &'a SoftNic,
    pub(crate) port: &'a Port,
    pub(crate) pair: usize,
}

/// Takes one burst from `transmit` and carries it to its receivers; says what there was.
pub(crate) fn forward(
    source: Source<'_>,
    transmit: &mut dyn Transmit,
    sender: &mut Sender,
    scratch: &mut Scratch,
) -> Polled {
    transmit.swap(&mut scratch.transmit);
    let polled = transmit.poll();
    if polled.frames == 0 {
        transmit.swap(&mut scratch.transmit);
        return polled;
    }
    let Source { nic, port, pair } = source;
    let burst = transmit.burst();
    let table = nic.table();
    let summary = table.classify(port.id, burst.heads, &mut sender.flows, &mut scratch.verdicts);
    match summary.port() {
        Some(to) if burst.malformed == 0 => {
            let picks = &ALL[..burst.frames.len()];
            send(source, to, &table, &mut scratch.receive, &burst, picks);
        }
        _ => scatter(source, &table, &burst, sender, scratch),
    }
    if table.is_mirrored() {
        mirror(source, &table, &burst, scratch);
    }
    let notified = transmit.complete();
    transmit.swap(&mut scratch.transmit);
    let block = port.block(pair);
    block.add(word::TX_FRAMES, u64::from(polled.frames));
    block.add(word::TX_BYTES, polled.bytes);
    block.add(word::TX_NOTIFIES, u64::from(notified));
    if polled.runts + polled.oversize > 0 {
        block.add(word::TX_RUNT, u64::from(polled.runts));
        block.add(word::TX_OVERSIZE, u64::from(polled.oversize));
    }
    polled
}

/// Delivers the picked frames to one port, with the tags that its VLAN rules ask for.
fn send(
    source: Source<'_>,
    to: PortId,
    table: &Table,
    area: &mut Area,
    burst: &Burst<'_>,
    picks: &[u8],
) -> usize {
    if let Some(edit) = table.edit(source.port.id, to) {
        return deliver(source, to, area, burst, picks, edit);
    }
    let edit = |pick: &u8| table.edit_of(source.port.id, to, &burst.heads[usize::from(*pick)]);
    let alike = picks.chunk_by(|a, b| edit(a) == edit(b));
    alike.map(|picks| deliver(source, to, area, burst, picks, edit(&picks[0]))).sum()
}

/// The same change in a port's words.
fn port_edit(edit: VlanEdit) -> Edit {
    match edit {
        VlanEdit::None => Edit::None,
        VlanEdit::Pop => Edit::Pop,
        VlanEdit::Push(tag) => Edit::Push(tag),
        VlanEdit::Retag(tag) => Edit::Retag(tag),
    }
}

/// Copies the picked frames to one port; says how many it took.
fn deliver(
    source: Source<'_>,
    to: PortId,
    area: &mut Area,
    burst: &Burst<'_>,
    picks: &[u8],
    edit: VlanEdit,
) -> usize {
    let Some(port) = source.nic.port(to) else {
        let reason = DropReason::NoMatch;
        source.port.block(source.pair).add(word::TX_DROPS + reason.index(), picks.len() as u64);
        return 0;
    };
    let (mut half, block) = port.receive(source.pair);
    let Some(attached) = half.as_mut() else {
        block.add(word::RX_DOWN, picks.len() as u64);
        return 0;
    };
    attached.ring.swap(area);
    let delivered = attached.ring.deliver(burst, picks, port_edit(edit));
    let notified = attached.ring.publish();
    attached.ring.swap(area);
    block.add(word::RX_FRAMES, u64::from(delivered.frames));
    block.add(word::RX_BYTES, delivered.bytes);
    block.add(word::RX_NOTIFIES, u64::from(notified));
    let Delivered { no_buffer, too_small, fault, .. } = delivered;
    if no_buffer + too_small > 0 {
        block.add(word::RX_NO_BUFFER, u64::from(no_buffer));
        block.add(word::RX_TOO_SMALL, u64::from(too_small));
    }
    if let Some(fault) = fault
        && !attached.fault_seen
    {
        attached.fault_seen = true;
        attached.ring.raise_error();
        block.add(word::RX_FAULTS + fault as usize, 1);
    }
    delivered.frames as usize
}

/// A burst for several receivers, or with frames to drop.
fn scatter(
    source: Source<'_>,
    table: &Table,
    burst: &Burst<'_>,
    sender: &mut Sender,
    scratch: &mut Scratch,
) {
    let Scratch { verdicts, groups, receive, .. } = scratch;
    groups.clear();
    for (i, verdict) in verdicts.as_slice().iter().enumerate() {
        if burst.malformed >> i & 1 == 1 {
            continue; // counted by the poll
        }
        match verdict.action() {
            Action::Port(port) => groups.add(port, i),
            Action::Flood if sender.storm.admit(1, sender.now_ns) == 0 => {
                drop_one(source, DropReason::Storm);
            }
            Action::Flood => flood(source, table, receive, burst, i),
            Action::Drop(reason) => drop_one(source, reason),
        }
    }
    // Each receiver's ring has to be read in three steps of which each needs the one before; those
    // of all receivers are on their way while the first is served.
    for (to, len) in groups.sizes() {
        if let Some(port) = source.nic.port(to)
            && let Some(attached) = port.receive(source.pair).0.as_ref()
        {
            attached.ring.prefetch(len);
        }
    }
    while let Some((to, picks)) = groups.next() {
        send(source, to, table, receive, burst, picks);
    }
}

fn drop_one(source: Source<'_>, reason: DropReason) {
    source.port.block(source.pair).add(word::TX_DROPS + reason.index(), 1);
}

/// Gives the monitors of mirrored functions their copies. Rare, so it does not group them.
#[cold]
fn mirror(source: Source<'_>, table: &Table, burst: &Burst<'_>, scratch: &mut Scratch) {
    let Scratch { verdicts, receive, .. } = scratch;
    for (i, verdict) in verdicts.as_slice().iter().enumerate() {
        if burst.malformed >> i & 1 == 1 {
            continue;
        }
        table.mirror(source.port.id, &burst.heads[i], *verdict, |copy| {
            if let Monitor::Port(to) = copy.to {
                deliver(source, to, receive, burst, &ALL[i..=i], copy.edit);
            }
        });
    }
}

#[cold]
fn flood(source: Source<'_>, table: &Table, area: &mut Area, burst: &Burst<'_>, frame: usize) {
    let from = source.port.id;
    for to in table.receivers(from, &burst.heads[frame]) {
        // A NIC may have no uplink: nobody there is no drop.
        if source.nic.port(to).is_some() {
            send(source, to, table, area, burst, &ALL[frame..=frame]);
        }
    }
}

/// Delivers a frame that no guest sent to all members of the VLAN of the function at `from`.
pub(crate) fn inject(nic: &SoftNic, from: PortId, frame: &[u8]) -> usize {
    let Some(port) = nic.port(from) else { return 0 };
    let Ok(file) = SharedFile::create("shunt-inject", frame.len() as u64, Pages::Ordinary) else {
        return 0;
    };
    let Some(slice) = file.mapping().slice(0, frame.len()) else {
        return 0;
    };
    slice.write_bytes(frame);
    let mut head = [0; 16];
    slice.read_bytes(&mut head);
    let frames = [Buffer::single(slice, 0)];
    let burst = Burst { heads: &[head], frames: &frames, arena: &[], malformed: 0 };
    let table = nic.table();
    let others = table.receivers(from, &head).filter(|to| nic.port(*to).is_some());
    let source = Source { nic, port, pair: 0 };
    let mut area = Area::default();
    others.map(|to| send(source, to, &table, &mut area, &burst, &ALL[..1])).sum()
}

/// The frames of a burst by receiver, each in the order of the burst.
#[derive(Debug)]
struct Groups {
    /// The last frame so far for each port plus one; zero if none.
    last: Box<[u8; PORTS_MAX]>,
    /// The next frame for the same port; its own index at the end.
    next: [u8; BURST],
    /// First frames, by order of appearance.
    firsts: [(PortId, u8); BURST],
    /// How many frames each of those receivers gets.
    sizes: [u8; BURST],
    /// By frame: which of those receivers gets it.
    group_of: [u8; BURST],
    len: usize,
    at: usize,
    picks: [u8; BURST],
}

/// Uplink, PF, and 255 VFs, rounded up.
const PORTS_MAX: usize = 512;

impl Groups {
    fn new() -> Groups {
        Groups {
            last: Box::new([0; PORTS_MAX]),
            next: [0; BURST],
            firsts: [(PortId::UPLINK, 0); BURST],
            sizes: [0; BURST],
            group_of: [0; BURST],
            len: 0,
            at: 0,
            picks: [0; BURST],
        }
    }

    fn clear(&mut self) {
        for (port, _) in &self.firsts[..self.len] {
            self.last[port.index() % PORTS_MAX] = 0;
        }
        self.len = 0;
        self.at = 0;
    }

    fn add(&mut self, port: PortId, frame: usize) {
        let last = &mut self.last[port.index() % PORTS_MAX];
        let group = match *last {
            0 => {
                self.firsts[self.len] = (port, frame as u8);
                self.sizes[self.len] = 0;
                self.len += 1;
                self.len as u8 - 1
            }
            before => {
                self.next[usize::from(before - 1)] = frame as u8;
                self.group_of[usize::from(before - 1)]
            }
        };
        *last = frame as u8 + 1;
        self.group_of[frame] = group;
        self.sizes[usize::from(group)] += 1;
        self.next[frame] = frame as u8;
    }

    /// The receivers, and how many frames there are for each.
    fn sizes(&self) -> impl Iterator<Item = (PortId, usize)> {
        self.firsts[..self.len]
            .iter()
            .zip(&self.sizes)
            .map(|((port, _), n)| (*port, usize::from(*n)))
    }

    fn next(&mut self) -> Option<(PortId, &[u8])> {
        if self.at == self.len {
            return None;
        }
        let (port, mut frame) = self.firsts[self.at];
        self.at += 1;
        let mut n = 0;
        loop {
            self.picks[n] = frame;
            n += 1;
            let next = self.next[usize::from(frame)];
            if next == frame {
                return Some((port, &self.picks[..n]));
            }
            frame = next;
        }
    }
}

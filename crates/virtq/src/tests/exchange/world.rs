//! Both ends of a ring, and a model of all buffers.

use std::collections::VecDeque;
use std::sync::Arc;

use guestmem::GuestMemory;

use super::suppression::{EventSuppression, Units};
use super::{Op, SLOT, TABLE};
use crate::tests::kit::{BASE, bytes_of, memory, pattern};
use crate::{BURST, Content, DeviceQueue, DriverQueue, Features, Segment, Start, Used};

/// A buffer as the model knows it.
#[derive(Clone, Debug)]
struct Posted {
    id: u16,
    slot: u64,
    descriptors: usize,
    len: u32,
    number: u64,
    written: u32,
}

pub(super) struct World {
    memory: Arc<GuestMemory>,
    driver: DriverQueue,
    device: DeviceQueue,
    features: Features,
    content: Content,
    header: u32,
    data: u64,
    slots: Vec<u64>,
    number: u64,
    /// Not yet published; published and not yet used (the first `staged` of them are staged); used
    /// and not yet published; and published as used.
    posted: VecDeque<Posted>,
    available: VecDeque<Posted>,
    staged: usize,
    hidden: VecDeque<Posted>,
    used: VecDeque<Posted>,
    units: Units,
    avail_at: u64,
    used_at: u64,
    device_suppression: EventSuppression,
    driver_suppression: EventSuppression,
}

impl World {
    pub(super) fn new(size: u16, features: Features, content: Content) -> World {
        let slots = u64::from(size);
        let memory = memory(DriverQueue::bytes(size) + slots * (SLOT + TABLE));
        let driver = DriverQueue::new(memory.clone(), BASE, size, features).unwrap();
        let (at, start) = (driver.addresses(), Start::at(driver.first_position()));
        let device = DeviceQueue::new(memory.clone(), &at, size, features, content, start).unwrap();
        let units = Units::new(features, size);
        let quiet = EventSuppression::disarmed(units, 0);
        let header = match content {
            Content::Readable { header, .. } => header,
            Content::Writable => 0,
        };
        World {
            memory,
            driver,
            device,
            features,
            content,
            header,
            data: BASE + DriverQueue::bytes(size),
            slots: (0..slots).collect(),
            number: 0,
            posted: VecDeque::new(),
            available: VecDeque::new(),
            staged: 0,
            hidden: VecDeque::new(),
            used: VecDeque::new(),
            units,
            avail_at: 0,
            used_at: 0,
            device_suppression: quiet,
            driver_suppression: quiet,
        }
    }

    /// Units of a buffer.
    fn count(&self, posted: &Posted) -> u64 {
        if self.units.packed { posted.descriptors as u64 } else { 1 }
    }

    fn count_all<'a>(&self, posted: impl IntoIterator<Item = &'a Posted>) -> u64 {
        posted.into_iter().map(|posted| self.count(posted)).sum()
    }

    fn writable(&self) -> bool {
        self.content == Content::Writable
    }

    pub(super) fn run(&mut self, op: &Op) {
        match op {
            Op::Post { times, lens, indirect } => {
                (0..*times).for_each(|_| self.post(lens, *indirect))
            }
            Op::DriverPublish => self.driver_publish(),
            Op::DriverArm => {
                let there = self.driver.enable_notification();
                assert_eq!(there, !self.used.is_empty());
                self.driver_suppression = EventSuppression::armed(self.units, self.next_reaped());
            }
            Op::DriverDisarm => {
                self.driver.disable_notification();
                self.driver_suppression =
                    EventSuppression::disarmed(self.units, self.next_reaped());
            }
            Op::Reap(most) => self.reap(*most),
            Op::Recycle => self.recycle(),
            Op::StagingBuffers(want) => self.stage(*want),
            Op::Use { times, len } => self.use_some(*times, *len),
            Op::UseAll => {
                self.device.add_used_all();
                (0..self.staged).for_each(|_| self.note_used(0));
            }
            Op::DevicePublish => self.device_publish(),
            Op::DeviceArm => {
                let there = self.device.enable_notification();
                assert_eq!(there, !self.available.is_empty());
                if self.staged == 0 {
                    self.device_suppression =
                        EventSuppression::armed(self.units, self.next_avail());
                }
            }
            Op::DeviceDisarm => {
                self.device.disable_notification();
                self.device_suppression = EventSuppression::disarmed(self.units, self.next_avail());
            }
            Op::HandOver => self.hand_over(),
        }
        assert_eq!(self.device.fault(), None);
        assert_eq!(self.driver.strays(), 0);
    }

    /// Position of the first buffer that is not staged.
    fn next_avail(&self) -> u64 {
        self.avail_at - self.count_all(self.available.iter().skip(self.staged))
    }

    /// Position of the first used buffer that is not reaped.
    fn next_reaped(&self) -> u64 {
        self.used_at - self.count_all(&self.used)
    }

    fn post(&mut self, lens: &[u32], indirect: bool) {
        let indirect = indirect && self.features.contains(Features::INDIRECT);
        let descriptors = if indirect { 1 } else { lens.len() };
        let Some(slot) = self.slots.pop() else {
            return assert_eq!(self.driver.room(), 0, "each buffer has a descriptor");
        };
        let (start, writable) = (self.data + slot * (SLOT + TABLE), self.writable());
        let mut addr = start + TABLE;
        let pieces: Vec<_> = lens
            .iter()
            .map(|&len| {
                addr += u64::from(len);
                Segment { addr: addr - u64::from(len), len, writable }
            })
            .collect();
        let room = self.driver.room();
        let id = match &pieces[..] {
            pieces if indirect => self.driver.post_indirect(pieces, start),
            [piece] => self.driver.post(*piece),
            pieces => self.driver.post_chain(pieces),
        };
        let Some(id) = id else {
            assert!(room < descriptors, "refused though there is room");
            return self.slots.push(slot);
        };
        assert_eq!(self.driver.room(), room - descriptors);
        let all = self.posted.iter().chain(&self.available).chain(&self.hidden).chain(&self.used);
        assert!(all.clone().all(|other| other.id != id), "handed out twice");
        let (len, number) = (lens.iter().sum(), self.number);
        self.number += 1;
        let bytes = if writable { vec![0; len as usize] } else { pattern(number, len as usize) };
        self.memory.slice(start + TABLE, SLOT as u32).unwrap().write_bytes(&bytes);
        self.posted.push_back(Posted { id, slot, descriptors, len, number, written: 0 });
    }

    fn driver_publish(&mut self) {
        let old = self.avail_at;
        self.avail_at += self.count_all(&self.posted);
        self.available.append(&mut self.posted);
        let wanted = self.device_suppression.wants(self.units, old, self.avail_at);
        assert_eq!(self.driver.publish(), wanted, "{:?}", self.device_suppression);
    }

    fn stage(&mut self, want: usize) {
        let n = self.device.stage(want);
        let reachable = self.available.len().min(want.min(BURST));
        assert_eq!(n, self.staged.max(reachable));
        self.staged = n;
        let (buffers, arena) = self.device.buffers();
        assert_eq!(buffers.len(), n);
        for (buffer, posted) in buffers.iter().zip(&self.available) {
            assert_eq!(buffer.ticket.id, posted.id);
            assert_eq!(buffer.len, posted.len.saturating_sub(self.header));
            if !self.writable() {
                let sent = pattern(posted.number, posted.len as usize);
                let expected = sent.get(self.header as usize..).unwrap_or(&[]);
                assert_eq!(bytes_of(buffer, arena), expected);
            }
        }
    }

    fn use_some(&mut self, times: usize, len: u32) {
        for _ in 0..times.min(self.staged) {
            let posted = self.available.front().unwrap();
            let n = if self.writable() { len.min(posted.len) } else { 0 };
            let bytes = pattern(!posted.number, n as usize);
            let (buffers, arena) = self.device.buffers();
            let mut done = 0;
            for slice in buffers[0].slices(arena) {
                done += slice.write_bytes(&bytes[done..]) as usize;
            }
            assert_eq!(done, bytes.len());
            self.device.add_used(n);
            self.note_used(n);
        }
    }

    fn note_used(&mut self, written: u32) {
        let mut posted = self.available.pop_front().unwrap();
        posted.written = written;
        self.hidden.push_back(posted);
        self.staged -= 1;
    }

    fn device_publish(&mut self) {
        let old = self.used_at;
        self.used_at += self.count_all(&self.hidden);
        self.used.append(&mut self.hidden);
        let wanted = self.driver_suppression.wants(self.units, old, self.used_at);
        assert_eq!(self.device.publish(), wanted, "{:?}", self.driver_suppression);
        assert_eq!(self.device.position(), self.units.position(self.used_at));
    }

    fn reap(&mut self, most: usize) {
        let mut out = vec![Used::default(); most];
        assert_eq!(usize::from(self.driver.used_len()), self.used.len());
        let (n, room) = (self.driver.reap(&mut out), self.driver.room());
        assert_eq!(n, most.min(self.used.len()));
        for used in &out[..n] {
            let posted = self.used.pop_front().unwrap();
            assert_eq!(*used, Used { id: posted.id, len: posted.written });
            let start = self.data + posted.slot * (SLOT + TABLE) + TABLE;
            let mut bytes = vec![0; posted.written as usize];
            self.memory.slice(start, SLOT as u32).unwrap().read_bytes(&mut bytes);
            assert_eq!(bytes, pattern(!posted.number, bytes.len()));
            self.slots.push(posted.slot);
        }
        let all = self.posted.iter().chain(&self.available).chain(&self.hidden).chain(&self.used);
        let taken: usize = all.map(|posted| posted.descriptors).sum();
        assert_eq!(room, usize::from(self.driver.size()) - taken);
    }

    fn recycle(&mut self) {
        assert_eq!(usize::from(self.driver.recycle()), self.used.len());
        self.posted.append(&mut self.used);
    }

    /// A new owner takes over: unpublished use did not happen.
    fn hand_over(&mut self) {
        let (memory, at, size) = (self.memory.clone(), self.driver.addresses(), self.driver.size());
        let start = Start::at(self.device.position());
        self.device =
            DeviceQueue::new(memory, &at, size, self.features, self.content, start).unwrap();
        self.hidden.append(&mut self.available);
        self.available = std::mem::take(&mut self.hidden);
        self.staged = 0;
        self.device_suppression = EventSuppression::disarmed(self.units, self.used_at);
    }

    /// Carries so many buffers across, one after the other, so that the indices are there.
    pub(super) fn advance(&mut self, count: u16) {
        for _ in 0..count {
            let piece = Segment { addr: self.data, len: 1, writable: self.writable() };
            self.driver.post(piece).unwrap();
            self.driver.publish();
            assert_eq!(self.device.stage(1), 1);
            self.device.add_used_all();
            self.device.publish();
            assert_eq!(self.driver.reap(&mut [Used::default()]), 1);
        }
        (self.avail_at, self.used_at) = (count.into(), count.into());
        self.device.disable_notification();
        self.device_suppression = EventSuppression::disarmed(self.units, count.into());
        self.driver.disable_notification();
        self.driver_suppression = EventSuppression::disarmed(self.units, count.into());
    }

    /// Carries everything across that is on its way.
    pub(super) fn drain(&mut self) {
        while self.posted.len() + self.available.len() + self.hidden.len() + self.used.len() > 0 {
            self.run(&Op::DriverPublish);
            self.run(&Op::StagingBuffers(BURST));
            self.run(&Op::Use { times: BURST, len: 9 });
            self.run(&Op::DevicePublish);
            self.run(&Op::Reap(BURST));
        }
        assert_eq!(self.driver.room(), usize::from(self.driver.size()));
        assert_eq!(self.slots.len(), usize::from(self.driver.size()));
    }
}

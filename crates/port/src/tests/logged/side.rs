//! One guest with one ring, whose front-end compares its memory with the log.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use guestmem::{DirtyLog, GuestMemory, LOG_PAGE, Mapping, Pages, Region, SharedFile};
use virtq::{
    Content, DeviceQueue, DriverQueue, Features, InflightRecord, Log, Position, Segment, Start,
};

use crate::tests::guests::Layout;

/// So many entries that each part of a ring has several pages.
pub(super) const RING: u16 = 1024;
/// Guest addresses of the ring and of the buffers, which are two regions; the front-end's own.
const RING_AT: u64 = 0x10_0000;
const BUFFERS_AT: u64 = 0x4000_0000;
const USER: u64 = 0x7000_0000_0000;
/// The page where the front-end says that the used ring, or the event area, begins in its log,
/// which may be elsewhere than where memory has it.
const ELSEWHERE: u64 = 0x20_0000;
const RING_BYTES: u64 = 32 << 10;
/// Address of the ring: a page ends behind the first entries of a split ring's used ring.
const RING_SHIFT: u64 = 1920;
/// Room of a buffer, which never begins or ends with a page, and how many there are.
const ROOM: u64 = 3001;
const ROOMS: u64 = 48;
/// Bytes at the front of a buffer's room for a table of descriptors.
const TABLE: u64 = 16 * 8;

/// Logged accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logs {
    Nothing,
    /// `VHOST_VRING_F_LOG` without `VHOST_F_LOG_ALL`.
    Ring,
    All,
    /// `VHOST_F_LOG_ALL` without `VHOST_VRING_F_LOG`.
    AllUnsaid,
}

pub(super) struct Side {
    memory: Arc<GuestMemory>,
    pub(super) driver: DriverQueue,
    features: Features,
    bits: SharedFile,
    log: Arc<DirtyLog>,
    /// Records of buffers in flight, for the next owner.
    inflight: InflightRecord,
    pub(super) logs: Logs,
    free: Vec<u64>,
    /// The buffers that the device has: room and length.
    posted: HashMap<u16, (u64, u32)>,
}

impl Side {
    pub(super) fn new(features: Features) -> Side {
        let region = |guest_addr, size| {
            let file = SharedFile::create("side", size, Pages::Ordinary).unwrap();
            let mapping = Arc::new(Mapping::new(file.fd(), size, 0).unwrap());
            Region { guest_addr, user_addr: USER + guest_addr, mapping }
        };
        let buffers = (ROOM * ROOMS).next_multiple_of(LOG_PAGE);
        let regions = vec![region(RING_AT, RING_BYTES), region(BUFFERS_AT, buffers)];
        let memory = Arc::new(GuestMemory::new(regions).unwrap());
        let driver = DriverQueue::new(memory.clone(), USER + RING_AT + RING_SHIFT, RING, features);
        let driver = driver.unwrap();
        let size = (BUFFERS_AT + buffers) / LOG_PAGE / 8 + 1;
        let bits = SharedFile::create("bits", size, Pages::Ordinary).unwrap();
        let log = Arc::new(DirtyLog::new(bits.fd(), size, 0).unwrap());
        let free = (0..ROOMS).map(|room| BUFFERS_AT + room * ROOM).collect();
        let logs = Logs::Nothing;
        let bytes = InflightRecord::bytes(RING);
        let records = SharedFile::create("records", bytes, Pages::Ordinary).unwrap();
        let records = Arc::new(Mapping::new(records.fd(), bytes, 0).unwrap());
        let inflight = InflightRecord::new(records, 0, RING).unwrap();
        Side { memory, driver, features, bits, log, inflight, logs, free, posted: HashMap::new() }
    }

    /// The device's end, from a position on, logging what `logs` says.
    pub(super) fn device(&self, content: Content, base: Position) -> DeviceQueue {
        let at = self.driver.addresses();
        let log = (self.logs != Logs::Nothing).then(|| Log {
            pages: self.log.clone(),
            buffers: self.logs != Logs::Ring,
            used: (self.logs != Logs::AllUnsaid).then_some(ELSEWHERE + at.used % LOG_PAGE),
        });
        let start = Start { base, log, inflight: Some(self.inflight.clone()) };
        let memory = self.memory.clone();
        DeviceQueue::new(memory, &at, RING, self.features, content, start).unwrap()
    }

    /// Makes a buffer of `bytes` available, at most as many as there is room for.
    pub(super) fn post(&mut self, bytes: &[u8], layout: &Layout, writable: bool) {
        let pieces_max = layout.cuts.len() + 1;
        if self.driver.room() < pieces_max {
            return;
        }
        let Some(room) = self.free.pop() else { return };
        let bytes = &bytes[..bytes.len().min((ROOM - TABLE) as usize)];
        let (addr, len) = (room + TABLE, bytes.len() as u32);
        self.memory.slice(addr, len).unwrap().write_bytes(bytes);
        let id = layout.post(&mut self.driver, Segment { addr, len, writable }, |_| room);
        let former = self.posted.insert(id, (room, len));
        assert_eq!(former, None);
    }

    /// Takes back what was used.
    pub(super) fn reap(&mut self) {
        for used in testguest::reap(&mut self.driver).unwrap() {
            let (room, _) = self.posted.remove(&used.id).expect("a buffer that was posted");
            self.free.push(room);
        }
    }

    /// All pages of memory, by number.
    pub(super) fn pages(&self) -> HashMap<u64, Vec<u8>> {
        let mut pages = HashMap::new();
        for region in self.memory.regions() {
            for at in (0..region.mapping.size() as u64).step_by(LOG_PAGE as usize) {
                let mut bytes = vec![0; LOG_PAGE as usize];
                region.mapping.slice(at, bytes.len()).unwrap().read_bytes(&mut bytes);
                pages.insert((region.guest_addr + at) / LOG_PAGE, bytes);
            }
        }
        pages
    }

    /// The pages that are logged; takes their bits away.
    pub(super) fn take_log(&self) -> BTreeSet<u64> {
        let all = self.bits.mapping().slice(0, self.bits.mapping().size()).unwrap();
        let mut bits = vec![0; all.len() as usize];
        all.read_bytes(&mut bits);
        all.write_bytes(&vec![0; bits.len()]);
        let of_byte = |(at, byte): (usize, &u8)| {
            let byte = *byte;
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at as u64 * 8 + bit)
        };
        bits.iter().enumerate().flat_map(of_byte).collect()
    }

    /// Compares what was written since `before` with what was logged.
    pub(super) fn check(&self, before: &HashMap<u64, Vec<u8>>, may_write: bool) {
        let after = self.pages();
        let changed = after.iter().filter(|(page, bytes)| before[page] != **bytes);
        let changed: BTreeSet<u64> = changed.map(|(page, _)| *page).collect();
        let logged = self.take_log();
        assert_eq!(self.log.outside(), 0);
        let unlogged = unlogged(&changed, &logged, self.logs);
        assert_eq!(unlogged, [0u64; 0], "pages were written and are not logged ({:?})", self.logs);
        let elsewhere: BTreeSet<u64> = self.changed_used(before, &after).collect();
        let unsaid: Vec<_> = elsewhere.difference(&logged).collect();
        let said = matches!(self.logs, Logs::Ring | Logs::All);
        assert!(!said || unsaid.is_empty(), "not logged where the front-end says: {unsaid:x?}");
        let writable = self.writable(may_write);
        let too_many: Vec<_> = logged.difference(&writable).collect();
        assert_eq!(too_many, [&0u64; 0], "pages are logged that were not written");
    }

    /// Bytes of the used ring, or of the event area.
    fn used_bytes(&self) -> u64 {
        match self.features.contains(Features::PACKED) {
            true => 4,
            false => 4 + 8 * u64::from(RING) + 2,
        }
    }

    /// The pages of the used ring, or of the event area, in which something changed, where the
    /// front-end says that they are.
    fn changed_used(
        &self,
        before: &HashMap<u64, Vec<u8>>,
        after: &HashMap<u64, Vec<u8>>,
    ) -> impl Iterator<Item = u64> {
        let at = self.driver.addresses().used - USER;
        let byte = |pages: &HashMap<u64, Vec<u8>>, at: u64| {
            pages[&(at / LOG_PAGE)][(at % LOG_PAGE) as usize]
        };
        let changed =
            (at..at + self.used_bytes()).filter(move |at| byte(before, *at) != byte(after, *at));
        changed.map(move |byte| byte / LOG_PAGE - at / LOG_PAGE + ELSEWHERE / LOG_PAGE)
    }

    /// Pages that a device may write to, and log.
    fn writable(&self, buffers: bool) -> BTreeSet<u64> {
        let of = |from: u64, len: u64| from / LOG_PAGE..=(from + len - 1) / LOG_PAGE;
        let (at, len) = (self.driver.addresses(), self.used_bytes());
        let said = matches!(self.logs, Logs::Ring | Logs::All);
        let said = of(ELSEWHERE + at.used % LOG_PAGE, len).filter(|_| said);
        let is_packed = self.features.contains(Features::PACKED);
        let descriptors = of(at.desc - USER, 16 * u64::from(RING)).filter(|_| is_packed);
        let ring = of(at.used - USER, len).chain(descriptors);
        let ring = ring.filter(|_| self.logs != Logs::Nothing).chain(said);
        let wanted = buffers && matches!(self.logs, Logs::All | Logs::AllUnsaid);
        let posted = self.posted.values().filter(|_| wanted);
        let posted = posted.flat_map(|(room, len)| of(room + TABLE, u64::from(*len)));
        ring.chain(posted).collect()
    }
}

/// Accesses missing from the log.
pub(super) fn unlogged(changed: &BTreeSet<u64>, logged: &BTreeSet<u64>, logs: Logs) -> Vec<u64> {
    let is_ring = |page: &u64| page * LOG_PAGE < BUFFERS_AT;
    let missing = changed.difference(logged).copied();
    match logs {
        Logs::Nothing => Vec::new(),
        Logs::Ring => missing.filter(is_ring).collect(),
        Logs::All | Logs::AllUnsaid => missing.collect(),
    }
}

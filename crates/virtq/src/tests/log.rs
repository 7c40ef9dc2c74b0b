//! Log of writes of a predecessor that was killed before it logged them.

use std::collections::BTreeSet;
use std::sync::Arc;

use guestmem::{DirtyLog, LOG_PAGE, Pages, SharedFile};

use super::kit::{BASE, Forge, READABLE, memory};
use crate::ring::Descriptor;
use crate::{BURST, Content, DeviceQueue, DriverQueue, Features, Log, Segment, Start};

const SIZE: u16 = 2048;

/// The pages of some bytes.
fn pages(at: u64, len: u64) -> BTreeSet<u64> {
    (at / LOG_PAGE..=(at + len - 1) / LOG_PAGE).collect()
}

fn logged(bits: &SharedFile) -> BTreeSet<u64> {
    let all = bits.mapping().slice(0, bits.mapping().size()).unwrap();
    let is_set = |page: &u64| all.read::<1>((page / 8) as u32)[0] >> (page % 8) & 1 == 1;
    (0..u64::from(all.len()) * 8).filter(is_set).collect()
}

#[test]
fn a_next_owner_logs_possible_writes_of_a_killed_one() {
    for features in [Features::empty(), Features::PACKED] {
        let memory = memory(1 << 20);
        let mut driver = DriverQueue::new(memory.clone(), BASE, SIZE, features).unwrap();
        let piece = Segment { addr: BASE + (1 << 19), len: 64, writable: false };
        while driver.post_chain(&[piece]).is_some() {}
        driver.publish();
        let at = driver.addresses();
        let owner =
            |start| DeviceQueue::new(memory.clone(), &at, SIZE, features, READABLE, start).unwrap();
        // Killed between publishing and logging: nothing of this is logged.
        let mut killed = owner(Start::at(driver.first_position()));
        while killed.stage(BURST) > 0 {
            killed.add_used_all();
            killed.publish();
        }
        assert_eq!(driver.used_len(), SIZE);
        let base = killed.position();
        drop(killed);

        let size = ((BASE + (1 << 20)) / LOG_PAGE).div_ceil(8);
        let bits = SharedFile::create("bits", size, Pages::Ordinary).unwrap();
        let log = Arc::new(DirtyLog::new(bits.fd(), size, 0).unwrap());
        let log = Log { pages: log, buffers: true, used: None };
        let _next = owner(Start { log: Some(log), ..Start::at(base) });
        let mut shown = match features {
            Features::PACKED => pages(at.desc, 16 * u64::from(SIZE)),
            _ => pages(at.used, 4 + 8 * u64::from(SIZE)),
        };
        shown.extend(pages(at.used, 2)); // it does not want to be kicked
        assert_eq!(logged(&bits), shown, "{features:?}");
    }
}

#[test]
#[should_panic(expected = "cannot be logged")]
fn a_queue_that_logs_cannot_use_set_aside_buffers() {
    let memory = memory(1 << 20);
    let mut driver = DriverQueue::new(memory.clone(), BASE, 8, Features::empty()).unwrap();
    driver.post_chain(&[Segment { addr: BASE + (1 << 19), len: 64, writable: false }]).unwrap();
    driver.publish();
    let bits = SharedFile::create("bits", 1, Pages::Ordinary).unwrap();
    let log = Arc::new(DirtyLog::new(bits.fd(), 1, 0).unwrap());
    let start = Start { log: Some(Log { pages: log, buffers: true, used: None }), ..Start::at(0) };
    let at = driver.addresses();
    let mut device = DeviceQueue::new(memory, &at, 8, Features::empty(), READABLE, start).unwrap();
    assert_eq!(device.stage(1), 1);
    let ticket = device.buffers().0[0].ticket;
    device.set_aside(1);
    device.add_used_set_aside(ticket, 0);
}

/// CVE-2019-14835 (Linux): they overflowed the list of ranges to log.
#[test]
fn zero_length_descriptors_under_a_log() {
    let mut guest = Forge::new(memory(1 << 20), 256, Content::Writable);
    // As many pieces without bytes as there may be, each in a page of its own, then one with bytes.
    let page = |i: u16| BASE + 0x1_0000 + u64::from(i) * LOG_PAGE;
    let last = crate::WRITABLE_CHAIN_MAX as u16 - 1;
    for i in 0..last {
        guest.desc(i, (page(i), 0), Descriptor::NEXT, i + 1);
    }
    let written = BASE + (1 << 19);
    guest.desc(last, (written, 64), 0, 0);
    guest.offer(0);
    let size = ((BASE + (1 << 20)) / LOG_PAGE).div_ceil(8);
    let bits = SharedFile::create("bits", size, Pages::Ordinary).unwrap();
    let log = Arc::new(DirtyLog::new(bits.fd(), size, 0).unwrap());
    let start =
        Start { log: Some(Log { pages: log.clone(), buffers: true, used: None }), ..Start::at(0) };
    let (at, features) = (&guest.addresses, Features::empty());
    let (memory, content) = (guest.memory.clone(), guest.content);
    let mut device = DeviceQueue::new(memory, at, 256, features, content, start).unwrap();
    assert_eq!((device.stage(BURST), device.fault()), (1, None));
    device.add_used(64);
    device.publish();
    let mut expected = pages(at.used, 4 + 8);
    expected.extend(pages(written, 64));
    assert_eq!((logged(&bits), log.outside()), (expected, 0));
}

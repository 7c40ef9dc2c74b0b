//! Guests that break the rules of the ring itself, shrink their memory, or fill it with anything.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guestmem::{Buffer, GuestMemory, GuestSlice, Mapping, Pages, Region, SharedFile};
use proptest::prelude::*;

use super::kit::{BASE, Forge, READABLE, bytes_of, is_alone, memory};
use crate::ring::Descriptor;
use crate::split::SplitRing;
use crate::{
    BURST, CHAIN_BYTES_MAX, Content, DeviceQueue, DriverQueue, Fault, Features, Segment, Used,
};

const ALL: Features = Features::all().difference(Features::PACKED);

#[test]
fn index_jump() {
    for jump in [513u16, 514, 0x7fff, 0x8000, 0xffff] {
        let mut guest = Forge::new(memory(4 << 20), 512, READABLE);
        (0..3).for_each(|index| guest.offer_good(index));
        let mut device = guest.device(ALL);
        assert_eq!(device.stage(3), 3);
        guest.ring.avail_idx().store(3u16.wrapping_add(jump), Ordering::Release);
        assert_eq!(device.stage(BURST), 3, "what was staged stays");
        assert_eq!(device.fault(), Some(Fault::IndexJump), "{jump:#x}");
        device.add_used_all();
        assert_eq!(device.stage(BURST), 0);
        assert!(!device.enable_notification());
    }
    // A jump by the ring's size is a full ring.
    let guest = Forge::new(memory(4 << 20), 512, READABLE);
    (0..512).for_each(|index| guest.desc(index, (guest.data(), 64), 0, 0));
    guest.ring.avail_idx().store(512, Ordering::Release);
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(BURST), BURST);
    assert_eq!(device.fault(), None);
}

/// CVE-2018-1059 (DPDK): only the start of a range was translated.
#[test]
fn address_range_across_regions() {
    let region = |guest_addr| {
        let file = SharedFile::create("half", 1 << 20, Pages::Ordinary).unwrap();
        let mapping = Arc::new(Mapping::new(file.fd(), 1 << 20, 0).unwrap());
        Region { guest_addr, user_addr: guest_addr, mapping }
    };
    let border = BASE + (1 << 20);
    let two = GuestMemory::new(vec![region(BASE), region(border)]).unwrap();
    let mut guest = Forge::new(Arc::new(two), 64, READABLE);
    for (index, (addr, len)) in
        [(border - 64, 64), (border, 64), (border - 1, 2)].into_iter().enumerate()
    {
        guest.desc(index as u16, (addr, len), 0, 0);
        guest.offer(index as u16);
    }
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(BURST), 2);
    assert_eq!(device.fault(), Some(Fault::OutsideMemory));
}

/// A driver with three buffers in flight, one of them a chain, and the device's end of its ring.
fn driver_with_three() -> (DriverQueue, SplitRing) {
    let memory = memory(1 << 20);
    let mut driver = DriverQueue::new(memory.clone(), BASE, 8, Features::empty()).unwrap();
    let piece = Segment { addr: BASE + 0x1000, len: 64, writable: true };
    let heads = [driver.post(piece), driver.post_chain(&[piece; 3]), driver.post(piece)];
    assert_eq!(heads, [Some(0), Some(1), Some(4)]);
    driver.publish();
    let ring = SplitRing::new(&memory, &driver.addresses(), 8).unwrap();
    (driver, ring)
}

#[test]
fn used_entries_without_a_buffer_in_flight_are_ignored() {
    let (mut driver, ring) = driver_with_three();
    // Free; in a chain but not its head; in flight; the same again; outside the table, which ids of
    // 16 and of 32 bits can be.
    for (position, id) in [7, 2, 4, 4, 8, 0x1_0004, u32::MAX].into_iter().enumerate() {
        let at = (driver.addresses().used - BASE) + 4 + 8 * position as u64;
        let place = driver.memory().slice(BASE + at, 4).unwrap();
        place.write(0, id.to_le_bytes());
    }
    ring.used_idx().store(7, Ordering::Release);
    let mut used = [Used::default(); 8];
    assert_eq!(driver.reap(&mut used), 1);
    assert_eq!((used[0].id, driver.strays()), (4, 6));
    assert_eq!(driver.room(), 4);

    let (mut driver, ring) = driver_with_three();
    for (position, id) in [7, 2, 1, 3].into_iter().enumerate() {
        ring.set_used_entry(position as u16, id, 0);
    }
    ring.used_idx().store(4, Ordering::Release);
    assert_eq!((driver.recycle(), driver.strays()), (1, 3));
    driver.publish();
    assert_eq!(ring.avail_idx().load(Ordering::Acquire), 4);
    assert_eq!(ring.avail_entry(3), 1);
}

#[test]
fn a_device_that_rewrites_links_frees_nothing_twice() {
    let (mut driver, ring) = driver_with_three();
    for index in 0..8 {
        ring.set_descriptor(index, Descriptor { addr: 0, len: 0, flags: 1, next: 7 });
    }
    ring.set_used_entry(0, 1, 0);
    ring.used_idx().store(1, Ordering::Release);
    assert_eq!(driver.reap(&mut [Used::default(); 8]), 1);
    let piece = Segment { addr: BASE + 0x1000, len: 64, writable: true };
    let mut heads: Vec<_> = std::iter::from_fn(|| driver.post(piece)).collect();
    heads.sort_unstable();
    assert_eq!(heads, [1, 2, 3, 5, 6, 7]);
}

/// A guest whose memory can shrink at any time; the ring is in its first pages.
fn shrinking(bytes_left: u64) -> (Forge, DeviceQueue) {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let fd = rustix::fs::memfd_create("shrinks", flags).unwrap();
    rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
    let mapping = Arc::new(Mapping::new(fd.as_fd(), 1 << 20, 0).unwrap());
    let region = Region { guest_addr: BASE, user_addr: BASE, mapping };
    let shrinks = Arc::new(GuestMemory::new(vec![region]).unwrap());
    let mut guest = Forge::new(shrinks, 64, READABLE);
    for index in 0..5 {
        guest.desc(index, (BASE + (1 << 19), 64), 0, 0);
        guest.offer(index);
    }
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(3), 3);
    rustix::fs::ftruncate(&fd, bytes_left).unwrap();
    (guest, device)
}

#[test]
fn truncated() {
    if !is_alone("tests::hostile::truncated") {
        return;
    }
    let (guest, mut device) = shrinking(64 << 10);
    // Truncated memory reads as zeros; the next burst is not taken.
    assert_eq!(device.buffers().0[0].first.read::<8>(0), [0; 8]);
    device.add_used_all();
    device.publish();
    assert_eq!(device.stage(BURST), 0);
    assert_eq!(device.fault(), Some(Fault::Truncated));
    assert!(!device.enable_notification());
    assert!(guest.memory.is_truncated());
}

#[test]
fn truncated_to_nothing() {
    if !is_alone("tests::hostile::truncated_to_nothing") {
        return;
    }
    let (_guest, mut device) = shrinking(0);
    // The rings themselves are gone, and read as zeros: that the index "jumped" is not the reason.
    device.add_used_all();
    device.publish();
    assert_eq!(device.stage(BURST), 0);
    assert_eq!(device.fault(), Some(Fault::Truncated));
}

#[test]
fn truncated_while_enough_is_staged() {
    if !is_alone("tests::hostile::truncated_while_enough_is_staged") {
        return;
    }
    let (_guest, mut device) = shrinking(64 << 10);
    assert_eq!(device.buffers().0[0].first.read::<8>(0), [0; 8]);
    assert_eq!((device.stage(1), device.fault()), (3, Some(Fault::Truncated)));
    device.add_used_all();
    assert_eq!(device.stage(1), 0);
}

/// Ends the other thread, also after a failed assertion.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a device on a new ring 1000 times, while another processor rewrites the two words of
/// descriptor 0 all the time; `check` gets the staged buffers and the fault.
fn race(
    words: fn(&Forge) -> [[u64; 2]; 2],
    prepare: fn(&Forge),
    check: impl Fn(&[Buffer<'_>], &[GuestSlice<'_>], Option<Fault>),
) {
    let memory = memory(4 << 20);
    let stop = AtomicBool::new(false);
    let versions = words(&Forge::new(memory.clone(), 64, READABLE));
    let write = |[addr, rest]: [u64; 2]| {
        let descriptor = memory.slice(BASE, 16).unwrap();
        descriptor.write(0, addr.to_le_bytes());
        descriptor.write(8, rest.to_le_bytes());
    };
    write(versions[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                versions.into_iter().for_each(write);
            }
        });
        let _stop = StopAtEnd(&stop);
        for _ in 0..1000 {
            let mut guest = Forge::new(memory.clone(), 64, READABLE);
            guest.ring.used_idx().store(0, Ordering::Release);
            prepare(&guest);
            guest.offer(0);
            let mut device = guest.device(ALL);
            device.stage(1);
            let fault = device.fault();
            let (buffers, arena) = device.buffers();
            check(buffers, arena, fault);
        }
    });
}

/// CVE-2026-86848, CVE-2020-14375 (DPDK): a length was read again after its check.
#[test]
fn descriptor_double_fetch() {
    let end = BASE + (4 << 20);
    // The long one ends outside of the memory, at either address.
    let words = |_: &Forge| {
        let end = BASE + (4 << 20);
        [[end - 4096, 64], [end - 2048, 0x10_0000]]
    };
    race(
        words,
        |_| (),
        |buffers, arena, fault| match buffers {
            [buffer] => {
                assert_eq!((buffer.len, fault), (64, None));
                let [slice] = &buffer.slices(arena).collect::<Vec<_>>()[..] else { panic!("one") };
                assert_eq!(slice.len(), 64);
                assert!(buffer.len < (end - BASE) as u32);
            }
            _ => assert_eq!(fault, Some(Fault::OutsideMemory)),
        },
    );
}

/// CVE-2026-93683 (DPDK): a table's length was read more than once.
#[test]
fn indirect_length_double_fetch() {
    let words = |guest: &Forge| {
        let word = |len: u64| len | u64::from(Descriptor::INDIRECT) << 32;
        let table = guest.data() + 0x1000;
        [[table, word(16)], [table, word(40 * 16)]]
    };
    // A chain through all 40 entries: in a table of one, its first link leads outside.
    let prepare = |guest: &Forge| {
        for i in 0..40u16 {
            let flags = if i < 39 { Descriptor::NEXT } else { 0 };
            let at = guest.data() + 0x1000 + 16 * u64::from(i);
            guest.entry(at, (guest.data(), 10), flags, i + 1);
        }
    };
    race(words, prepare, |buffers, arena, fault| match buffers {
        [buffer] => {
            assert_eq!((buffer.len, fault), (400, None));
            assert_eq!(buffer.slices(arena).count(), 40);
        }
        _ => assert_eq!(fault, Some(Fault::BadIndex)),
    });
}

/// vm-memory pull request 98: an index was copied byte by byte while the guest wrote it.
#[test]
fn torn_index() {
    // Between these two both bytes change. A mixture of them is far from either: 0 and 0x1ff.
    const INDICES: [u16; 2] = [0xff, 0x100];
    let guest = Forge::new(memory(1 << 20), 1024, READABLE);
    (0..1024).for_each(|index| guest.desc(index, (guest.data(), 64), 0, 0));
    guest.ring.used_idx().store(0xfe, Ordering::Release);
    let avail_idx = guest.ring.avail_idx();
    avail_idx.store(INDICES[0], Ordering::Release);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                INDICES.into_iter().for_each(|index| avail_idx.store(index, Ordering::Release));
            }
        });
        let _stop = StopAtEnd(&stop);
        for _ in 0..20_000 {
            let mut device = guest.device(ALL);
            let staged = device.stage(BURST);
            // A later look may find the smaller index again, which is a fault of this guest.
            assert!(matches!(staged, 1 | 2), "{staged} buffers: {:?}", device.fault());
        }
    });
}

/// CVE-2023-3019 (QEMU): a device wrote to its own registers.
#[test]
fn buffer_over_its_own_ring() {
    let mut guest = Forge::new(memory(1 << 20), 64, Content::Writable);
    guest.desc(0, (BASE, 1024), 0, 0); // all of the descriptors
    guest.offer(0);
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(1), 1);
    device.buffers().0[0].first.write_bytes(&[0xff; 1024]);
    device.add_used(1024);
    device.publish();
    guest.offer(1);
    assert_eq!(device.stage(1), 0);
    assert!(device.fault().is_some());
}

/// Range of addresses of `slice` in this process.
fn range_of(slice: GuestSlice<'_>) -> std::ops::Range<usize> {
    let start = slice.aligned_array::<u8>(slice.len() as usize).unwrap().addr();
    start..start + slice.len() as usize
}

/// Words with valid addresses, mixed with words without.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..64u64 << 10).prop_map(|offset| BASE + offset),
        Just(BASE + (64 << 10) - 16),
        any::<u64>(),
        (0..300u64, 0..8u64, 0..40u64)
            .prop_map(|(len, flags, next)| len | flags << 32 | next << 48),
        0..4u64,
    ]
}

proptest! {
    #[test]
    fn arbitrary_memory_never_panics_and_lends_nothing_outside(
        words in prop::collection::vec(word(), 600),
        idx in prop_oneof![0..40u16, any::<u16>()],
        bits in 0..4u8,
        writable: bool,
        wants in prop::collection::vec((1..80usize, 0..70usize), 1..8),
    ) {
        let memory = memory(64 << 10);
        let all = memory.slice(BASE, 64 << 10).unwrap();
        for (i, word) in words.iter().enumerate() {
            all.write(8 * i as u32, word.to_le_bytes());
        }
        let content = if writable { Content::Writable } else { Content::Readable { header: 12, keep: false } };
        let guest = Forge::new(memory.clone(), 32, content);
        guest.ring.used_idx().store(0, Ordering::Release);
        guest.ring.avail_idx().store(idx, Ordering::Release);
        for position in 0..32 {
            // Half of the heads are in the table.
            let head = guest.ring.avail_entry(position);
            guest.ring.set_avail_entry(position, if head & 1 == 0 { head } else { head % 32 });
        }
        let mut device = guest.device(Features::from_bits_truncate(bits & 3));
        let inside = range_of(all);
        let mut used = 0u16;
        for (want, uses) in wants {
            let n = device.stage(want);
            prop_assert!(n <= BURST);
            let (buffers, arena) = device.buffers();
            prop_assert_eq!(buffers.len(), n);
            for buffer in buffers {
                prop_assert!(buffer.ticket.id < 32 && buffer.len <= CHAIN_BYTES_MAX);
                for slice in buffer.slices(arena).filter(|slice| !slice.is_empty()) {
                    let range = range_of(slice);
                    prop_assert!(inside.start <= range.start && range.end <= inside.end);
                }
                bytes_of(buffer, arena);
            }
            for _ in 0..uses.min(n) {
                device.add_used(1);
                used += 1;
            }
            device.publish();
            prop_assert_eq!(guest.ring.used_idx().load(Ordering::Acquire), used);
            device.enable_notification();
            device.disable_notification();
        }
    }
}

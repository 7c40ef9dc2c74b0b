//! Invalid rings, and the largest and smallest valid ones.

use super::kit::{BASE, memory};
use crate::{
    Addresses, BURST, CHAIN_MAX, Content, DeviceQueue, DriverQueue, Features, RING_SIZE_MAX,
    Segment, SetupError, Start, Used,
};

fn setup(addresses: Addresses, size: u16) -> Result<DeviceQueue, SetupError> {
    let none = Features::empty();
    DeviceQueue::new(memory(1 << 20), &addresses, size, none, Content::Writable, Start::default())
}

#[test]
fn a_ring_is_a_power_of_two_inside_one_region_and_aligned() {
    let good = Addresses { desc: BASE, avail: BASE + 0x1000, used: BASE + 0x2000 };
    assert!(setup(good, 256).is_ok());
    for size in [0, 3, 255, 257, 32769, 65535] {
        assert_eq!(setup(good, size).unwrap_err(), SetupError::Size(size));
    }
    let refused = |addresses| setup(addresses, 256).unwrap_err();
    let outside = |part, addr| SetupError::Outside { part, addr };
    // The last byte that each part needs is one past the end.
    let end = BASE + (1 << 20);
    let desc = end - 4096 + 16;
    assert_eq!(refused(Addresses { desc, ..good }), outside("descriptor table", desc));
    let avail = end - 518 + 2;
    assert_eq!(refused(Addresses { avail, ..good }), outside("available ring", avail));
    let used = end - 2054 + 4;
    assert_eq!(refused(Addresses { used, ..good }), outside("used ring", used));
    let used = u64::MAX - 3;
    assert_eq!(refused(Addresses { used, ..good }), outside("used ring", used));
    let unaligned = |part, addr, align| SetupError::Alignment { part, addr, align };
    let desc = BASE + 8;
    assert_eq!(refused(Addresses { desc, ..good }), unaligned("descriptor table", desc, 16));
    let avail = BASE + 0x1001;
    assert_eq!(refused(Addresses { avail, ..good }), unaligned("available ring", avail, 2));
    let used = BASE + 0x2002;
    assert_eq!(refused(Addresses { used, ..good }), unaligned("used ring", used, 4));
}

#[test]
fn the_largest_ring_can_be_full_and_its_index_wraps() {
    let ring_bytes = DriverQueue::bytes(RING_SIZE_MAX);
    let memory = memory(ring_bytes + 8 * u64::from(RING_SIZE_MAX));
    let data = BASE + ring_bytes;
    let none = Features::empty();
    let mut driver = DriverQueue::new(memory.clone(), BASE, RING_SIZE_MAX, none).unwrap();
    let readable = Content::Readable { header: 0, keep: false };
    let at = driver.addresses();
    let mut device =
        DeviceQueue::new(memory.clone(), &at, RING_SIZE_MAX, none, readable, Start::default())
            .unwrap();
    let mut number = 0u64;
    for round in 0..5 {
        for slot in 0..u64::from(RING_SIZE_MAX) {
            let addr = data + 8 * slot;
            memory.slice(addr, 8).unwrap().write(0, number.to_le_bytes());
            number += 1;
            let piece = Segment { addr, len: 8, writable: false };
            driver.post(piece).unwrap();
        }
        assert_eq!(driver.room(), 0);
        driver.publish();
        let mut expected = number - u64::from(RING_SIZE_MAX);
        while device.stage(BURST) > 0 {
            for buffer in device.buffers().0 {
                assert_eq!(buffer.first.read::<8>(0), expected.to_le_bytes());
                expected += 1;
            }
            device.add_used_all();
            device.publish();
        }
        assert_eq!(expected, number, "round {round}: {:?}", device.fault());
        let mut used = vec![Used::default(); usize::from(RING_SIZE_MAX)];
        assert_eq!(driver.reap(&mut used), used.len());
        assert_eq!(driver.room(), used.len());
    }
}

#[test]
fn a_ring_always_gets_on_however_long_its_chains_are() {
    // Three staged chains of this length fill the arena; one is always left over, so that it is
    // never empty when more are staged.
    let pieces = CHAIN_MAX / 2 + 1;
    let memory = memory(1 << 20);
    let (none, content) = (Features::empty(), Content::Readable { header: 0, keep: false });
    let mut driver = DriverQueue::new(memory.clone(), BASE, 1024, none).unwrap();
    let at = driver.addresses();
    let mut device =
        DeviceQueue::new(memory.clone(), &at, 1024, none, content, Start::default()).unwrap();
    let segments: Vec<_> = (0..pieces as u64)
        .map(|i| Segment { addr: BASE + (1 << 19) + i, len: 1, writable: false })
        .collect();
    let mut used = [Used::default(); 8];
    device.stage(1);
    for round in 0..100 {
        while driver.post_chain(&segments).is_some() {}
        driver.publish();
        assert!(device.stage(2) >= 2, "round {round} stalls");
        let (buffers, arena) = device.buffers();
        for buffer in buffers {
            let lens: Vec<_> = buffer.slices(arena).map(|slice| slice.len()).collect();
            assert_eq!(lens, vec![1; pieces], "round {round}");
        }
        device.add_used(1);
        device.publish();
        assert_eq!(driver.reap(&mut used), 1);
    }
}

/// CVE-2022-2132 (DPDK): the header was taken to be in one piece.
#[test]
fn header_split_over_descriptors() {
    let memory = memory(1 << 20);
    let data = BASE + (1 << 19);
    let bytes: Vec<u8> = (0..40).collect();
    memory.slice(data, 40).unwrap().write_bytes(&bytes);
    for cuts in [
        &[40u32][..],
        &[12, 28],
        &[13, 27],
        &[11, 29],
        &[4, 8, 28],
        &[4, 4, 32],
        &[1; 40],
        &[12],
        &[11],
        &[5, 5],
        &[0, 12, 0, 28],
        &[20, 0],
    ] {
        let mut driver = DriverQueue::new(memory.clone(), BASE, 64, Features::empty()).unwrap();
        let at = driver.addresses();
        let header = Content::Readable { header: 12, keep: true };
        let mut device =
            DeviceQueue::new(memory.clone(), &at, 64, Features::empty(), header, Start::default())
                .unwrap();
        let mut addr = data;
        let segments: Vec<_> = cuts
            .iter()
            .map(|&len| {
                let piece = Segment { addr, len, writable: false };
                addr += u64::from(len);
                piece
            })
            .collect();
        driver.post_chain(&segments).unwrap();
        driver.publish();
        assert_eq!(device.stage(1), 1, "{cuts:?}: {:?}", device.fault());
        let (buffers, arena) = device.buffers();
        let total: u32 = cuts.iter().sum();
        let expected = bytes.get(12..total as usize).unwrap_or(&[]);
        assert_eq!(super::kit::bytes_of(&buffers[0], arena), expected, "{cuts:?}");
        let first = buffers[0].first.len();
        assert!(first > 0 || expected.is_empty(), "{cuts:?}: an empty piece comes first");
        let mut header = [0; 12];
        let there = &bytes[..12.min(total as usize)];
        header[..there.len()].copy_from_slice(there);
        assert_eq!(device.virtio_headers(), [header], "{cuts:?}");
    }
}

//! Tests of mappings, translation, copies and the truncation guard.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::*;

fn memory(regions: &[(u64, u64)]) -> Arc<GuestMemory> {
    let region = |&(guest_addr, size): &(u64, u64)| {
        let file = SharedFile::create("test", size, Pages::Ordinary).unwrap();
        let mapping = Arc::new(Mapping::new(file.fd(), size, 0).unwrap());
        Region { guest_addr, user_addr: guest_addr + 0x7000_0000_0000, mapping }
    };
    Arc::new(GuestMemory::new(regions.iter().map(region).collect()).unwrap())
}

#[test]
fn a_range_is_inside_one_region_or_refused() {
    let memory = memory(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x10_0000, 0x2000)]);
    let mut translator = Translator::new(memory.clone());
    for (addr, len, inside) in [
        (0x1000, 0x1000, true),
        (0x1fff, 1, true),
        (0x1fff, 2, false), // the next region begins there: still two regions
        (0x0fff, 1, false),
        (0x3000, 1, false),
        (0x10_1fff, 1, true),
        (0x10_1000, 0x1001, false),
        (0x1000, u32::MAX, false),
        (u64::MAX, 1, false),
        (u64::MAX, u32::MAX, false),
        (0x1000, 0, true),
    ] {
        assert_eq!(memory.slice(addr, len).is_some(), inside, "{addr:#x}+{len:#x}");
        assert_eq!(translator.slice(addr, len).is_some(), inside, "{addr:#x}+{len:#x}");
    }
    assert!(memory.user_slice(0x7000_0000_1000, 0x1000).is_some());
    assert!(memory.user_slice(0x7000_0000_1000, 0x1001).is_none());
}

#[test]
fn overlapping_overflowing_and_too_many_regions_are_refused() {
    let file = SharedFile::create("test", 4096, Pages::Ordinary).unwrap();
    let mapping = Arc::new(Mapping::new(file.fd(), 4096, 0).unwrap());
    let region = |guest_addr| Region { guest_addr, user_addr: 0, mapping: mapping.clone() };
    let refused = |regions: Vec<Region>| GuestMemory::new(regions).unwrap_err();
    assert_eq!(refused(vec![region(0), region(4095)]), MemoryError::Overlap(0, 4095));
    let guest_addr = u64::MAX - 100;
    assert_eq!(refused(vec![region(guest_addr)]), MemoryError::Overflow { guest_addr, size: 4096 });
    let many = (0..=REGIONS_MAX as u64).map(|i| region(i * 4096)).collect();
    assert_eq!(refused(many), MemoryError::TooMany(REGIONS_MAX + 1));
}

/// CVE-2026-86561 (DPDK): the file's size was not checked before mapping.
#[test]
fn region_larger_than_file() {
    let file = SharedFile::create("test", 4096, Pages::Ordinary).unwrap();
    let error = Mapping::new(file.fd(), 4096, 1).unwrap_err();
    assert!(matches!(error, MapError::FileTooSmall { file: 4096, need: 4097 }), "{error}");
    let error = Mapping::new(file.fd(), u64::MAX, 4096).unwrap_err();
    assert!(matches!(error, MapError::BadRange { .. }), "{error}");
    assert!(matches!(Mapping::new(file.fd(), 0, 0).unwrap_err(), MapError::BadRange { .. }));
}

#[test]
fn a_truncated_file_reads_as_zeros_and_is_flagged() {
    let fd = rustix::fs::memfd_create("shrinks", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
    let shrinks = Mapping::new(fd.as_fd(), 1 << 20, 0).unwrap();
    let honest = SharedFile::create("honest", 4096, Pages::Ordinary).unwrap();
    let far = shrinks.slice(900_000, 8).unwrap();
    far.write(0, [7u8; 8]);
    honest.mapping().slice(0, 1).unwrap().write(0, [9]);
    assert!(!shrinks.is_truncated());
    let before = guard::truncations();

    rustix::fs::ftruncate(&fd, 4096).unwrap();

    assert_eq!(far.read::<8>(0), [0; 8]);
    far.write(0, [1; 8]);
    assert!(shrinks.is_truncated());
    assert!(guard::truncations() > before);
    assert!(!honest.mapping().is_truncated());
    assert_eq!(honest.mapping().slice(0, 1).unwrap().read(0), [9]);
}

/// cloud-hypervisor issue 5730: SIGBUS ended the process.
#[test]
fn truncated_huge_pages() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    const PAGE: u64 = 2 << 20;
    // A machine without reserved pages delivers the same signal already at the first access.
    let Ok(fd) = memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) else {
        panic!("the kernel has no huge pages of 2 MiB (CONFIG_HUGETLBFS)");
    };
    ftruncate(&fd, 2 * PAGE).unwrap();
    let mapping = Mapping::new(fd.as_fd(), 2 * PAGE, 0).unwrap();
    ftruncate(&fd, 0).unwrap();
    for at in [0, PAGE - 8, PAGE, 2 * PAGE - 8] {
        let slice = mapping.slice(at, 8).unwrap();
        assert_eq!(slice.read::<8>(0), [0; 8]);
        slice.write(0, [7u8; 8]);
        assert_eq!(slice.read::<8>(0), [7; 8]);
    }
    assert!(mapping.is_truncated());
}

/// A mapping whose file was truncated to 0 bytes.
fn truncated(bytes: u64) -> Mapping {
    let fd = rustix::fs::memfd_create("shrinks", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    let mapping = Mapping::new(fd.as_fd(), bytes, 0).unwrap();
    rustix::fs::ftruncate(&fd, 0).unwrap();
    mapping
}

#[test]
fn what_is_written_to_truncated_memory_is_seen_there_alone() {
    let write = |mapping: &Mapping| {
        let slice = mapping.slice(5000, 8).unwrap();
        assert_eq!(slice.read::<8>(0), [0; 8]);
        slice.write(0, [7u8; 8]);
        assert_eq!(slice.read::<8>(0), [7; 8]);
    };
    let (one, other) = (truncated(1 << 20), truncated(1 << 20));
    write(&one);
    write(&other);
    // The kernel reuses freed addresses.
    let mut addresses = std::collections::BTreeSet::from([other.address()]);
    drop(other);
    for _ in 0..100 {
        let next = truncated(1 << 20);
        addresses.insert(next.address());
        write(&next);
    }
    assert!(addresses.len() < 100, "no address was given again");
}

/// Returns `true` in a process that runs only the test `name`. Otherwise runs it in such a process.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "SHUNT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said} {:?}", output.status);
    false
}

#[test]
fn truncated_memory_is_not_charged_for_its_size() {
    if !is_alone("tests::truncated_memory_is_not_charged_for_its_size") {
        return;
    }
    let mapping = truncated(1 << 40);
    let slice = mapping.slice((1 << 40) - 8, 8).unwrap();
    // SAFETY: zeros are a limit, and it lives as long as the calls.
    let (room, more) = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_DATA, &raw mut limit);
        let before = limit.rlim_cur;
        // For one process the equivalent of vm.overcommit_memory=2: a limit of private writable
        // memory.
        limit.rlim_cur = 1 << 30;
        libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
        let mut room = Vec::<u8>::new();
        let full = room.try_reserve(64 << 20);
        slice.write(0, [1; 8]);
        let mut more = Vec::<u8>::new();
        let more = more.try_reserve(64 << 20);
        limit.rlim_cur = before;
        libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
        (full, more)
    };
    assert!(mapping.is_truncated());
    assert_eq!(slice.read(0), [1; 8]);
    assert!(room.is_ok() && more.is_ok(), "before: {room:?}, with truncated memory: {more:?}");
}

/// The kernel's flags of the mapping at this address: `VmFlags` of proc_pid_smaps(5).
fn flags(mapping: &Mapping) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split_whitespace().next().and_then(|word| word.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(from, to)| (hex(from), hex(to))) {
            inside = (from..to).contains(&mapping.address());
        } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
            return format!("{flags} ");
        }
    }
    panic!("no mapping at {:#x}", mapping.address());
}

#[test]
fn guest_memory_is_in_no_core_dump() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = SharedFile::create("dump", 4 << 20, Pages::Ordinary).unwrap();
    let part = Mapping::new(file.fd(), 10_000, 5000).unwrap();
    let shrunk = truncated(1 << 20);
    shrunk.slice(0, 1).unwrap().write(0, [1]);
    assert!(shrunk.is_truncated());
    for mapping in [file.mapping(), &part, &shrunk] {
        assert!(flags(mapping).contains(" dd "), "{}", flags(mapping));
    }
    let huge = memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
    if let Ok(huge) = huge {
        ftruncate(&huge, 4 << 20).unwrap();
        // Fails on machines where so many pages are neither reserved nor allowed.
        if let Ok(mapping) = Mapping::new(huge.as_fd(), 4 << 20, 0) {
            assert!(flags(&mapping).contains(" dd "), "{}", flags(&mapping));
        }
    }
}

#[test]
fn an_unaligned_offset_maps_the_right_bytes() {
    let file = SharedFile::create("offsets", 16384, Pages::Ordinary).unwrap();
    file.mapping().slice(5000, 4).unwrap().write(0, *b"here");
    let mapping = Mapping::new(file.fd(), 9000, 4990).unwrap();
    assert_eq!(mapping.slice(10, 4).unwrap().read(0), *b"here");
    assert!(mapping.slice(8997, 4).is_none());
}

#[test]
fn mappings_keep_step_with_large_pages_of_the_file() {
    let file = SharedFile::create("aligned", 8 << 20, Pages::Ordinary).unwrap();
    for (offset, size) in [(0, 8 << 20), (4096, 5 << 20), (5000, 4 << 20), (3 << 20, 3 << 20)] {
        let mapping = Mapping::new(file.fd(), size, offset).unwrap();
        assert_eq!((mapping.start().addr() as u64).wrapping_sub(offset) % (2 << 20), 0);
        mapping.slice(size - 1, 1).unwrap().write(0, [7]);
        assert_eq!(file.mapping().slice(offset + size - 1, 1).unwrap().read(0), [7]);
    }
}

#[test]
fn files_of_huge_pages_of_any_size_can_be_mapped() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let sizes = [(MemfdFlags::HUGE_2MB, 2u64 << 20), (MemfdFlags::HUGE_1GB, 1 << 30)];
    for (kind, size) in sizes {
        // A machine without this page size fails here; mapping needs no reserved pages.
        let Ok(fd) = memfd_create("huge", MemfdFlags::HUGETLB | kind) else { continue };
        ftruncate(&fd, size).unwrap();
        assert_eq!(Mapping::new(fd.as_fd(), size, 0).unwrap().size() as u64, size);
    }
}

#[test]
fn gathered_pages_are_zeros_and_shared() {
    let file = SharedFile::create("gathered", 4 << 20, Pages::Collapsed).unwrap();
    let other = Mapping::new(file.fd(), 4 << 20, 0).unwrap();
    assert_eq!(other.slice(3 << 20, 4).unwrap().read(0), [0; 4]);
    file.mapping().slice(3 << 20, 4).unwrap().write(0, *b"here");
    assert_eq!(other.slice(3 << 20, 4).unwrap().read(0), *b"here");
    if file.has_large_pages() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mapped = smaps.lines().filter_map(|line| line.strip_prefix("ShmemPmdMapped:"));
        assert!(mapped.into_iter().any(|size| size.trim() != "0 kB"));
    }
}

#[test]
fn huge_pages_that_are_not_there_are_an_error_with_a_remedy() {
    // More than any machine has: 2^46 bytes.
    let error = SharedFile::create("huge", 1 << 46, Pages::Huge2M).unwrap_err();
    assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
}

proptest! {
    #[test]
    fn copies_move_exactly_their_bytes(n in 0usize..3000, from in 0u32..64, to in 0u32..64) {
        let file = SharedFile::create("copies", 16384, Pages::Ordinary).unwrap();
        let all = file.mapping().slice(0, 16384).unwrap();
        let source = all.skip(from).first(n as u32);
        let bytes: Vec<u8> = (0..n).map(|i| (i % 251 + 1) as u8).collect();
        prop_assert_eq!(source.write_bytes(&bytes), n as u32);
        let target = all.skip(8192 + to);
        target.copy_from(source, n as u32);
        let mut seen = vec![0; n + 2];
        all.skip(8192 + to - u32::from(to > 0)).read_bytes(&mut seen);
        let lead = usize::from(to > 0);
        prop_assert_eq!(&seen[lead..lead + n], &bytes[..]);
        if to > 0 { prop_assert_eq!(seen[0], 0); }
        let mut after = [9u8];
        target.skip(n as u32).read_bytes(&mut after);
        prop_assert_eq!(after[0], 0);
    }

    #[test]
    fn a_buffer_reads_across_its_slices(cuts in prop::collection::vec(0u32..40, 1..6), at in 0u32..60) {
        let file = SharedFile::create("cuts", 4096, Pages::Ordinary).unwrap();
        let all = file.mapping().slice(0, 4096).unwrap();
        let bytes: Vec<u8> = (0..255).collect();
        all.write_bytes(&bytes);
        let mut offset = 0;
        let slices: Vec<_> = cuts.iter().map(|n| {
            let slice = all.skip(offset).first(*n);
            offset += n;
            slice
        }).collect();
        let buffer = Buffer { first: slices[0], len: offset, rest_start: 1, rest_len: slices.len() as u16 - 1, ticket: Ticket::default() };
        let mut seen = [0u8; 64];
        let n = buffer.read_bytes(&slices, at, &mut seen);
        let expected = (offset.saturating_sub(at) as usize).min(64);
        prop_assert_eq!(n, expected);
        prop_assert_eq!(&seen[..n], &bytes[at as usize..][..n]);
    }
}

#[test]
fn a_pool_lends_what_is_inside_and_no_more_than_a_burst() {
    let mut pool = FramePool::create("test", 8192, Pages::Ordinary).unwrap();
    pool.slice(100, 4).unwrap().write(0, *b"abcd");
    assert!(pool.lend(100, 4) && pool.lend(8191, 1));
    assert!(!pool.lend(8191, 2) && !pool.lend(u64::MAX, 1));
    let [first, second] = pool.buffers() else { panic!("two were lent") };
    assert_eq!((first.first.read::<4>(0), first.ticket.id), (*b"abcd", 0));
    assert_eq!((second.len, second.ticket.id), (1, 1));
    (2..STAGED_MAX).for_each(|_| assert!(pool.lend(0, 1)));
    assert!(!pool.lend(0, 1));
    pool.clear();
    assert!(pool.buffers().is_empty());
}

#[test]
fn the_kernel_copies_from_pieces_into_slices() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let pool = FramePool::create("test", 4096, Pages::Ordinary).unwrap();
    pool.slice(10, 5).unwrap().write_bytes(b"guest");
    let pieces = [
        io::Piece::bytes(b"ours "),
        io::Piece::slice(pool.slice(10, 5).unwrap()),
        io::Piece::EMPTY,
    ];
    assert_eq!(io::write(here.as_fd(), &pieces), Ok(10));
    assert_eq!(io::read(there.as_fd(), pool.slice(4000, 96).unwrap()), Ok(10));
    assert_eq!(pool.slice(4000, 10).unwrap().read::<10>(0), *b"ours guest");
    there.set_nonblocking(true).unwrap();
    let empty = io::read(there.as_fd(), pool.slice(0, 1).unwrap());
    assert_eq!(empty, Err(rustix::io::Errno::AGAIN));
}

#[test]
fn datagrams_go_and_come_many_at_once() {
    let [here, there] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let pool = FramePool::create("test", 4096, Pages::Ordinary).unwrap();
    let port = there.local_addr().unwrap().port().to_be_bytes();
    let mut to = [0; 16]; // struct sockaddr_in
    to[..2].copy_from_slice(&(rustix::net::AddressFamily::INET.as_raw()).to_ne_bytes());
    to[2..4].copy_from_slice(&port);
    to[4..8].copy_from_slice(&[127, 0, 0, 1]);
    let pieces = [io::Piece::bytes(b"one"), io::Piece::bytes(b" and two")];
    let messages = [&pieces[..1], &pieces[..]].map(|pieces| io::Datagram { pieces, to: &to });
    assert_eq!(io::send_many(here.as_fd(), &messages), Ok(2));
    let mut receiver = io::DatagramReceiver::default();
    let rooms = || (0..4).map(|i| pool.slice(i * 8, 8).unwrap());
    let mut came = Vec::new();
    while came.len() < 2 {
        // On loopback, messages have arrived when the sending call returns.
        let n = receiver.receive(there.as_fd(), rooms()).unwrap();
        came.extend((0..n).map(|i| (receiver.len(i), receiver.is_truncated(i))));
        let from = receiver.from(0);
        assert_eq!(from[2..4], here.local_addr().unwrap().port().to_be_bytes());
        assert!(receiver.control(0).is_empty());
    }
    assert_eq!(came, [(3, false), (8, true)]);
    assert_eq!(receiver.receive(there.as_fd(), rooms()), Err(rustix::io::Errno::AGAIN));
}

#[test]
fn what_was_touched_is_resident() {
    let page = rustix::param::page_size() as u64;
    let file = SharedFile::create("sparse", 64 * page, Pages::Ordinary).unwrap();
    let mapping = Mapping::new(file.fd(), 64 * page, 0).unwrap();
    let before = mapping.resident().unwrap();
    for touched in [3, 40] {
        mapping.slice(touched * page, 1).unwrap().write(0, [1]);
    }
    // 2 MiB pages, if the kernel uses them, exceed the pages that were touched.
    assert!(mapping.resident().unwrap() >= before + 2 * page || before == 64 * page);
    assert!(mapping.resident().unwrap() <= 64 * page);
}

#[test]
fn slices_know_where_they_are() {
    let file = SharedFile::create("two", 8192, Pages::Ordinary).unwrap();
    let one = Mapping::new(file.fd(), 4096, 0).unwrap();
    let other = Mapping::new(file.fd(), 4096, 4096).unwrap();
    assert_eq!(one.offset_of(&one.slice(100, 50).unwrap()), Some(100));
    assert_eq!(one.offset_of(&one.slice(4096, 0).unwrap()), Some(4096));
    assert_eq!(one.offset_of(&other.slice(100, 50).unwrap()), None);
    assert_eq!(other.offset_of(&one.slice(100, 50).unwrap()), None);
}

/// CVE-2023-41051 (vm-memory): accessors did not check offset and length.
#[test]
fn access_beyond_a_slice() {
    let memory = memory(&[(0, 8192)]);
    let slice = memory.slice(0, 100).unwrap();
    let other = memory.slice(4096, 99).unwrap();
    let panics = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
    for at in [93, 99, 100, 4096, u32::MAX - 7, u32::MAX] {
        assert!(panics(&|| _ = slice.read::<8>(at)), "read at {at}");
        assert!(panics(&|| slice.write(at, [1; 8])), "write at {at}");
        assert!(slice.atomic_u16(at).is_none() || at < 99, "atomic at {at}");
        assert!(slice.atomic_u8(at).is_none() || at < 100, "atomic at {at}");
        assert!(slice.skip(at).len() <= 7, "skip {at}");
    }
    assert!(panics(&|| slice.copy_from(other, 100)) && panics(&|| other.copy_from(slice, 100)));
    assert_eq!(slice.write_bytes(&[9; 200]), 100);
    assert_eq!(memory.slice(100, 1).unwrap().read(0), [0]);
    assert!(slice.aligned_array::<u64>(13).is_none());
    assert_eq!(slice.atomics_u64().unwrap().len(), 12);
}

/// Keeps the pages it is given until it is dropped.
#[derive(Debug, Default)]
struct Collector(Mutex<Vec<MappedPages>>);

impl Unmapper for Collector {
    fn unmap(&self, pages: MappedPages) {
        self.0.lock().unwrap().push(pages);
    }
}

#[test]
fn a_mapping_is_unmapped_where_it_is_wanted() {
    let size = 40 << 20;
    let file = SharedFile::create("memory", size, Pages::Ordinary).unwrap();
    let kept = Arc::new(Collector::default());
    let mapping = Mapping::new(file.fd(), size, 0).unwrap().unmapped_by(kept.clone());
    mapping.slice(size - 1, 1).unwrap().write(0, [7]);
    let address = mapping.address();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.starts_with(&format!("{address:x}-")))
    };
    drop(Arc::new(mapping));
    assert!(is_mapped(), "nothing is unmapped in this thread");
    kept.0.lock().unwrap().clear();
    assert!(!is_mapped());
    assert_eq!(file.mapping().slice(size - 1, 1).unwrap().read::<1>(0), [7], "the file has it");
}

#[test]
fn descriptors_beside_bytes_are_received_and_not_closed() {
    use std::os::unix::net::UnixStream;
    let (ours, theirs) = UnixStream::pair().unwrap();
    let memory = SharedFile::create("memory", 4096, Pages::Ordinary).unwrap();
    let room = memory.mapping().slice(0, 64).unwrap();
    let send = |count: usize| {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = vec![memory.fd(); count];
        assert!(count == 0 || control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(b"bytes")];
        rustix::net::sendmsg(&theirs, &bytes, &mut control, SendFlags::empty()).unwrap();
    };
    assert_eq!(io::receive(ours.as_fd(), room).unwrap_err(), Errno::AGAIN);
    for count in [0, 1, 2, 253] {
        send(count);
        let io::Received { bytes, fds, fds_truncated } = io::receive(ours.as_fd(), room).unwrap();
        assert_eq!((bytes, fds.len(), fds_truncated), (5, count, false));
        assert_eq!(room.read::<5>(0), *b"bytes");
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert!(fds.iter().all(|fd| inode(fd.as_fd()) == inode(memory.fd())));
        let is_closed_on_exec = |fd: &OwnedFd| {
            rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
        };
        assert!(fds.iter().all(is_closed_on_exec));
    }
    drop(theirs);
    assert_eq!(io::receive(ours.as_fd(), room).unwrap().bytes, 0);
}

#[test]
fn there_is_room_for_more_mappings_than_one_nic_needs() {
    let file = SharedFile::create("many", 4096, Pages::Ordinary).unwrap();
    let map = |_| Mapping::new(file.fd(), 4096, 0).unwrap();
    let many: Vec<Mapping> = (0..20_000).map(map).collect();
    assert!(guard::mappings() >= many.len());
    let bytes = [7; 4];
    many.last().unwrap().slice(0, 4).unwrap().write_bytes(&bytes);
    drop(many);
}

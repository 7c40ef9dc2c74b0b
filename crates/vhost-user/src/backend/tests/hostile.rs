//! Messages with one error each: they fail, and change nothing.

use std::fs::File;

use super::*;

/// The payload of the right size for each request that is served, with no descriptor flag set.
fn valid_size(request: Request) -> (usize, usize) {
    use Request::*;
    match request {
        SetMemTable => (8 + 32, 1),
        AddMemReg => (40, 1),
        SetLogBase => (16, 1),
        SetBackendReqFd => (0, 1),
        GetInflightFd => (24, 0),
        SetInflightFd => (24, 1),
        SetDeviceStateFd => (8, 1),
        CheckDeviceState => (0, 0),
        RemMemReg => (40, 0),
        SetVringAddr => (40, 0),
        SetVringKick | SetVringCall | SetVringErr => (8, 1),
        GetConfig | SetConfig => (12 + 1, 0),
        GetFeatures | SetOwner | ResetOwner | GetProtocolFeatures | GetQueueNum | ResetDevice
        | GetMaxMemSlots | GetStatus => (0, 0),
        _ => (8, 0),
    }
}

fn zeroes(request: Request, size: usize, fds: usize) -> Message {
    let mut payload = vec![0u8; size];
    match request {
        Request::SetMemTable if size >= 8 => payload[0] = 1,
        Request::GetConfig | Request::SetConfig if size >= 12 => payload[4] = 1,
        _ => {}
    }
    message(request, &payload[..], fds)
}

/// CVE-2022-0669 (DPDK): messages brought descriptors that nothing closed.
#[test]
fn unexpected_message_descriptors() {
    let served = Request::ALL.iter().copied().filter(|&request| is_served(request));
    for request in served {
        let (size, fds) = valid_size(request);
        let mut session = Session::ready();
        for wrong in [0, 1, 4, 7, 9, size.saturating_sub(1), size + 1, size + 32, 4096] {
            if wrong == size {
                continue;
            }
            let reason = session.fail(zeroes(request, wrong, fds));
            assert!(matches!(reason, Reason::PayloadSize { .. }), "{request:?} {wrong}: {reason}");
        }
        for wrong in 0..=8 {
            let excused = request == Request::RemMemReg && wrong == 1;
            if wrong == fds || excused {
                continue;
            }
            let reason = session.fail(zeroes(request, size, wrong));
            let expected = Reason::FdCount { expected: fds, got: wrong };
            assert_eq!(reason, expected, "{request:?}");
        }
    }
}

#[test]
fn replies_and_unknown_requests_are_errors() {
    let mut session = Session::ready();
    let mut reply = message(Request::SetOwner, &[0u8; 0], 0);
    reply.flags = Flags::REPLY | Flags::NEED_REPLY;
    assert_eq!(session.fail(reply), Reason::IsReply);
    for code in [0, 45, u32::MAX] {
        let mut unknown = message(Request::SetOwner, &[0u8; 0], 0);
        unknown.request = code;
        assert_eq!(session.fail(unknown), Reason::UnknownRequest);
    }
}

/// QEMU issue 1309: a queue that does not exist was enabled.
#[test]
fn ring_index_beyond_the_queues() {
    let mut session = Session::ready();
    let no_ring = Reason::NoSuchRing { index: 4, rings: 4 };
    for request in [
        Request::SetVringNum,
        Request::SetVringBase,
        Request::GetVringBase,
        Request::SetVringEnable,
    ] {
        assert_eq!(session.fail(message(request, &state(4, 1), 0)), no_ring);
    }
    assert_eq!(session.fail(message(Request::SetVringAddr, &addresses(4), 0)), no_ring);
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        assert_eq!(session.fail(message(request, &4u64, 1)), no_ring);
    }
}

#[test]
fn rings_are_checked() {
    let mut session = Session::ready();
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        let reason = session.fail(message(request, &0x200u64, 1));
        assert_eq!(reason, Reason::VringFdBits(0x200));
    }
    for size in [0, 3, 65536, u32::MAX] {
        let reason = session.fail(message(Request::SetVringNum, &state(0, size), 0));
        assert_eq!(reason, Reason::RingSize { index: 0, size });
    }
    let reason = session.fail(message(Request::SetVringBase, &state(0, 65536), 0));
    assert_eq!(reason, Reason::RingBase { index: 0, base: 65536 });
    let reason = session.fail(message(Request::SetVringEnable, &state(0, 2), 0));
    assert_eq!(reason, Reason::NotABoolean { index: 0, value: 2 });
}

/// CVE-2020-10723 (DPDK): an index was checked after it had lost its upper bits.
#[test]
fn index_truncation() {
    let mut session = Session::ready();
    for index in [0x1_0000, 0x1_0001, 0x100, 0x8000_0000, u32::MAX] {
        let no_ring = Reason::NoSuchRing { index, rings: 4 };
        for request in [
            Request::SetVringNum,
            Request::SetVringBase,
            Request::GetVringBase,
            Request::SetVringEnable,
        ] {
            assert_eq!(session.fail(message(request, &state(index, 1), 0)), no_ring);
        }
        assert_eq!(session.fail(message(Request::SetVringAddr, &addresses(index), 0)), no_ring);
        let number = u64::from(index) << 16;
        for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
            let reason = session.fail(message(request, &number, 1));
            assert_eq!(reason, Reason::VringFdBits(number), "{request:?}");
        }
    }
}

/// CVE-2023-6693, CVE-2024-6505 (QEMU): a header or an index overflowed.
#[test]
fn hash_report_and_rss_without_an_offer() {
    let rejected = Features::HASH_REPORT | Features::RSS | Features::RSC_EXT;
    for bit in rejected.iter() {
        let mut session = Session::ready();
        let reason = session.fail(message(Request::SetFeatures, &(OFFERED | bit.bits()), 0));
        assert_eq!(reason, Reason::FeaturesNotOffered(bit.bits()));
    }
}

/// CVE-2023-50711 (vmm-sys-util): a header announced more entries than were there.
#[test]
fn count_beyond_its_payload() {
    let mut session = Session::ready();
    for count in [2u32, 7, 8, 9, 0x800_0000, u32::MAX] {
        let mut few = table(&[region(0x8000, 0x1000)]);
        few.payload[..4].copy_from_slice(&count.to_ne_bytes());
        let reason = session.fail(few);
        let fits = matches!(reason, Reason::PayloadSize { got: 40, .. });
        assert!(fits || reason == Reason::TooManyRegions { got: count }, "{count}: {reason}");
    }
    for size in [2u32, 256, u32::MAX - 11, u32::MAX] {
        let mut config = zeroes(Request::GetConfig, 12 + 1, 0);
        config.payload[4..8].copy_from_slice(&size.to_ne_bytes());
        let reason = session.fail(config);
        assert!(matches!(reason, Reason::PayloadSize { got: 13, .. }), "{size}: {reason}");
    }
}

#[test]
fn ring_addresses_are_checked() {
    let mut session = Session::ready();
    for (part, addr) in [
        ("descriptor table", VringAddr { desc: 0x1_0008, ..addresses(0) }),
        ("available ring", VringAddr { avail: 0x1_0001, ..addresses(0) }),
        ("used ring", VringAddr { used: 0x1_0002, ..addresses(0) }),
    ] {
        let reason = session.fail(message(Request::SetVringAddr, &addr, 0));
        assert!(reason.to_string().starts_with(part), "{reason}");
    }
    for flags in [2, 3, u32::MAX] {
        let addr = VringAddr { flags, ..addresses(0) };
        let reason = session.fail(message(Request::SetVringAddr, &addr, 0));
        assert_eq!(reason, Reason::RingFlags { index: 0, flags });
    }
}

#[test]
fn an_event_must_be_an_event() {
    let mut session = Session::ready();
    let (_, pipe) = std::io::pipe().unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let bad: [(OwnedFd, &str); 4] = [
        (pipe.into(), "pipe:["),
        (File::open("/dev/null").unwrap().into(), "/dev/null"),
        (epoll, "anon_inode:[eventpoll]"),
        // A file with this name cannot pass for an eventfd.
        (tempfile::Builder::new().tempfile().unwrap().into_file().into(), "/"),
    ];
    for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
        for (fd, name) in &bad {
            let mut call = message(request, &0u64, 0);
            call.fds.push(fd.try_clone().unwrap().into());
            let reason = session.fail(call);
            let Reason::NotAnEvent { kind } = &reason else { panic!("{name}: {reason}") };
            assert!(kind.starts_with(name), "{kind}");
            assert!(reason.to_string().starts_with("the file descriptor must be an eventfd"));
        }
        let mut call = message(request, &0u64, 0);
        call.fds.push(event().into());
        session.done(call);
    }
}

#[test]
fn an_event_is_made_non_blocking() {
    let mut session = Session::ready();
    session.set_up(0, 0);
    session.enable(0, true);
    let ring = session.device.ring(0).unwrap();
    for fd in [&ring.kick, &ring.call, &ring.err] {
        let flags = rustix::fs::fcntl_getfl(fd.as_ref().unwrap()).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    }
}

#[test]
fn regions_are_checked() {
    let mut session = Session::ready();
    let top = u64::MAX - 0xfff;
    let with =
        |user_addr, mmap_offset| RegionPayload { user_addr, mmap_offset, ..region(0x8000, 0x1000) };
    let bad = [
        region(0x8000, 0),
        RegionPayload { guest_addr: top, user_addr: 0, size: 0x1000, mmap_offset: 0 },
        with(top, 0),
        with(0, top),
        region(0x0fff, 0x1000),
    ];
    for region in bad {
        // With a valid one, in either order, and alone to be added.
        let good = super::region(0, 0x1000);
        assert!(matches!(session.fail(table(&[good, region])), Reason::BadRegion { .. }));
        assert!(matches!(session.fail(table(&[region, good])), Reason::BadRegion { .. }));
        let single = SingleRegion { padding: 0, region };
        let reason = session.fail(message(Request::AddMemReg, &single, 1));
        assert!(matches!(reason, Reason::BadRegion { .. }), "{reason}");
    }
    let many: Vec<_> = (0..9).map(|at| region(at * 0x1000, 0x1000)).collect();
    assert_eq!(session.fail(table(&many)), Reason::TooManyRegions { got: 9 });
    assert_eq!(session.device.regions().len(), 1, "nothing was kept");
    assert_eq!(session.device.calls().memory, 1, "the device was not even asked");
    let two_views = RegionPayload { guest_addr: 0x1000, ..region(0, 0x1000) };
    session.done(table(&[region(0, 0x1000), two_views]));
}

//! Limits: resources that one front-end may take from others, and a process without further
//! threads.

use std::fs::{DirEntry, File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{Client, ClientError, Method};
use engine::{Fabric, IdlePolicy, LaneSpec};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use vhost_user::SharedRegion;
use vhost_user::testing::{drain, lingering};

use crate::blocking::{send_beside, send_stray};
use crate::guest::*;
use crate::honest::HonestPair;
use crate::host::*;

const MIB: u64 = 1 << 20;

/// A sparse file.
fn sparse(size: u64) -> OwnedFd {
    let file = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, size).unwrap();
    file
}

/// Shares a sparse region, the `n`th of its guest; returns `true` if accepted.
fn add_sparse(guest: &mut Guest, n: u64, size: u64) -> bool {
    let file = sparse(size);
    let at = (n + 1) << 47;
    let region =
        SharedRegion { guest_addr: at, size, user_addr: at, mmap_offset: 0, fd: file.as_fd() };
    guest.frontend().add_region(&region).is_ok()
}

/// Waits until a port has met a limit: counted, and an event of the port.
fn wait_for_limit(host: &Host, port: &str, name: &str) {
    until(&format!("{port} to meet {name}"), || {
        let stats = host.stats();
        let limit = stats.limits.iter().find(|limit| limit.name == name).expect("a limit");
        limit.refused > 0
    });
    let (subject, text) = (format!("port {port}"), format!("met its limit {name}: "));
    let is = |event: &api::Event| {
        event.kind == api::EventKind::Limit
            && event.subject == subject
            && event.text.starts_with(&text)
    };
    let events = host.events(0).events;
    assert!(events.iter().any(is), "{events:?}");
}

/// The use of a limited resource, and its limit.
fn used(host: &Host, name: &str) -> (u64, u64) {
    let stats = host.stats();
    let limit = stats.limits.iter().find(|limit| limit.name == name).expect("a limit");
    (limit.used, limit.allowed)
}

/// A front-end that has negotiated, and shares nothing yet.
fn front_end(host: &Host, socket: &str) -> Guest {
    let mut guest = Guest::new();
    guest.reach(&host.socket(socket));
    guest.negotiate();
    guest
}

#[test]
fn no_front_end_takes_all_addresses() {
    alone("limits::no_front_end_takes_all_addresses", || {
        let host = Host::start(TWO);
        let pair = HonestPair::start(&host);
        drop(front_end(&host, "uplink")); // creates what is allocated once
        let before = Resources::now();
        let mut bad = front_end(&host, "uplink");
        // The whole address space of a process, 2^47: half of the remainder each time, down to 2
        // MiB.
        let mut taken = Vec::new();
        for size in (21..47).rev().map(|bit| 1 << bit) {
            while taken.len() < 64 && add_sparse(&mut bad, taken.len() as u64, size) {
                taken.push(size);
            }
        }
        println!("{} regions of {} MiB were taken", taken.len(), taken.iter().sum::<u64>() / MIB);
        let (mut a, b, _) = pair.stop();
        assert!(add_sparse(&mut a, 0, 64 * MIB), "an honest guest's 64 MiB are refused");
        let log = sparse(1 << 46);
        assert!(bad.frontend().set_log(log.as_fd(), 1 << 46, 0).is_err(), "its log is mapped");
        drop(log);
        let said = "n/uplink: ADD_MEM_REG (37): refused by the device: this session would map 70368744177664 bytes";
        host.log.wait_for(said);
        host.log.wait_for("raise limits.session_memory_mib and restart the daemon");
        wait_for_limit(&host, "n/uplink", "session_memory");
        let pair = HonestPair::with(a, b);
        drop(bad);
        pair.wait_for_progress(100);
        // The honest guest's new region adds a mapping and a descriptor.
        let Resources { descriptors, threads, mappings } = before;
        let before = Resources { descriptors: descriptors + 1, threads, mappings: mappings + 1 };
        before.wait_for_return();
        pair.stop();
    });
}

#[test]
fn all_front_ends_together_have_a_limit() {
    let limits = "[limits]\nsession_memory_mib = 64\nguest_memory_mib = 100\n";
    let host = Host::start(&format!("{limits}{TWO}"));
    let [mut one, mut other] = ["vf0", "vf1"].map(|socket| front_end(&host, socket));
    assert!(add_sparse(&mut one, 0, 60 * MIB) && add_sparse(&mut one, 1, 4 * MIB));
    assert!(!add_sparse(&mut one, 2, 4096));
    host.log.wait_for(
        "n/vf0: ADD_MEM_REG (37): refused by the device: this session would map 67112960 bytes",
    );
    assert!(!add_sparse(&mut other, 0, 40 * MIB));
    host.log.wait_for(
        "n/vf1: ADD_MEM_REG (37): refused by the device: all sessions map 67108864 bytes of at most 100 MiB",
    );
    host.log.wait_for("other guests, or raise limits.guest_memory_mib and restart the daemon");
    wait_for_limit(&host, "n/vf1", "guest_memory");
    assert!(add_sparse(&mut other, 0, 36 * MIB));
    until("the use to be shown", || {
        [used(&host, "session_memory"), used(&host, "guest_memory")]
            == [(64 * MIB, 64 * MIB), (100 * MIB, 100 * MIB)]
    });
    // The quota of a session is returned at its end.
    drop(one);
    until("memory to be given back", || add_sparse(&mut other, 1, 28 * MIB));
}

#[test]
fn a_front_end_has_a_number_of_regions() {
    let host = Host::start(TWO);
    let (mut guest, file) = (front_end(&host, "vf0"), sparse(4096));
    for n in 0..guestmem::REGIONS_MAX as u64 {
        guest.frontend().add_region(&page(&file, n)).unwrap();
    }
    until("the use to be shown", || used(&host, "session_regions") == (64, 64));
    guest.frontend().add_region(&page(&file, 64)).unwrap_err();
    wait_for_limit(&host, "n/vf0", "session_regions");
}

/// A page of a file, the `n`th region of its guest.
fn page(file: &OwnedFd, n: u64) -> SharedRegion<'_> {
    let at = (n + 1) << 20;
    SharedRegion { guest_addr: at, size: 4096, user_addr: at, mmap_offset: 0, fd: file.as_fd() }
}

#[test]
fn a_session_ends_if_too_much_waits_to_be_closed() {
    let host = Host::start(TWO);
    let (slow, peer) = lingering();
    send_stray(&host, "uplink", vec![slow]); // the socket's thread waits until the peer reads
    let mut bad = front_end(&host, "uplink");
    // Removing a region closes its file and unmaps it.
    let file = sparse(4096);
    let mut replace = || {
        let (region, frontend) = (page(&file, 0), bad.frontend());
        frontend.add_region(&region).is_ok() && frontend.remove_region(&region).is_ok()
    };
    let served = (0..100).take_while(|_| replace()).count();
    assert!((30..40).contains(&served), "{served} regions were replaced");
    wait_for_limit(&host, "n/uplink", "session_calls");
    drain(peer);
}

#[test]
fn a_front_end_that_no_descriptor_is_left_for_is_told_so() {
    alone("limits::a_front_end_that_no_descriptor_is_left_for_is_told_so", || {
        let host = Host::start(TWO);
        let pair = HonestPair::start(&host);
        let mut bad = front_end(&host, "uplink");
        let file = sparse(4096);
        let mut limit = getrlimit(Resource::Nofile);
        let before = limit.current;
        // The lowest free descriptor is the one above the limit.
        limit.current = Some(file.try_clone().unwrap().as_raw_fd() as u64);
        setrlimit(Resource::Nofile, limit).unwrap();
        let shared = bad.frontend().add_region(&page(&file, 0));
        limit.current = before;
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(shared.is_err(), "its descriptor has arrived");
        wait_for_limit(&host, "n/uplink", "descriptors");
        pair.wait_for_progress(100);
        pair.stop();
    });
}

#[test]
fn a_document_that_needs_more_descriptors_than_there_are_is_rejected() {
    alone("limits::a_document_that_needs_more_descriptors_than_there_are_is_rejected", || {
        let host = Host::start(TWO);
        // The hard limit: the daemon has raised its soft limit to it.
        let few = Rlimit { current: Some(100), maximum: Some(100) };
        setrlimit(Resource::Nofile, few).unwrap();
        let adapters = |n: u32| {
            let adapter = |i: u32| {
                let socket = host.socket(&format!("a{i}"));
                let mac = format!("02:00:00:00:10:{i:02x}");
                json!({"name": format!("a{i}"), "switch": "s", "mac": mac, "attachment": {"socket": socket}})
            };
            (0..n).map(adapter).collect::<Vec<_>>()
        };
        let client = Client::new(&host.socket("api.sock"));
        let apply = |n| {
            let document = json!({"version": 1, "switch": [{"name": "s", "nic": "n"}], "adapter": adapters(n)});
            client.send(Method::POST, "/v1/apply", Some(&document), None)
        };
        let Err(ClientError::Refused(refusal)) = apply(200) else { panic!("it is accepted") };
        let text = refusal.body.to_string();
        assert!(
            text.contains("attachment: cannot be served: lanes and all ports need at least 2"),
            "{text}"
        );
        assert!(text.contains("open files, the daemon may have 100; raise ulimit -Hn"), "{text}");
        assert_eq!(refusal.status, 409);
        assert!(!host.socket("a0").exists(), "nothing is opened");
        // Each of these states needs another number; only the first is told.
        (1..4).for_each(|n| drop(apply(n).unwrap()));
        let warnings = || {
            let events = host.events(0).events;
            let text = "guests of all ports together can make the daemon need";
            let is = |event: &&api::Event| {
                event.text.starts_with(text) && event.text.contains("open files")
            };
            events.iter().filter(is).count()
        };
        assert_eq!(warnings(), 1);
    });
}

/// Amounts of open files, mappings and threads in a row of docs/limits.md, the least and the most.
fn counted(user: &str) -> [[usize; 2]; 3] {
    let page = include_str!("../../../../docs/limits.md");
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {user} | ")));
    let mut cells = row.expect("a row of the table").split(" | ").map(|cell| {
        let (least, most) = cell.trim_end_matches(" |").split_once(" to ").expect("a range");
        [least, most].map(|number| number.parse().unwrap())
    });
    [(); 3].map(|()| cells.next().expect("a cell"))
}

#[test]
fn a_front_end_opens_no_more_files_than_its_port_is_counted_with() {
    alone("limits::a_front_end_opens_no_more_files_than_its_port_is_counted_with", || {
        let host = Host::start(TWO);
        let files = |n| (0..n).map(|_| File::open("/dev/null").unwrap().into()).collect();
        drop(front_end(&host, "uplink")); // creates what is allocated once
        let before = Resources::now().descriptors;
        let (slow, peer) = lingering();
        send_stray(&host, "uplink", vec![slow]); // the socket's thread waits until the peer reads
        (0..6).for_each(|_| send_stray(&host, "uplink", files(8)));
        // A message has eight descriptors; the kernel passes 253 with its next byte.
        let mut stream = UnixStream::connect(host.socket("uplink")).unwrap();
        for n in [8, 253] {
            send_beside(&stream, &[0], &files(n));
        }
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it is hung up on");
        drop(stream);
        // The peer of the slow socket is the test's.
        let open = Resources::now().descriptors - before - 1;
        let [[_, most], ..] = counted("vhost-user, one queue pair");
        println!("{open} open files, {most} are counted");
        assert!(open > 48 + 8 + 253 && open <= most, "{open} open files, {most} are counted");
        drain(peer);
    });
}

#[test]
fn a_lane_uses_no_more_than_it_is_counted_with() {
    alone("limits::a_lane_uses_no_more_than_it_is_counted_with", || {
        const MORE: usize = 8;
        let idle = IdlePolicy { poll: Duration::ZERO, yielding: Duration::ZERO, sleep: true };
        let used = |lanes| {
            let fabric = Fabric::start(&vec![LaneSpec { cpu: None, idle }; lanes], None).unwrap();
            let is_status = |fd: &std::io::Result<DirEntry>| {
                let link = std::fs::read_link(fd.as_ref().unwrap().path());
                link.is_ok_and(|link| link.starts_with("/proc") && link.ends_with("stat"))
            };
            until("all lanes, and that of the quarantine, to run", || {
                std::fs::read_dir("/proc/self/fd").unwrap().filter(is_status).count() == lanes + 1
            });
            let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
            let Resources { descriptors, threads, .. } = Resources::now();
            let used = [descriptors, maps(), threads];
            drop(fabric);
            used
        };
        used(1); // creates what is allocated once
        let (few, many) = (used(1), used(1 + MORE));
        assert_eq!(many[0] - few[0], MORE * counted("a lane")[0][1]);
        for (at, [_, most]) in counted("a lane").into_iter().enumerate() {
            let more = many[at] - few[at];
            println!("{MORE} lanes use {more} more, {most} each are counted");
            assert!(more > 0 && more <= MORE * most, "{more} for {MORE} lanes, not {most} each");
        }
    });
}

/// A local address without a listener.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Connections without a token, with half a request, or one with a key twice.
#[test]
fn strangers_of_the_api_disturb_no_guest_and_leave_nothing_open() {
    alone("limits::strangers_of_the_api_disturb_no_guest_and_leave_nothing_open", || {
        const TOKEN: &str = "0123456789abcdef";
        let address = free_address();
        let mut host = Host::with(|dir| {
            let token_file = dir.join("token");
            std::fs::write(&token_file, TOKEN).unwrap();
            std::fs::set_permissions(&token_file, Permissions::from_mode(0o600)).unwrap();
            let token_file = token_file.display();
            let api = format!("[api]\ntcp = \"{address}\"\ntoken_file = \"{token_file}\"\n");
            config(dir, &format!("{api}{TWO}"))
        });
        host.restart();
        let pair = HonestPair::start(&host);
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        };
        let known = format!(
            "GET /v1/nics HTTP/1.1\r\nHost: shunt\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        assert_eq!(ask(&known), "HTTP/1.1 200"); // creates what is allocated once
        assert!(host.events(0).last > 0);
        let before = Resources::now();
        for _ in 0..3 {
            let strangers: Vec<TcpStream> = (0..100)
                .map(|n| {
                    let mut stream = TcpStream::connect(address).unwrap();
                    let half =
                        ["", "GET /v1/st", "GET /v1/nics HTTP/1.1\r\nHost: shunt\r\n\r\n"][n % 3];
                    stream.write_all(half.as_bytes()).unwrap();
                    stream
                })
                .collect();
            assert_eq!(ask(&known), "HTTP/1.1 200");
            drop(strangers);
            let body = r#"{"version":1,"nic":[],"nic":[]}"#;
            let twice = format!(
                "PUT /v1/state HTTP/1.1\r\nHost: shunt\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
                 application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            assert_eq!(ask(&twice), "HTTP/1.1 400");
            pair.wait_for_progress(100);
        }
        before.wait_for_return();
        println!("longest time between two rounds of the lane: {:?}", host.longest_poll_gap());
        pair.stop();
    });
}

/// Threads that block until released.
struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Uses up this process's limit of threads.
    ///
    /// Stacks of ended threads are reused (glibc keeps up to 40 MiB of them), so these threads take
    /// them all first, while there is room. A thread that gets a stack and then fails to allocate
    /// anything else ends the process.
    fn exhaust() -> Threads {
        const KEPT_STACKS: usize = 40;
        let running = Arc::new(Barrier::new(KEPT_STACKS + 1));
        let park = || {
            let running = Arc::clone(&running);
            std::thread::spawn(move || {
                running.wait();
                std::thread::park();
            })
        };
        let threads = Threads(std::iter::repeat_with(park).take(KEPT_STACKS).collect());
        running.wait();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        let mut limit = getrlimit(Resource::As);
        limit.current = Some(kib * 1024 + MIB);
        setrlimit(Resource::As, limit).unwrap();
        let another = std::thread::Builder::new().spawn(|| {});
        assert!(another.is_err(), "there is no room for a thread of 2 MiB");
        threads
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut limit = getrlimit(Resource::As);
        limit.current = limit.maximum;
        setrlimit(Resource::As, limit).unwrap();
        for thread in self.0.drain(..) {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}

#[test]
fn the_api_is_served_where_no_thread_is_to_be_had() {
    alone("limits::the_api_is_served_where_no_thread_is_to_be_had", || {
        let host = Host::start(TWO);
        let client = host.client();
        let get = |path| client.send(Method::GET, path, None::<&Value>, None);
        let threads = Threads::exhaust();
        let replies = [(); 3].map(|()| get("/v1/state").map(|reply| reply.body["version"].clone()));
        drop(threads);
        for reply in replies {
            assert!(reply.as_ref().is_ok_and(|version| !version.is_null()), "{reply:?}");
        }
    });
}

#[test]
fn a_session_without_a_thread_or_addresses_meets_a_limit() {
    alone("limits::a_session_without_a_thread_or_addresses_meets_a_limit", || {
        let host = Host::start(TWO);
        let mut bad = front_end(&host, "uplink");
        let idle = "the session's thread to end";
        until(idle, || !threads_named("closer"));
        let (small, large) = (sparse(4096), sparse(64 * MIB));
        let region = |file: &OwnedFd, at, size| -> bool {
            let fd = file.as_fd();
            let region = SharedRegion { guest_addr: at, size, user_addr: at, mmap_offset: 0, fd };
            bad.frontend().add_region(&region).is_ok()
        };
        let mut region = region;
        let threads = Threads::exhaust();
        let accepted = [region(&large, 0, 64 * MIB), region(&small, 1 << 40, 4096)];
        drop(threads);
        assert_eq!(accepted, [false, true]);
        wait_for_limit(&host, "n/uplink", "mappings");
        wait_for_limit(&host, "n/uplink", "threads");
    });
}

/// Returns `true` if a thread of this process has the name.
fn threads_named(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|it| it.trim() == name)
}

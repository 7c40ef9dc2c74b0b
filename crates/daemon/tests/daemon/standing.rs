//! Front-ends that slow down accesses to their memory, or interrupts to their guest.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::{Event, EventKind};
use guestmem::{Pages, SharedFile};
use rustix::event::epoll;
use rustix::fs::FallocateFlags;
use vhost_user::Features;

use crate::guest::*;
use crate::honest::HonestPair;
use crate::host::*;

const AT_UPLINK: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Memory of the front-end in which holes are punched.
const HOLES: u64 = 256 << 20;
/// Its address in the guest.
const HOLES_GUEST: u64 = 8 << 32;
const PAGE: u64 = 4096;
/// Duration of each attack.
const ATTACK: Duration = Duration::from_secs(6);

/// A thread that runs until this is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn new() -> Attack {
        Attack { stop: Arc::default(), threads: Vec::new() }
    }

    fn run(&mut self, mut work: impl FnMut() + Send + 'static) {
        let stop = self.stop.clone();
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        }));
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Pages of that memory, each once per round.
fn pages() -> impl FnMut() -> u64 {
    let mut page = 0;
    move || {
        page = (page + 40_503) % (HOLES / PAGE);
        HOLES_GUEST + page * PAGE
    }
}

/// Memory that is repeatedly allocated and punched: faults wait for each punch to end.
fn punched(attack: &mut Attack) -> Arc<SharedFile> {
    let file = Arc::new(SharedFile::create("holes", HOLES, Pages::Ordinary).unwrap());
    let holes = file.clone();
    attack.run(move || {
        rustix::fs::fallocate(holes.fd(), FallocateFlags::empty(), 0, HOLES).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(holes.fd(), punch, 0, HOLES).unwrap();
    });
    file
}

/// Runs a test in a process of its own, with a daemon; checks at the end that all files of the
/// guests are closed. The lane has a CPU of its own if there are two, and the guests the other one.
fn attacked(test: &str, nics: &str, body: impl FnOnce(&Host)) {
    alone(&format!("standing::{test}"), || {
        let cpus = host::cpu::allowed();
        let mut host = Host::stopped(nics);
        if let [lane, .., guests] = cpus {
            host.config.lanes.cpus = vec![*lane];
            host::cpu::pin_this_thread(*guests).unwrap();
        }
        host.restart();
        let host = host;
        // Creates what is allocated once.
        HonestPair::start(&host).stop();
        assert!(host.events(0).last > 0);
        for port in ["n/vf0", "n/vf1"] {
            host.wait_for_rings(port, 0);
        }
        let before = Resources::now();
        body(&host);
        before.wait_for_return();
    });
}

/// Number of events about lanes blocked by this port whose texts begin with this.
fn quarantines(host: &Host, port: &str, text: &str) -> u64 {
    let about = |event: &&Event| {
        event.kind == EventKind::Quarantine
            && event.subject == format!("port {port}")
            && event.text.starts_with(text)
    };
    host.events(0).events.iter().filter(about).count() as u64
}

/// Effect of an attack on the honest pair; prints it.
fn tell(host: &Host, what: &str, pair: HonestPair) {
    let gap_ms = host.longest_poll_gap().as_secs_f64() * 1e3;
    pair.stop();
    println!("{what}: longest time between two rounds of the lane {gap_ms:.2} ms");
    let lane = &host.stats().lanes[0].values;
    for ms in [1, 16, 64] {
        // Bucket i holds rounds of 2^(i-1) cycles and more, so some slightly above are left out.
        let least = ms * lane["tsc_hz"] / 1000;
        let is_long = |i: &usize| 1_u64 << i >> 1 >= least;
        let count = |i: usize| lane[&format!("busy_round_cycles_log2_{i}")];
        let rounds: u64 = (0..32).filter(is_long).map(count).sum();
        println!("{what}: {rounds} busy rounds of {ms} ms and more");
    }
    for name in ["n/vf0", "n/vf1"] {
        let port = host.port(name);
        println!("{name}: {} quarantines, drops {:?}", port.quarantines, port.drops);
    }
}

#[test]
fn a_sender_whose_memory_stalls_is_served_off_the_lanes() {
    attacked("a_sender_whose_memory_stalls_is_served_off_the_lanes", TWO, |host| {
        let [mut bad] = host.guests(["uplink"]);
        let pair = HonestPair::start(host);
        let mut attack = Attack::new();
        let file = punched(&mut attack);
        bad.add_file(&file, HOLES_GUEST);
        let mut page = pages();
        attack.run(move || {
            // Frames from a hole are dropped, but each must be read to be classified.
            for _ in bad.in_flight()..32 {
                bad.post_at(page(), 72);
            }
            std::thread::sleep(Duration::from_micros(50));
        });
        host.log.wait_for("n/uplink: its memory blocks lane 0 by a page fault");
        std::thread::sleep(ATTACK);
        pair.wait_for_progress(1000);
        let count = host.port("n/uplink").quarantines;
        println!("n/uplink: {count} quarantines in {ATTACK:?}");
        assert!((1..=3).contains(&count), "the quiet time grows");
        for name in ["n/vf0", "n/vf1"] {
            assert_eq!(host.port(name).quarantines, 0, "{name}");
        }
        drop(attack);
        host.log.wait_for("n/uplink: its rings are served by lanes again");
        until("an event for each", || {
            quarantines(host, "n/uplink", "its memory") == host.port("n/uplink").quarantines
        });
        tell(host, "holes that are sent", pair);
    });
}

/// A third VF, whose guest sends to the uplink.
fn three() -> String {
    format!(
        "{TWO}\n    [[nic.vf]]\n    mac = \"02:00:00:00:00:03\"\n    attachment.socket = \"vf2\"\n"
    )
}

#[test]
fn a_receiver_whose_memory_stalls_is_served_off_the_lanes() {
    attacked("a_receiver_whose_memory_stalls_is_served_off_the_lanes", &three(), |host| {
        let [mut bad, mut sender] = host.guests(["uplink", "vf2"]);
        let pair = HonestPair::start(host);
        let mut attack = Attack::new();
        let file = punched(&mut attack);
        bad.add_file(&file, HOLES_GUEST);
        let mut page = pages();
        attack.run(move || {
            for i in sender.in_flight()..32 {
                sender.send(&frame(AT_UPLINK, mac(2), i as u32));
            }
            bad.repost(&mut page);
            std::thread::sleep(Duration::from_micros(50));
        });
        host.log.wait_for("n/uplink: its memory");
        std::thread::sleep(ATTACK);
        pair.wait_for_progress(1000);
        for name in ["n/vf2", "n/uplink"] {
            println!("{name}: {} quarantines in {ATTACK:?}", host.port(name).quarantines);
        }
        for name in ["n/vf0", "n/vf1"] {
            assert_eq!(host.port(name).quarantines, 0, "{name}");
        }
        drop(attack);
        host.log.wait_for("n/uplink: its rings are served by lanes again");
        tell(host, "holes that are filled", pair);
    });
}

/// Lets this many watchers watch an eventfd: 142 epoll instances watch each of 142 descriptors of
/// it.
fn watch(event: &OwnedFd) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    const SIDE: usize = 142;
    let copies: Vec<OwnedFd> = (0..SIDE).map(|_| event.try_clone().unwrap()).collect();
    let watcher = |_| {
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for copy in &copies {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&watcher, copy.as_fd(), data, epoll::EventFlags::IN).unwrap();
        }
        watcher
    };
    let watchers = (0..SIDE).map(watcher).collect();
    (copies, watchers)
}

#[test]
fn a_call_that_wakes_thousands_is_made_off_the_lanes() {
    attacked("a_call_that_wakes_thousands_is_made_off_the_lanes", TWO, |host| {
        let pair = HonestPair::start(host);
        // Without EVENT_IDX each burst sent asks for an interrupt.
        let mut bad = Guest::wanting(Features::VERSION_1 | Features::MRG_RXBUF);
        bad.connect(&host.socket("uplink"));
        let call = event();
        bad.set_call(TX, &call);
        bad.pair.tx.enable_notification();
        let watchers = watch(&call);
        let begin = Instant::now();
        rustix::io::write(&call, &1u64.to_ne_bytes()).unwrap();
        println!("one write to it takes {:?}", begin.elapsed());
        let mut attack = Attack::new();
        attack.run(move || {
            bad.send(&frame(mac(7), mac(8), 1));
            bad.settle();
        });
        host.log.wait_for("n/uplink: writes to its call eventfd took more than 1 ms in a second");
        std::thread::sleep(ATTACK);
        pair.wait_for_progress(1000);
        let port = host.port("n/uplink");
        println!("n/uplink: {} interrupts in {ATTACK:?}", port.notifies);
        assert_eq!(port.notifies_moved, 1);
        assert_eq!(quarantines(host, "n/uplink", "its interrupts are slow"), 1);
        assert_eq!(host.port("n/vf0").notifies_moved, 0);
        // They still reach the guest.
        let _ = rustix::io::read(&call, &mut [0; 8]);
        until("an interrupt", || is_signalled(&call));
        drop(attack);
        tell(host, "a call that many watch", pair);
        drop(watchers);
    });
}

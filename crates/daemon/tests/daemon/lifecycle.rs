//! Start, failed start, stop and restart of daemons.

use daemon::{Daemon, Launch, run};
use model::config::SourceFile;
use vhost_user::Features;

use crate::guest::Guest;
use crate::host::*;

/// Entries of a directory.
fn left_in(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|frame| number(frame)).collect()
}

#[test]
fn frames_posted_while_no_daemon_ran_arrive_when_one_does() {
    let mut host = Host::start(TWO);
    let [mut a, mut b, mut uplink] = host.guests(["vf0", "vf1", "uplink"]);
    a.send(&frame(mac(1), mac(0), 0));
    b.wait_for(1);
    for round in 0..3 {
        host.stop();
        until("its connection to be closed", || a.frontend().is_closed());
        for i in 0..50 {
            a.send(&frame(mac(1), mac(0), i));
            b.send(&frame(mac(0), mac(1), i));
            uplink.send(&frame(mac(1), [2, 9, 9, 9, 9, 9], 100 + i));
        }
        host.restart();
        // They return one by one; the senders before the receivers.
        let mut guests = [&mut a, &mut uplink, &mut b];
        guests.rotate_left(round);
        for (guest, socket) in guests.into_iter().zip({
            let mut sockets = ["vf0", "uplink", "vf1"];
            sockets.rotate_left(round);
            sockets
        }) {
            guest.connect(&host.socket(socket));
        }
        let to_b = numbers(&b.wait_for(100));
        let (from_a, from_uplink): (Vec<u32>, Vec<u32>) = to_b.into_iter().partition(|n| *n < 100);
        assert!(from_a.into_iter().eq(0..50) && from_uplink.into_iter().eq(100..150));
        assert!(numbers(&a.wait_for(50)).into_iter().eq(0..50));
        for port in host.stats().ports {
            assert!(port.drops.is_empty(), "{port:?}");
        }
    }
}

/// Frames both ways between two guests, in flight until received.
struct Load {
    guests: [Guest; 2],
    sent: [u32; 2],
    arrived: [u32; 2],
}

impl Load {
    /// Sends as many frames as the receivers have room for, and checks those received.
    fn turn(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            while self.sent[from] - self.arrived[to] < 180 {
                let (dst, src) = (mac(to as u8), mac(from as u8));
                self.guests[from].send(&frame(dst, src, self.sent[from]));
                self.sent[from] += 1;
            }
        }
        self.receive();
    }

    fn receive(&mut self) {
        for (guest, arrived) in self.guests.iter_mut().zip(&mut self.arrived) {
            for got in guest.receive() {
                assert_eq!(number(&got), *arrived, "lost, repeated or overtaken");
                *arrived += 1;
            }
        }
    }
}

#[test]
fn a_daemon_that_stops_under_load_loses_no_frame() {
    stop_under_load(|_| Guest::new());
}

/// A packed ring does not contain its position, so that is recorded.
#[test]
fn nor_does_it_on_packed_rings_whose_places_are_written_down() {
    let packed = Features::VERSION_1 | Features::EVENT_IDX | Features::RING_PACKED;
    let wishes = [packed, packed | Features::MRG_RXBUF];
    stop_under_load(|guest| Guest::wanting(wishes[guest]));
}

fn stop_under_load(guest: impl Fn(usize) -> Guest) {
    let mut host = Host::start(TWO);
    let guests = [(0, "vf0"), (1, "vf1")].map(|(at, socket)| {
        let mut guest = guest(at);
        guest.connect(&host.socket(socket));
        guest.keep_records();
        guest
    });
    let [mut uplink] = host.guests(["uplink"]);
    let mut load = Load { guests, sent: [0; 2], arrived: [0; 2] };
    for _ in 0..20 {
        let target = load.arrived.map(|arrived| arrived + 500);
        until("frames to flow", || {
            load.turn();
            load.arrived[0] > target[0] && load.arrived[1] > target[1]
        });
        host.stop_while(|| load.turn());
        host.restart();
        load.guests[0].connect(&host.socket("vf0"));
        load.guests[1].connect(&host.socket("vf1"));
        uplink.connect(&host.socket("uplink"));
    }
    load.guests.iter_mut().for_each(Guest::settle);
    load.receive();
    assert_eq!(load.arrived, [load.sent[1], load.sent[0]]);
}

#[test]
fn guests_that_stay_away_do_not_keep_others_waiting_for_long() {
    // No guest is at the uplink.
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
}

#[test]
fn a_daemon_whose_place_is_taken_says_so_and_changes_nothing() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let error = Daemon::start(&host.config).unwrap_err().to_string();
    assert!(error.contains("run_dir") && error.contains("in use by another daemon"), "{error}");
    // Even with a directory of its own, it finds the sockets in use.
    let mut other = host.config.clone();
    other.run_dir = host.path().join("other");
    let error = Daemon::start(&other).unwrap_err().to_string();
    assert!(error.contains("uplink") && error.contains("in use"), "{error}");
    assert!(!other.run_dir.join("counters").exists());
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    a.settle();
    until("the counters to say so", || host.port("n/vf0").tx_frames == 1);
}

#[test]
fn a_daemon_that_stopped_leaves_only_its_lock_and_state_behind() {
    let mut host = Host::start(TWO);
    assert!(host.socket("vf0").exists() && host.socket("counters").exists());
    host.stop();
    assert_eq!(left_in(host.path()), ["lock", "state"]);
    let error = api::stats::read(host.path()).unwrap_err().to_string();
    assert!(error.contains("does not run"), "{error}");
}

#[test]
fn what_keeps_a_daemon_from_starting_is_said_with_the_remedy() {
    let host = Host::stopped(TWO);
    let says = |config: &model::config::Config, texts: &[&str]| {
        let error = format!("{:#}", Daemon::start(config).unwrap_err());
        for text in texts {
            assert!(error.contains(text), "{error}");
        }
    };
    let mut bad = host.config.clone();
    bad.run_dir = "/proc/no".into();
    says(&bad, &["cannot create run_dir /proc/no", "choose another one"]);

    let mut bad = host.config.clone();
    let short = format!("vhost-user:{}", host.path().join("no/vf1").display());
    bad.state.adapters[1].attachment = serde_json::from_value(short.into()).unwrap();
    says(&bad, &["no/vf1", "create it first"]);

    let mut bad = host.config.clone();
    bad.lanes.cpus = vec![1023];
    says(&bad, &["cannot pin lane 0", "1023"]);

    // No socket or counter file of them is left.
    assert_eq!(left_in(host.path()), ["lock", "state"]);
}

#[test]
fn run_ends_at_a_signal() {
    let host = Host::stopped(TWO);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let config = host.config.clone();
    let launch = Launch {
        config: SourceFile::new("a test", ""),
        with_parent: false,
        sandbox: daemon::Sandbox::default(),
    };
    let daemon = std::thread::spawn(move || run(&config, launch, |_| ready.send(()).unwrap()));
    is_ready.recv_timeout(WAIT).unwrap();
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    let ourselves = rustix::process::getpid();
    rustix::process::kill_process(ourselves, rustix::process::Signal::TERM).unwrap();
    daemon.join().unwrap().unwrap();
    assert!(!host.socket("vf0").exists());
}

#[test]
fn a_handle_that_is_dropped_ends_the_daemon() {
    let host = Host::stopped(TWO);
    let (daemon, stop) = Daemon::start(&host.config).unwrap();
    drop(stop);
    daemon.serve().unwrap();
    assert!(!host.socket("vf0").exists());
}

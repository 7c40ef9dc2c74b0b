//! A front-end that migrates its guest: it copies the memory while frames flow, repeats logged
//! pages, and ends with all of it.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use guestmem::{LOG_PAGE, Pages, SharedFile};
use vhost_user::{Features, FrontendError};

use crate::guest::*;
use crate::host::*;

const PAGE: usize = LOG_PAGE as usize;

/// A copy of a guest's memory, and the log of pages to copy again.
struct Copy {
    bits: SharedFile,
    bytes: Vec<u8>,
}

impl Copy {
    /// Switches the log on, then copies everything.
    fn begin(guest: &mut Guest) -> Copy {
        let size = guest.log_size();
        let bits = SharedFile::create("log", size, Pages::Ordinary).unwrap();
        guest.frontend().set_log(bits.fd().as_fd(), size, 0).unwrap();
        guest.set_logging(true);
        Copy { bits, bytes: guest.bytes() }
    }

    /// Logged pages, by number; clears them in the log.
    fn take(&self) -> BTreeSet<usize> {
        let words = self.bits.mapping().slice(0, self.bits.mapping().size()).unwrap();
        let first = Guest::first_page();
        let mut pages = BTreeSet::new();
        for (at, word) in words.atomics_u64().unwrap().iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = word.swap(0, Ordering::AcqRel);
            let set = (0..64).filter(|bit| bits >> bit & 1 == 1);
            pages.extend(set.map(|bit| at * 64 + bit - first));
        }
        pages
    }

    /// Copies logged pages, and those that the guest itself may have written; returns the number of
    /// logged ones.
    fn again(&mut self, guest: &Guest) -> usize {
        let logged = self.take();
        for page in logged.union(&guest.own_pages()) {
            let range = page * PAGE..(page + 1) * PAGE;
            guest.read(range.start, &mut self.bytes[range]);
        }
        logged.len()
    }

    /// The last copy, of a guest whose rings are stopped; must be complete.
    fn end(mut self, guest: &Guest) {
        self.again(guest);
        assert_eq!(differing(&self.bytes, &guest.bytes()), [0usize; 0], "pages were not logged");
        assert!(self.take().is_empty(), "something was written although all rings stand");
    }
}

fn differing(one: &[u8], other: &[u8]) -> Vec<usize> {
    let pages = one.chunks(PAGE).zip(other.chunks(PAGE)).enumerate();
    pages.filter(|(_, (one, other))| one != other).map(|(page, _)| page).collect()
}

/// Sends `n` frames from `a` to `b`, and calls a hook in between.
fn send(
    a: &mut Guest,
    b: &mut Guest,
    n: u32,
    mut now_and_then: impl FnMut(&mut Guest, &mut Guest),
) {
    let (mut sent, mut next) = (0, 0);
    while next < n {
        while sent < n && sent - next < 180 {
            a.send(&frame(mac(1), mac(0), sent));
            sent += 1;
        }
        for got in b.receive() {
            assert_eq!(number(&got), next, "lost, repeated or overtaken");
            next += 1;
        }
        if next.is_multiple_of(8) {
            now_and_then(a, b);
        }
    }
}

/// Split and packed rings, with and without features that change how they are written.
fn kinds() -> [Features; 6] {
    let (least, packed) = (Features::VERSION_1, Features::VERSION_1 | Features::RING_PACKED);
    let more = Features::EVENT_IDX | Features::MRG_RXBUF | Features::INDIRECT_DESC;
    [
        least,
        least | more,
        least | Features::EVENT_IDX,
        packed,
        packed | more,
        packed | Features::EVENT_IDX,
    ]
}

fn guests(host: &Host, features: Features) -> [Guest; 2] {
    ["vf0", "vf1"].map(|socket| {
        let mut guest = Guest::wanting(features);
        guest.connect(&host.socket(socket));
        guest
    })
}

/// Frames carried by each kind of ring while its guests migrate.
const FRAMES: u32 = 170_000;

#[test]
fn a_million_frames_and_nothing_is_missing_in_the_copies() {
    for features in kinds() {
        let host = Host::start(TWO);
        let [mut a, mut b] = guests(&host, features);
        let (mut from, mut to) = (Copy::begin(&mut a), Copy::begin(&mut b));
        let mut logged = [0; 2];
        send(&mut a, &mut b, FRAMES, |a, b| {
            logged[0] += from.again(a);
            logged[1] += to.again(b);
        });
        for guest in [&mut a, &mut b] {
            guest.frontend().stop_ring(RX).unwrap();
            guest.frontend().stop_ring(TX).unwrap();
        }
        from.end(&a);
        to.end(&b);
        // The number of updates between two frames depends on the machine.
        assert!(logged[0] > 10 && logged[1] > 1000, "{logged:?}: nothing was shown");
    }
}

#[test]
fn a_log_that_comes_and_goes_under_load_loses_no_frame_and_no_page() {
    for features in kinds() {
        come_and_go(features);
    }
}

fn come_and_go(features: Features) {
    let host = Host::start(TWO);
    let [mut a, mut b] = guests(&host, features);
    let mut copy = None;
    let mut round = 0;
    send(&mut a, &mut b, 20_000, |a, b| {
        round += 1;
        match round % 6 {
            1 => copy = Some((Copy::begin(a), Copy::begin(b))),
            // A larger log, as when memory is added: the old one gets no more writes.
            3 => copy = Some((Copy::begin(a), Copy::begin(b))),
            5 => {
                a.set_logging(false);
                b.set_logging(false);
                let (from, to) = copy.take().expect("it was switched on");
                from.take();
                to.take();
                assert!(from.take().is_empty() && to.take().is_empty());
            }
            _ => {
                if let Some((from, to)) = &mut copy {
                    from.again(a);
                    to.again(b);
                }
            }
        }
    });
}

/// An idle guest: all changes in its memory are the daemon's.
#[test]
fn every_page_that_changes_under_a_guest_that_stands_still_is_logged() {
    for features in kinds() {
        let host = Host::start(TWO);
        let [mut a, mut b] = guests(&host, features);
        // The frame is posted before, and sent once the ring may run.
        a.frontend().enable_ring(TX, false).unwrap();
        for number in 0..200 {
            a.send(&frame(mac(1), mac(0), number));
        }
        let (from, to) = (Copy::begin(&mut a), Copy::begin(&mut b));
        a.frontend().enable_ring(TX, true).unwrap();
        until("all to be sent", || (a.pair.tx.used_len(), b.pair.rx.used_len()) == (200, 200));
        for guest in [&mut a, &mut b] {
            guest.frontend().stop_ring(TX).unwrap();
            guest.frontend().stop_ring(RX).unwrap();
        }
        for (copy, guest, pages_min) in [(&from, &a, 1), (&to, &b, 90)] {
            let changed: BTreeSet<usize> =
                differing(&copy.bytes, &guest.bytes()).into_iter().collect();
            let logged = copy.take();
            assert!(changed.is_subset(&logged), "{:?}", changed.difference(&logged));
            assert!(changed.len() >= pages_min, "{} pages", changed.len());
        }
    }
}

#[test]
fn a_guest_that_arrives_at_anothers_adapter_is_refused_there() {
    let host = Host::start(TWO);
    let mut a = Guest::new();
    a.reach(&host.socket("vf0"));
    a.negotiate();
    let state = a.frontend().save_state().unwrap();
    // As on another host; here it is the same adapter.
    a.frontend().load_state(&state).unwrap();
    let mut b = Guest::new();
    b.reach(&host.socket("vf1"));
    b.negotiate();
    let refused = b.frontend().load_state(&state);
    assert!(matches!(refused, Err(FrontendError::Refused { .. })), "{refused:?}");
    host.log.wait_for("the arriving guest has MAC 02:00:00:00:00:01, and this adapter");
    // An uplink has no address of its own, and accepts any state.
    let mut uplink = Guest::new();
    uplink.reach(&host.socket("uplink"));
    uplink.negotiate();
    uplink.frontend().load_state(&state).unwrap();
    // The sessions continue.
    a.set_up();
    b.set_up();
    a.send(&frame(mac(1), mac(0), 1));
    assert_eq!(b.wait_for(1), [frame(mac(1), mac(0), 1)]);
}

#[test]
fn a_log_that_is_too_short_is_told() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let bits = SharedFile::create("log", 1, Pages::Ordinary).unwrap();
    b.frontend().set_log(bits.fd().as_fd(), 1, 0).unwrap();
    b.set_logging(true);
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    host.log.wait_for("writes were to memory that the front-end's log does not cover");
    b.set_logging(false);
    drop(b);
    host.log.wait_for("n/vf1: front-end disconnected");
    assert_eq!(host.log.count("does not cover"), 1);
}

#[test]
fn records_and_logs_that_could_stall_a_lane_or_are_not_ours_are_refused() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let log = SharedFile::create("log", 4096, Pages::Ordinary).unwrap();
    let refused = |result: Result<(), FrontendError>| {
        assert!(matches!(result, Err(FrontendError::Refused { .. })), "{result:?}");
    };
    let (inflight, _records) = a.frontend().get_inflight(2, RING).unwrap();
    refused(a.frontend().set_inflight(&inflight, log.fd().as_fd()));
    let disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    disk.set_len(inflight.size).unwrap();
    refused(a.frontend().set_inflight(&inflight, disk.as_fd()));
    host.log.wait_for("guest memory must be a memfd");
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    // Setting a log has a reply, so only the front-end with a bad one is disconnected.
    assert!(a.frontend().set_log(disk.as_fd(), 4096, 0).is_err());
    until("the session to end", || a.frontend().is_closed());
    let [mut uplink] = host.guests(["uplink"]);
    uplink.send(&frame(mac(1), [2, 9, 9, 9, 9, 9], 2));
    b.wait_for(1);
}

//! Both sides on threads of their own, each asleep while it has no work: real memory instead of the
//! model checker's, and the whole queue instead of its notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use guestmem::GuestMemory;

use super::kit::{BASE, READABLE, memory};
use crate::{BURST, DeviceQueue, DriverQueue, Features, Segment, Start, Used};

const SIZE: u16 = 16;
const COUNT: u64 = 5_000;

/// Sleep of a side: ended by the other side; a lost wake-up is noticed after a while.
#[derive(Default)]
struct Bell(AtomicBool);

impl Bell {
    fn ring(&self, sleeper: &Thread) {
        self.0.store(true, Ordering::Release);
        sleeper.unpark();
    }

    fn wait(&self) {
        for _ in 0..100 {
            if self.0.swap(false, Ordering::Acquire) {
                return;
            }
            thread::park_timeout(Duration::from_millis(200));
        }
        panic!("asleep for 20 s: a notification was lost");
    }
}

fn device(mut queue: DeviceQueue, kick: &Bell, call: impl Fn()) {
    let mut expected = 0u64;
    while expected < COUNT {
        if queue.stage(BURST) == 0 {
            if !queue.enable_notification() {
                kick.wait();
            }
            queue.disable_notification();
            continue;
        }
        for buffer in queue.buffers().0 {
            assert_eq!(u64::from_le_bytes(buffer.first.read(0)), expected);
            expected += 1;
        }
        queue.add_used_all();
        if queue.publish() {
            call();
        }
    }
}

fn driver(memory: &Arc<GuestMemory>, queue: &mut DriverQueue, call: &Bell, kick: impl Fn()) {
    let data = BASE + DriverQueue::bytes(SIZE);
    let mut free: Vec<u64> = (0..u64::from(SIZE)).collect();
    let mut slots = [0; SIZE as usize];
    let (mut sent, mut done) = (0, 0);
    while done < COUNT {
        // As many as there is room for, but not always.
        while sent < COUNT && (sent % 7 != 6 || free.len() == usize::from(SIZE)) {
            let Some(slot) = free.pop() else { break };
            let addr = data + 8 * slot;
            memory.slice(addr, 8).unwrap().write(0, u64::to_le_bytes(sent));
            let piece = Segment { addr, len: 8, writable: false };
            slots[usize::from(queue.post(piece).unwrap())] = slot;
            sent += 1;
        }
        if queue.publish() {
            kick();
        }
        let mut used = [Used::default(); SIZE as usize];
        let n = queue.reap(&mut used);
        free.extend(used[..n].iter().map(|used| slots[usize::from(used.id)]));
        done += n as u64;
        if n == 0 && done < COUNT {
            if !queue.enable_notification() {
                call.wait();
            }
            queue.disable_notification();
        }
    }
}

#[test]
fn two_threads_that_sleep_whenever_they_can_lose_nothing() {
    for bits in 0..=Features::all().bits() {
        let features = Features::from_bits_truncate(bits);
        let memory = memory(DriverQueue::bytes(SIZE) + 8 * u64::from(SIZE));
        let mut ours = DriverQueue::new(memory.clone(), BASE, SIZE, features).unwrap();
        let (at, start) = (ours.addresses(), Start::at(ours.first_position()));
        let theirs =
            DeviceQueue::new(memory.clone(), &at, SIZE, features, READABLE, start).unwrap();
        let (kick, call) = (Bell::default(), Bell::default());
        let this = thread::current();
        thread::scope(|scope| {
            let device = scope.spawn(|| device(theirs, &kick, || call.ring(&this)));
            let sleeper = device.thread().clone();
            driver(&memory, &mut ours, &call, || kick.ring(&sleeper));
        });
        assert_eq!(ours.room(), usize::from(SIZE));
    }
}

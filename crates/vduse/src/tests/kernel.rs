//! A simulated kernel under the test's control, and a guest that records calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use guestmem::{GuestMemory, Pages, Quota, SharedFile};
use rustix::io::Errno;

use super::messages::bytes;
use crate::message::{REQUEST_LEN, RESPONSE_LEN};
use crate::{IotlbEntry, Kernel, RingInfo, RingRunner, RingStart, VduseSession};

pub(super) const OFFERED: u64 = 1 << 32 | 1 << 33 | 1 << 34 | 1 << 5;
pub(super) const PLAIN: u64 = 1 << 32 | 1 << 33;

/// A range of memory, and the file behind it.
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) perm: u8,
    pub(super) file: SharedFile,
}

/// The simulated kernel.
pub(super) struct Fake {
    pub(super) requests: VecDeque<[u8; REQUEST_LEN]>,
    pub(super) answers: Vec<[u8; RESPONSE_LEN]>,
    pub(super) features: u64,
    pub(super) rings: [RingInfo; 2],
    pub(super) ranges: Vec<Range>,
    /// `true` after it has recorded DRIVER_OK.
    pub(super) driver_runs: Cell<bool>,
    pub(super) kicks: RefCell<[Option<OwnedFd>; 2]>,
    /// Error returned to every request.
    pub(super) broken: Option<Errno>,
    pub(super) asked_for_driver: Cell<u32>,
}

impl Fake {
    pub(super) fn new() -> Fake {
        let ring = |at| RingInfo {
            size: 256,
            desc: at,
            avail: at + 0x1000,
            used: at + 0x2000,
            ready: true,
            ..RingInfo::default()
        };
        Fake {
            requests: VecDeque::new(),
            answers: Vec::new(),
            features: PLAIN,
            rings: [ring(1 << 30), ring(2 << 30)],
            ranges: Vec::new(),
            driver_runs: Cell::new(false),
            kicks: RefCell::default(),
            broken: None,
            asked_for_driver: Cell::new(0),
        }
    }

    /// Adds a range of memory that may be read and written.
    pub(super) fn map(&mut self, start: u64, size: u64) {
        let file = SharedFile::create("vduse-test", size, Pages::Ordinary).unwrap();
        self.ranges.push(Range { start, size, perm: 3, file });
    }

    fn ask(&mut self, kind: u32, body: &[u8]) {
        let id = self.answers.len() as u32 + self.requests.len() as u32;
        self.requests.push_back(bytes(kind, id, body));
    }

    /// The driver sets its status.
    pub(super) fn set_status(&mut self, status: u8) {
        self.ask(1, &[status]);
    }

    /// The driver queries a ring's position.
    pub(super) fn ask_position(&mut self, ring: u32) {
        self.ask(0, &ring.to_ne_bytes());
    }

    /// The kernel reports changed memory.
    pub(super) fn tell_memory(&mut self) {
        self.ask(2, &[0; 16]);
    }

    /// A request of a later kernel.
    pub(super) fn ask_unknown(&mut self) {
        self.ask(77, &[]);
    }

    /// `true` if the last request succeeded, and the words of a position.
    pub(super) fn last_answer(&self) -> (bool, [u16; 4]) {
        let answer = self.answers.last().expect("an answer");
        let word = |at: usize| u16::from_ne_bytes(answer[at..at + 2].try_into().unwrap());
        (answer[4..8] == [0; 4], [word(28), word(30), word(32), word(34)])
    }

    pub(super) fn kick(&self, ring: usize) {
        let kicks = self.kicks.borrow();
        rustix::io::write(kicks[ring].as_ref().expect("a kick"), &1u64.to_ne_bytes()).unwrap();
    }

    fn check(&self) -> Result<(), Errno> {
        self.broken.map_or(Ok(()), Err)
    }
}

impl Kernel for Fake {
    fn read(&mut self, request: &mut [u8; REQUEST_LEN]) -> Result<bool, Errno> {
        self.check()?;
        let next = self.requests.pop_front();
        *request = next.unwrap_or(*request);
        Ok(next.is_some())
    }

    fn write(&mut self, response: &[u8; RESPONSE_LEN]) -> Result<(), Errno> {
        self.answers.push(*response);
        Ok(())
    }

    fn features(&self) -> Result<u64, Errno> {
        self.check().map(|()| self.features)
    }

    fn ring(&self, ring: u32) -> Result<RingInfo, Errno> {
        self.check().map(|()| self.rings[ring as usize])
    }

    fn set_kick(&self, ring: u32, kick: BorrowedFd<'_>) -> Result<(), Errno> {
        self.kicks.borrow_mut()[ring as usize] = Some(kick.try_clone_to_owned().unwrap());
        self.check()
    }

    fn region(&self, from: u64) -> Result<Option<(IotlbEntry, OwnedFd)>, Errno> {
        self.check()?;
        let behind = self.ranges.iter().filter(|range| range.start + (range.size - 1) >= from);
        let found = behind.min_by_key(|range| range.start);
        Ok(found.map(|range| {
            let Range { start, size, perm, ref file } = *range;
            let entry = IotlbEntry { offset: 0, start, last: start + (size - 1), perm };
            (entry, file.fd().try_clone_to_owned().unwrap())
        }))
    }

    fn interrupt_config(&self) -> Result<bool, Errno> {
        self.asked_for_driver.set(self.asked_for_driver.get() + 1);
        self.check().map(|()| self.driver_runs.get())
    }

    fn set_config(&self, _: &[u8]) -> Result<(), Errno> {
        self.check()
    }
}

/// Runs the rings, and records the calls.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) runs: bool,
    pub(super) starts: Vec<Vec<RingStart>>,
    pub(super) regions: Vec<u64>,
    pub(super) refuses: bool,
    pub(super) position: Option<u32>,
}

impl RingRunner for Notes {
    fn start(&mut self, rings: &[RingStart], memory: &Arc<GuestMemory>) -> Result<(), String> {
        assert!(!self.runs, "started twice");
        if self.refuses {
            return Err("no such ring".to_owned());
        }
        self.runs = true;
        self.starts.push(rings.to_vec());
        self.regions = memory.regions().iter().map(|region| region.guest_addr).collect();
        Ok(())
    }

    fn stop(&mut self) {
        self.runs = false;
    }

    fn position(&mut self, _: u32) -> Option<u32> {
        self.position
    }
}

/// A session on a simulated kernel. The kernel is moved in and out, since the session owns it.
pub(super) struct Bench {
    pub(super) session: VduseSession<Fake>,
    pub(super) guest: Notes,
}

impl Bench {
    pub(super) fn new(kernel: Fake) -> Bench {
        let quota = Arc::new(Quota::new(u64::MAX, u64::MAX));
        let session = VduseSession::new("web0", kernel, OFFERED, 2, quota).unwrap();
        Bench { session, guest: Notes::default() }
    }

    pub(super) fn kernel(&mut self) -> &mut Fake {
        self.session.kernel_mut()
    }

    pub(super) fn serve(&mut self) {
        self.session.serve(&mut self.guest).unwrap();
    }

    /// A driver that reaches DRIVER_OK; the kernel records it a moment later.
    pub(super) fn begin(&mut self) {
        for status in [0, 1, 3, 11, 15] {
            self.kernel().set_status(status);
        }
        self.serve();
        self.kernel().driver_runs.set(true);
    }

    /// A bench whose rings run, on memory of its own.
    pub(super) fn running(mut kernel: Fake) -> Bench {
        kernel.map(0, 1 << 20);
        let mut bench = Bench::new(kernel);
        bench.begin();
        bench.serve();
        assert!(bench.guest.runs && bench.session.is_running());
        bench
    }
}

/// Returns `true` if two descriptors are the same file.
pub(super) fn is_same(a: &impl AsFd, b: &impl AsFd) -> bool {
    // Eventfds share an inode, so the test writes to one and reads the other.
    rustix::io::write(a, &1u64.to_ne_bytes()).unwrap();
    rustix::io::read(b, &mut [0; 8]).is_ok()
}

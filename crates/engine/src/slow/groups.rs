//! The frames of a burst by receiver, in a fixed room.

use port::BURST;

/// The frames of a burst by receiver, each in the order of the burst.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The last frame so far for each port plus one; zero if none.
    last: Box<[u8; PORTS_MAX]>,
    /// The next frame for the same port; its own index at the end.
    next: [u8; BURST],
    /// First frames, by order of appearance.
    firsts: [(u16, u8); BURST],
    len: usize,
    at: usize,
    indices: [u8; BURST],
}

/// Ports of a NIC or of a switch.
const PORTS_MAX: usize = 512;
const _: () = assert!(bridge::nic::PORTS <= PORTS_MAX && bridge::switch::MAX_PORTS <= PORTS_MAX);

impl Groups {
    pub(crate) fn new() -> Groups {
        Groups {
            last: Box::new([0; PORTS_MAX]),
            next: [0; BURST],
            firsts: [(0, 0); BURST],
            len: 0,
            at: 0,
            indices: [0; BURST],
        }
    }

    pub(crate) fn clear(&mut self) {
        for (port, _) in &self.firsts[..self.len] {
            self.last[usize::from(*port) % PORTS_MAX] = 0;
        }
        self.len = 0;
        self.at = 0;
    }

    pub(crate) fn add(&mut self, port: u16, frame: usize) {
        let last = &mut self.last[usize::from(port) % PORTS_MAX];
        match *last {
            0 => {
                self.firsts[self.len] = (port, frame as u8);
                self.len += 1;
            }
            before => self.next[usize::from(before - 1)] = frame as u8,
        }
        *last = frame as u8 + 1;
        self.next[frame] = frame as u8;
    }

    pub(crate) fn next(&mut self) -> Option<(u16, &[u8])> {
        if self.at == self.len {
            return None;
        }
        let (port, mut frame) = self.firsts[self.at];
        self.at += 1;
        let mut n = 0;
        loop {
            self.indices[n] = frame;
            n += 1;
            let next = self.next[usize::from(frame)];
            if next == frame {
                return Some((port, &self.indices[..n]));
            }
            frame = next;
        }
    }
}

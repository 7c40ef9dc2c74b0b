//! Witness at the far end of the uplink: it reads all frames that leave the NIC.

use std::path::Path;

use anyhow::Result;
use guestmem::Pages;
use virtq::BURST;
use wire::vlan::Tag;

use super::HonestResult;
use super::judge::{Judge, Seen, source};
use crate::adapter::{Adapter, HEADER, RING};

/// Bytes to read: addresses, tag, type.
const LOOK: usize = 18;

/// Adapter at the uplink's socket.
#[derive(Debug)]
pub(super) struct Witness {
    adapter: Adapter,
    /// VLAN ID of the far guests.
    vlan: u16,
}

impl Witness {
    pub(super) fn attach(socket: &Path, vlan: u16) -> Result<Witness> {
        let mut adapter = Adapter::attach(socket, true, Pages::Ordinary)?;
        for buffer in 0..u32::from(RING) {
            adapter.post_receive(buffer);
        }
        adapter.publish();
        Ok(Witness { adapter, vlan })
    }

    /// Reads and counts all received frames.
    pub(super) fn look(&mut self, judge: &Judge, result: &mut HonestResult) {
        let mut frames = [(0, 0); BURST];
        loop {
            let received = self.adapter.reap_receive(&mut frames);
            for (buffer, _) in &frames[..received] {
                let mut head = [0; LOOK];
                self.adapter.buffer(*buffer).skip(HEADER).read_bytes(&mut head);
                self.count(&head, judge, result);
                self.adapter.post_receive(*buffer);
            }
            if received < BURST {
                break;
            }
        }
        self.adapter.publish();
    }

    fn count(&self, head: &[u8; LOOK], judge: &Judge, result: &mut HonestResult) {
        result.witnessed += 1;
        let tag = Tag::parse(head).ok().flatten().map_or(0, |tag| tag.vid);
        let Some(source) = source(head) else { return };
        if judge.honest.contains(&source) {
            return result.count(Seen::Spoofed); // origin and mirror send only to each other
        }
        match judge.others(source) {
            // A far guest's frames are tagged; a near guest can send at most a priority tag.
            Seen::Misplaced if tag == self.vlan => {}
            Seen::Foreign if tag == 0 => {}
            Seen::Spoofed => result.count(Seen::Spoofed),
            _ => result.count(Seen::Misplaced),
        }
    }
}

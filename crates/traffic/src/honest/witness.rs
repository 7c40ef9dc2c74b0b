//! Witness at the far end of the uplink: it reads all frames that leave the NIC.

use std::path::Path;

use anyhow::Result;
use guestmem::Pages;
use virtq::BURST;
use wire::vlan::Tag;

use super::classify::{FrameClass, FrameClassifier, source};
use crate::adapter::{Adapter, HEADER, RING};
use crate::protocol::honest::HonestResult;

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
    pub(super) fn look(&mut self, classifier: &FrameClassifier, result: &mut HonestResult) {
        let mut frames = [(0, 0); BURST];
        loop {
            let received = self.adapter.reap_receive(&mut frames);
            for (buffer, _) in &frames[..received] {
                let mut head = [0; LOOK];
                self.adapter.buffer(*buffer).skip(HEADER).read_bytes(&mut head);
                self.count(&head, classifier, result);
                self.adapter.post_receive(*buffer);
            }
            if received < BURST {
                break;
            }
        }
        self.adapter.publish();
    }

    fn count(&self, head: &[u8; LOOK], classifier: &FrameClassifier, result: &mut HonestResult) {
        result.witnessed += 1;
        let tag = Tag::parse(head).ok().flatten().map_or(0, |tag| tag.vid);
        let Some(source) = source(head) else { return };
        if classifier.honest.contains(&source) {
            return result.count(FrameClass::Spoofed); // origin and mirror send only to each other
        }
        match classifier.classify_source(source) {
            // A far guest's frames are tagged; a near guest can send at most a priority tag.
            FrameClass::Misplaced if tag == self.vlan => {}
            FrameClass::Foreign if tag == 0 => {}
            FrameClass::Spoofed => result.count(FrameClass::Spoofed),
            _ => result.count(FrameClass::Misplaced),
        }
    }
}

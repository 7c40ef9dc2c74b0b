//! Log of a burst: what happened to its frames, until they are recorded.

use std::cell::RefCell;
use std::ops::Range;

use port::capture::filter::READS;
use port::capture::live::{Direction, LiveRecord, read_frame, time_ns};
use port::{Burst, BurstBuffers, Malformed, VlanEdit};

use super::{FrameResult, note};
use crate::port::{Port, counter};
use crate::slow::BurstSource;
use crate::snapshot::{ForwardingSnapshot, PortPath};

/// Events of a burst, at most; further ones are counted as lost.
pub(crate) const EVENTS_MAX: usize = 4096;

/// An event: a frame reached a port, or was dropped there.
#[derive(Debug)]
struct Event {
    frame: u8,
    direction: Direction,
    result: FrameResult,
    edit: VlanEdit,
    path: Option<PortPath>,
    vf: Option<u16>,
    /// Label of the port, in the labels.
    label: Range<usize>,
}

/// An event, as it is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameEvent {
    /// Index in the burst.
    pub(crate) frame: u8,
    pub(crate) direction: Direction,
    pub(crate) result: FrameResult,
    /// Edit of its tags, all stages together.
    pub(crate) edit: VlanEdit,
    /// The NIC chose a receive queue.
    pub(crate) by_queue: bool,
}

/// Log of a burst. Its memory is a lane's, and kept from burst to burst.
#[derive(Debug, Default)]
pub(crate) struct BurstLog(RefCell<Inner>);

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    labels: String,
    bytes: Vec<u8>,
}

impl BurstLog {
    /// Adds an event, if a capture wants it.
    pub(crate) fn add(&self, snapshot: &ForwardingSnapshot, port: &Port, event: FrameEvent) {
        let FrameEvent { frame, direction, result, edit, by_queue } = event;
        let is_dropped = matches!(result, FrameResult::Dropped(_));
        let captures = snapshot.captures.iter();
        let wanted = captures.filter(|point| point.wants(&port.label, direction, is_dropped));
        let mut inner = self.0.borrow_mut();
        let Inner { events, labels, .. } = &mut *inner;
        if events.len() == EVENTS_MAX {
            return wanted.for_each(|point| point.lose(1));
        }
        if wanted.count() > 0 {
            let begin = labels.len();
            labels.push_str(&port.label);
            let (path, vf) = (snapshot.path(port, by_queue), snapshot.vf(port));
            let label = begin..labels.len();
            events.push(Event { frame, direction, result, edit, path, vf, label });
        }
    }

    /// Returns `true` if a capture wants the results of deliveries from one port to another: what
    /// arrives, and copies of a tunnel that the sender's limit stops.
    pub(crate) fn is_wanted(&self, snapshot: &ForwardingSnapshot, from: &Port, to: &Port) -> bool {
        snapshot.captures.iter().any(|point| {
            point.wants(&to.label, Direction::Out, true)
                || point.wants(&from.label, Direction::In, true)
        })
    }

    /// Adds drops of frames at their sender.
    pub(crate) fn add_drops(&self, source: &BurstSource<'_>, counter: usize, frames: &[u8]) {
        for frame in frames {
            let event = FrameEvent {
                frame: *frame,
                direction: Direction::In,
                result: FrameResult::Dropped(counter),
                edit: VlanEdit::None,
                by_queue: false,
            };
            self.add(source.snapshot, source.port, event);
        }
    }

    /// Records a burst of a guest, with the frames that its ring refused.
    pub(crate) fn record_burst(
        &mut self,
        source: &BurstSource<'_>,
        burst: &Burst<'_>,
        buffers: &BurstBuffers,
    ) {
        for frame in 0..burst.frames.len() {
            if burst.malformed >> frame & 1 == 1 {
                let counter = match buffers.malformed_reason(frame) {
                    Malformed::Runt => counter::TX_RUNT,
                    Malformed::Oversize => counter::TX_OVERSIZE,
                    Malformed::Offload => counter::TX_OFFLOAD,
                    Malformed::Disabled => counter::TX_DISABLED,
                };
                self.add_drops(source, counter, &[frame as u8]);
            }
        }
        self.record(source, burst, true);
    }

    /// Records the events, frame by frame; with `sent` each frame itself as well.
    pub(crate) fn record(&mut self, source: &BurstSource<'_>, burst: &Burst<'_>, sent: bool) {
        // From here on only the sender's memory is touched.
        source.marker.touch(0);
        let (snapshot, port, time_ns) = (source.snapshot, source.port, time_ns());
        let Inner { events, labels, bytes } = self.0.get_mut();
        events.sort_by_key(|event| event.frame);
        let mut left = &events[..];
        for frame in 0..burst.frames.len() {
            let count = left.iter().take_while(|event| usize::from(event.frame) == frame).count();
            let (own, rest) = left.split_at(count);
            left = rest;
            // The sender's record shows the first reason.
            let drop_of = |event: &&Event| event.direction == Direction::In;
            let first = own.iter().position(|event| drop_of(&event)).filter(|_| sent);
            let result = first.map_or(FrameResult::Passed, |first| own[first].result);
            let mut recorder = Recorder { snapshot, burst, frame, time_ns, bytes };
            if sent {
                let facts = (snapshot.path(port, false), snapshot.vf(port), result);
                recorder.record(&port.label, Direction::In, VlanEdit::None, facts);
            }
            for (_, event) in own.iter().enumerate().filter(|(at, _)| Some(*at) != first) {
                let label = &labels[event.label.clone()];
                let facts = (event.path, event.vf, event.result);
                recorder.record(label, event.direction, event.edit, facts);
            }
        }
        events.clear();
        labels.clear();
    }
}

/// Recorder of one frame of a burst.
struct Recorder<'a> {
    snapshot: &'a ForwardingSnapshot,
    burst: &'a Burst<'a>,
    frame: usize,
    time_ns: u64,
    bytes: &'a mut Vec<u8>,
}

impl Recorder<'_> {
    /// Records the frame at a port in all captures that want it. Its bytes are read once.
    fn record(
        &mut self,
        port: &str,
        direction: Direction,
        edit: VlanEdit,
        (path, vf, result): (Option<PortPath>, Option<u16>, FrameResult),
    ) {
        let is_dropped = matches!(result, FrameResult::Dropped(_));
        self.bytes.clear();
        for point in &self.snapshot.captures {
            if !point.wants(port, direction, is_dropped) {
                continue;
            }
            let mut read = |most| read_frame(self.burst, self.frame, edit, most, self.bytes);
            let len = read(READS);
            if !point.passes(self.bytes, len) {
                continue;
            }
            read_frame(self.burst, self.frame, edit, point.snap_len(), self.bytes);
            point.record(&LiveRecord {
                time_ns: self.time_ns,
                port,
                direction,
                note: note(path, vf, result),
                len,
                bytes: self.bytes,
            });
        }
    }
}

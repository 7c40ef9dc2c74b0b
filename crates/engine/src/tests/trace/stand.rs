//! Ports with their guests; a frame is traced and then sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge::switch::State;
use port::capture::live::{Direction, LiveFrame};
use port::parked::ParkedFrames;
use proptest::prelude::*;

use super::super::capture::{Capture, all_of, dropped};
use super::super::kit::*;
use super::worlds::SwitchWorld;
use crate::port::counter;
use crate::trace::{Arrival, FrameTrace, TraceResult};
use crate::{Port, SoftNic};

/// A port, and its other end.
struct Place {
    port: Arc<Port>,
    guest: Option<Guest>,
    /// Its guest has left, and frames for it are parked.
    parked: Option<ParkedFrames>,
    sends: bool,
}

/// Ports with their guests.
pub(super) struct Stand {
    nic: Arc<SoftNic>,
    places: Vec<Place>,
    state: Option<Arc<State>>,
    /// Of all ports.
    capture: Capture,
}

/// Traces a frame from a port by its number.
pub(super) fn trace(stand: &Stand, from: usize, frame: &[u8]) -> FrameTrace {
    stand.nic.trace(&stand.places[from].port, frame).unwrap()
}

/// Counters that depend on the guest or on time, and the gauge.
fn is_compared(name: &str) -> bool {
    let of_time = ["tx_notifies", "rx_notifies", "tx_cycles", "tx_bursts", "tx_backlog_bursts"];
    !of_time.contains(&name) && !["rings_attached", "-"].contains(&name)
}

impl Place {
    fn with_guest(port: &Arc<Port>) -> Place {
        let guest = Guest::new();
        guest.attach(port);
        Place { port: port.clone(), guest: Some(guest), parked: None, sends: true }
    }

    /// Frames that have arrived.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        match (&mut self.guest, &self.parked) {
            (Some(guest), _) => guest.receive(),
            (None, Some(parked)) => parked.take().0,
            (None, None) => Vec::new(),
        }
    }
}

impl Stand {
    /// A guest at each of these ports.
    pub(super) fn of_bench<'a>(bench: &Bench, ports: impl Iterator<Item = &'a Arc<Port>>) -> Stand {
        let places = ports.map(Place::with_guest).collect();
        let capture = Capture::of(bench, all_of(&[]));
        Stand { nic: bench.fabric.nics()[0].clone(), places, state: None, capture }
    }

    /// A guest at the adapters for which `attached` has `true`, and at the uplink.
    pub(super) fn of_adapters(net: &mut Net, attached: &[bool]) -> Stand {
        let place = |(n, attached): (usize, &bool)| match attached {
            true => Place::with_guest(&net.ports[n]),
            false => {
                let (guest, parked, sends) = (None, None, false);
                Place { port: net.ports[n].clone(), guest, parked, sends }
            }
        };
        let mut places: Vec<Place> = attached.iter().enumerate().map(place).collect();
        places.push(Place::with_guest(&net.uplink));
        let nic = net.bench.fabric.nics()[0].clone();
        let capture = Capture::of(&net.bench, all_of(&[]));
        Stand { nic, places, state: Some(net.state.clone()), capture }
    }

    /// The ports of a world; `None` if its settings are invalid.
    pub(super) fn of_net(net: &mut Net, world: &SwitchWorld) -> Option<Stand> {
        net.floods_unknown = world.floods_unknown;
        let (capture, at_capture) = net.listener("n/capture");
        let (tap, at_tap) = net.listener("n/tap");
        net.captures.push(capture.clone());
        let settings = world.settings(net)?;
        net.taps.push((world.tap(), tap.clone()));
        net.put(net.snapshot(&world.adapters, settings));
        let attached: Vec<bool> = world.more.iter().map(|more| more.is_attached).collect();
        let mut stand = Stand::of_adapters(net, &attached);
        for (place, _) in stand.places.iter_mut().zip(&world.more).filter(|(_, more)| more.parks) {
            if place.guest.is_none() {
                let parked = ParkedFrames::default();
                place.port.park_frames(Some(parked.clone()));
                place.parked = Some(parked);
            }
        }
        for (port, guest) in [(capture, at_capture), (tap, at_tap)] {
            stand.places.push(Place { port, guest: Some(guest), parked: None, sends: false });
        }
        Some(stand)
    }

    /// Counters of all ports, by label and name.
    fn counters(&self) -> BTreeMap<(String, String), u64> {
        let schema = counter::schema();
        let of = |place: &Place| {
            let names = schema.iter().enumerate().filter(|(_, name)| is_compared(name));
            let value = |at| place.port.block(0).get(at);
            let label = &place.port.label;
            names.map(|(at, name)| ((label.clone(), name.clone()), value(at))).collect::<Vec<_>>()
        };
        self.places.iter().flat_map(of).collect()
    }

    /// Learned addresses with their ages.
    fn addresses(&self) -> Vec<String> {
        let entries = self.state.iter().flat_map(|state| state.fdb.entries());
        let mut all: Vec<String> = entries.map(|entry| format!("{entry:?}")).collect();
        all.sort();
        all
    }

    /// Traces a frame, sends it if the port has a guest, and compares.
    pub(super) fn check(&mut self, from: usize, bytes: &[u8]) -> Result<(), TestCaseError> {
        let from = from % self.places.iter().filter(|place| place.parked.is_none()).count();
        let (before, known) = (self.counters(), self.addresses());
        let traced = trace(self, from, bytes);
        prop_assert_eq!(&self.counters(), &before, "a trace counts");
        prop_assert_eq!(self.addresses(), known, "a trace learns");
        check_steps(&traced)?;
        let place = &mut self.places[from];
        let Some(guest) = place.guest.as_mut().filter(|_| place.sends) else { return Ok(()) };
        guest.send(bytes);
        guest.settle();
        drop(place.port.lock_transmit(0)); // counters are written under it
        let captured = self.capture.frames();
        let mut moved = self.counters();
        moved.retain(|counter, value| {
            *value -= before[counter];
            *value > 0
        });
        let counters = traced.counters.iter().filter(|counter| is_compared(&counter.name));
        let expected: BTreeMap<_, _> = counters
            .map(|counter| ((counter.port.clone(), counter.name.clone()), counter.by))
            .collect();
        prop_assert_eq!(moved, expected, "{:#?}", traced);
        check_capture(&self.places[from].port.label, bytes, &captured, &traced)?;
        let mut deliveries: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for delivery in &traced.deliveries {
            deliveries.entry(&delivery.port).or_default().push(&delivery.frame);
        }
        for place in &mut self.places {
            let arrived = place.receive();
            let expected = deliveries.remove(&*place.port.label).unwrap_or_default();
            prop_assert_eq!(arrived, expected, "at {}: {:#?}", place.port.label, traced);
            let waits = place.parked.is_some();
            let mut own = traced.deliveries.iter().filter(|it| it.port == place.port.label);
            prop_assert!(own.all(|it| (it.arrival == Arrival::Waits) == waits));
        }
        prop_assert!(deliveries.is_empty(), "{deliveries:?}");
        Ok(())
    }
}

/// A frame of a capture: port, direction, path, result, bytes.
type Recorded = (String, bool, String, String, Vec<u8>);

/// A capture shows the frame where it entered, with the reason if it was dropped there, each
/// delivery byte for byte, and each drop by a receiver.
fn check_capture(
    from: &str,
    bytes: &[u8],
    captured: &[LiveFrame],
    traced: &FrameTrace,
) -> Result<(), TestCaseError> {
    let of_comments = |frame: &LiveFrame| {
        let path = frame.comments.iter().find_map(|comment| comment.strip_prefix("path "));
        let path = path.map(|path| path.split(',').next().unwrap_or_default());
        let waits = frame.comments.iter().any(|comment| comment.starts_with("waits: "));
        let result = if waits { "waits" } else { dropped(frame).unwrap_or("passed") };
        (path.unwrap_or("mirror").to_owned(), result.to_owned())
    };
    let mut recorded: Vec<Recorded> = Vec::new();
    for frame in captured {
        let (path, result) = of_comments(frame);
        let is_out = frame.direction == Direction::Out;
        // The trace does not know the path of a drop, nor its edit.
        let is_known = is_out && !result.starts_with("rx_");
        let (path, bytes) = if is_known { (path, frame.bytes.clone()) } else { Default::default() };
        recorded.push((frame.port.clone(), is_out, path, result, bytes));
    }
    prop_assert_eq!(captured.first().map(|frame| &frame.bytes[..]), Some(bytes));
    let mut expected: Vec<Recorded> = Vec::new();
    for delivery in &traced.deliveries {
        let result = if delivery.arrival == Arrival::Waits { "waits" } else { "passed" };
        let (port, path) = (delivery.port.clone(), delivery.path.to_owned());
        expected.push((port, true, path, result.to_owned(), delivery.frame.clone()));
    }
    let none = (String::new(), Vec::new());
    let mut is_dropped = false;
    for drop in &traced.drops {
        let is_out = drop.counter.starts_with("rx_");
        is_dropped |= !is_out;
        for _ in 0..drop.frames {
            let (path, bytes) = none.clone();
            expected.push((drop.port.clone(), is_out, path, drop.counter.to_owned(), bytes));
        }
    }
    if !is_dropped {
        let (path, bytes) = none;
        expected.push((from.to_owned(), false, path, "passed".to_owned(), bytes));
    }
    recorded.sort();
    expected.sort();
    prop_assert_eq!(recorded, expected, "{:#?}", traced);
    Ok(())
}

/// A step that drops the frame is the last of its stage, unless mirrors or the egress follow, and
/// each drop of the sender has one.
fn check_steps(traced: &FrameTrace) -> Result<(), TestCaseError> {
    let steps = traced.stages.iter().flat_map(|stage| &stage.steps);
    let mut dropped: Vec<&str> = steps
        .filter_map(|step| match step.result {
            TraceResult::Dropped(reason) => Some(reason.name),
            TraceResult::Passed | TraceResult::Off => None,
        })
        .collect();
    let drops = traced.drops.iter().filter(|drop| drop.counter.starts_with("tx_"));
    let mut counted: Vec<&str> = drops.map(|drop| drop.reason.name).collect();
    dropped.sort_unstable();
    dropped.dedup();
    counted.sort_unstable();
    counted.dedup();
    prop_assert_eq!(dropped, counted, "{:#?}", traced);
    Ok(())
}

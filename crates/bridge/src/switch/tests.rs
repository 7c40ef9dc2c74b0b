//! The switch's rules, one by one; and against a slow model that cannot be wrong in the same way.

mod config;
mod filters;
mod headers;
mod model;
mod packet;
mod random;
mod rules;
mod threads;

use std::collections::HashMap;

use wire::{FrameHeader, Mac, Vid};

use crate::matching::{Icmp, IpPrefix, MacPrefix, Match, TcpFlags};
use crate::switch::*;
use crate::*;

/// The `n`th MAC, counted in the last two bytes.
fn mac(n: u16) -> Mac {
    let [high, low] = n.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

fn vid(n: u16) -> Vid {
    Vid::new(n).unwrap()
}

fn access(vlan: u16) -> PortConfig {
    PortConfig::access(Vid::new(vlan).ok())
}

fn trunk(allowed: &[u16], native: Native) -> PortConfig {
    let allowed = allowed.iter().copied().map(vid).collect();
    PortConfig { vlans: Vlans::Trunk { allowed, native }, ..access(0) }
}

/// A frame; a tag is a TPID and a TCI.
fn frame(dst: Mac, src: Mac, tag: Option<(u16, u16)>) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    if let Some((tpid, tci)) = tag {
        frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    }
    frame.extend([0x08, 0x06]);
    frame.resize(60, 0x5a);
    frame
}

/// A switch with all that its lanes would own.
struct Bench {
    table: Table,
    state: State,
    flows: HashMap<PortId, Flows>,
    counters: Vec<u64>,
    out: SwitchVerdicts,
    summary: Summary,
    now_ns: u64,
}

impl Bench {
    fn new(config: &SwitchConfig) -> Self {
        let table = Table::build(config).unwrap();
        Self {
            counters: vec![0; table.counters_len()],
            state: State::new(Fdb::new(1, 7).unwrap()),
            table,
            flows: HashMap::new(),
            out: SwitchVerdicts::new(),
            summary: Summary::Empty,
            now_ns: 1 << 40,
        }
    }

    fn of(ports: impl IntoIterator<Item = PortConfig>) -> Self {
        Self::new(&switch(ports))
    }

    /// Another table takes over.
    fn swap(&mut self, config: &SwitchConfig) {
        self.table = Table::build(config).unwrap();
        self.counters = vec![0; self.table.counters_len()];
    }

    fn burst(&mut self, from: u16, frames: &[Vec<u8>]) -> Vec<Action> {
        let headers: Vec<_> =
            frames.iter().map(|frame| FrameHeader::of_frame(frame).unwrap().0).collect();
        let snapshots: Vec<_> =
            frames.iter().map(|frame| HeaderSnapshot::of_frame(frame)).collect();
        let from = PortId(from);
        let shallow = self.table.needs_snapshots(from).then_some(&snapshots[..]);
        let burst = Burst { from, headers: &headers, snapshots: shallow, now_ns: self.now_ns };
        let flows = self.flows.entry(from).or_default();
        let (table, out) = (&self.table, &mut self.out);
        self.summary = table.classify(&self.state, &burst, flows, &mut self.counters, out);
        if out.wants_snapshots() {
            let forbidden = Verdict::drop(DropReason::VlanForbidden);
            assert!(out.iter().all(|verdict| *verdict == forbidden), "refused until it is known");
            let burst = Burst { snapshots: Some(&snapshots), ..burst };
            self.summary = table.classify(&self.state, &burst, flows, &mut self.counters, out);
        }
        let actions: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
        let same = actions.iter().all(|action| *action == actions[0]);
        match self.summary {
            Summary::Empty => assert!(frames.is_empty()),
            Summary::Uniform(verdict) => assert!(same && verdict == out[0]),
            Summary::Mixed => assert!(!same),
        }
        actions
    }

    fn send(&mut self, from: u16, dst: Mac, src: Mac) -> Action {
        self.burst(from, &[frame(dst, src, None)])[0]
    }

    fn send_tagged(&mut self, from: u16, dst: Mac, src: Mac, tci: u16) -> Action {
        self.burst(from, &[frame(dst, src, Some((0x8100, tci)))])[0]
    }
}

fn switch(ports: impl IntoIterator<Item = PortConfig>) -> SwitchConfig {
    SwitchConfig { ports: ports.into_iter().map(Some).collect(), ..SwitchConfig::default() }
}

fn to(port: u16) -> Action {
    Action::Port(PortId(port))
}

fn dropped(reason: DropReason) -> Action {
    Action::Drop(reason)
}

const FLOOD: Action = Action::Flood(Flood::Group);
const UNKNOWN: Action = Action::Flood(Flood::Unknown);

//! One soft NIC, its lanes, and its counters.

use std::sync::Arc;
use std::time::Duration;

use bridge::PortId;
use bridge::nic::{Function, NicConfig, Share, Table};

use super::{Guest, until};
use crate::counters::Reader;
use crate::{
    Fabric, ForwardingSnapshot, IdlePolicy, LaneSpec, Plug, Port, PortLocation, RuleHits,
    SnapshotSpec,
};

/// One soft NIC `n` with lanes of its own, and the counter file.
pub(crate) struct Bench {
    pub(crate) fabric: Fabric,
    plugs: Vec<Plug>,
    reader: Reader,
    _dir: tempfile::TempDir,
}

/// Polls shortly, then sleeps: every test goes through all states of a lane.
const IDLE: IdlePolicy = IdlePolicy {
    poll: Duration::from_micros(20),
    yielding: Duration::from_micros(20),
    sleep: true,
};

/// A function and its name.
type Named = (PortId, String);

impl Bench {
    /// An uplink, and VFs with these functions, of one queue pair each.
    pub(crate) fn new(vfs: Vec<Function>, lanes: usize) -> Bench {
        let vfs = vfs.into_iter().map(Some).collect();
        Bench::of(NicConfig { vfs, ..NicConfig::default() }, lanes, 1)
    }

    pub(crate) fn of(config: NicConfig, lanes: usize, pairs: usize) -> Bench {
        let uplink = (PortId::UPLINK, "uplink".to_string());
        Bench::with(vec![uplink], config, pairs, &vec![IDLE; lanes])
    }

    /// As [`new`](Self::new), with one lane that polls for `poll` before it sleeps.
    pub(crate) fn patient(vfs: Vec<Function>, poll: Duration) -> Bench {
        let vfs = vfs.into_iter().map(Some).collect();
        let config = NicConfig { vfs, ..NicConfig::default() };
        Bench::with(vec![], config, 1, &[IdlePolicy { poll, ..IDLE }])
    }

    /// A NIC without ports.
    pub(crate) fn bare(lanes: usize) -> Bench {
        Bench::with(vec![], NicConfig::default(), 1, &vec![IDLE; lanes])
    }

    pub(crate) fn without_uplink(config: NicConfig) -> Bench {
        Bench::with(vec![], config, 1, &[IDLE])
    }

    fn with(mut ports: Vec<Named>, config: NicConfig, pairs: usize, lanes: &[IdlePolicy]) -> Bench {
        if config.pf.is_some() {
            ports.push((PortId::PF, "pf".into()));
        }
        for (i, vf) in config.vfs.iter().enumerate() {
            if vf.is_some() {
                ports.push((PortId::vf(i as u8), format!("vf{i}")));
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters");
        let lanes: Vec<_> = lanes.iter().map(|idle| LaneSpec { cpu: None, idle: *idle }).collect();
        let mut fabric = Fabric::start(&lanes, Some(&path)).unwrap();
        let nic = fabric.add_nic("n");
        let mut plug = |location: PortLocation, name: &str| {
            let port = fabric.add_port(&nic, &format!("n/{name}"), pairs).unwrap();
            Plug { port, location, share: Share::default() }
        };
        let mut plugs = Vec::new();
        for (id, name) in ports {
            if config.switchdev.is_none() {
                plugs.push(plug(PortLocation::Function(id), &name));
            } else {
                plugs.push(plug(PortLocation::Piped(id), &name));
                plugs.push(plug(PortLocation::Representor(id), &format!("{name}-rep")));
            }
        }
        let bench = Bench { fabric, plugs, reader: Reader::open(&path).unwrap(), _dir: dir };
        bench.set_table(Table::build(&config).unwrap());
        bench
    }

    /// Replaces the NIC's classifier.
    pub(crate) fn set_table(&self, table: Table) {
        let spec = SnapshotSpec::new(table, self.plugs.clone());
        self.fabric.nics()[0].set_snapshot(ForwardingSnapshot::new(spec));
    }

    /// Likewise, and has these ports send as if they were others.
    pub(crate) fn set_senders(&self, table: Table, senders: Vec<(PortId, Arc<Port>)>) {
        let spec = SnapshotSpec { senders, ..SnapshotSpec::new(table, self.plugs.clone()) };
        self.fabric.nics()[0].set_snapshot(ForwardingSnapshot::new(spec));
    }

    /// Likewise, with rules that count there.
    pub(crate) fn set_rules(&self, table: Table, rules: Vec<Arc<RuleHits>>) {
        let spec = SnapshotSpec { rules, ..SnapshotSpec::new(table, self.plugs.clone()) };
        self.fabric.nics()[0].set_snapshot(ForwardingSnapshot::new(spec));
    }

    pub(crate) fn port(&self, id: PortId) -> &Arc<Port> {
        let is = |plug: &&Plug| {
            [PortLocation::Function(id), PortLocation::Piped(id)].contains(&plug.location)
        };
        &self.plugs.iter().find(is).unwrap().port
    }

    /// The port of the host for a function of a NIC in switchdev mode.
    pub(crate) fn representor(&self, of: PortId) -> &Arc<Port> {
        let plug = self.plugs.iter().find(|plug| plug.location == PortLocation::Representor(of));
        &plug.unwrap().port
    }

    pub(crate) fn vf(&self, n: u8) -> &Arc<Port> {
        self.port(PortId::vf(n))
    }

    pub(crate) fn uplink(&self) -> &Arc<Port> {
        self.port(PortId::UPLINK)
    }

    /// A new guest on each of these ports.
    pub(crate) fn guests<const N: usize>(&self, ids: [PortId; N]) -> [Guest; N] {
        ids.map(|id| {
            let guest = Guest::new();
            guest.attach(self.port(id));
            guest
        })
    }

    /// The labels of all that is counted.
    pub(crate) fn labels(&self) -> Vec<String> {
        self.reader.read().into_iter().map(|block| block.label).collect()
    }

    /// A counter of the port or lane with this label.
    pub(crate) fn count(&self, label: &str, name: &str) -> u64 {
        let blocks = self.reader.read();
        let block = blocks.iter().find(|block| block.label == label);
        block.expect("a block of this label").values[name]
    }

    /// Waits until a counter has this value: some are written after the frames were shown.
    pub(crate) fn expect(&self, label: &str, name: &str, value: u64) {
        let what = format!("{name} of {label} to become {value}");
        until(&what, || self.count(label, name) == value);
    }

    /// Sums a counter over all lanes.
    pub(crate) fn lanes(&self, name: &str) -> u64 {
        let lanes = self.reader.read().into_iter();
        let lanes = lanes.filter(|block| block.kind == "lane");
        lanes.map(|block| block.values[name]).sum()
    }

    /// Waits until every lane, woken if need be, has begun `n` rounds more.
    pub(crate) fn wait_for_rounds(&self, n: u64) {
        let lanes = self.fabric.lanes().len();
        let rounds = |lane: usize| self.count(&lane.to_string(), "rounds");
        let target: Vec<u64> = (0..lanes).map(|lane| rounds(lane) + n + 1).collect();
        until("rounds of every lane", || {
            self.fabric.lanes().iter().for_each(|lane| lane.wake.wake());
            (0..lanes).all(|lane| rounds(lane) >= target[lane])
        });
    }

    /// Waits until every lane sleeps, with no wake-up pending.
    pub(crate) fn wait_for_sleep(&self) {
        until("the lanes to sleep", || {
            let before = self.lanes("rounds");
            let asleep = self.are_asleep();
            std::thread::sleep(Duration::from_millis(1));
            asleep && self.are_asleep() && self.lanes("rounds") == before
        });
    }

    /// Returns `true` if all lanes wait in the kernel: one that polls or yields is running, even
    /// while others have its CPU.
    fn are_asleep(&self) -> bool {
        let waits = |lane: usize| {
            let thread = self.count(&lane.to_string(), "thread_id");
            let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
            stat.is_ok_and(|stat| stat.contains(") S "))
        };
        (0..self.fabric.lanes().len()).all(waits)
    }
}

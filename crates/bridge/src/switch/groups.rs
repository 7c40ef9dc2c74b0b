//! Members of VLANs: as bit sets for tests, and as lists for floods.
//!
//! Model: a set of ports for each VLAN, one cache line, and another without isolated ports, for
//! senders that are isolated. Lists are stored once for all VLANs with the same members.

use std::collections::HashMap;

use crate::switch::{MAX_PORTS, SwitchConfig};
use crate::{Flood, PortId};

/// VLAN ids, 0 (untagged) included; 4095 has no members ever.
const VIDS: usize = 4096;
/// A set of ports.
type Ports = [u64; MAX_PORTS / 64];
/// Ranges of lists: for senders that are not isolated and that are, for multicast and unknown
/// unicast.
type Lists = [[(u32, u32); 2]; 2];

/// The ports of each VLAN.
#[derive(Clone, Debug)]
pub(crate) struct Reach(Box<[Ports]>);

impl Reach {
    fn new() -> Self {
        Self(vec![[0; MAX_PORTS / 64]; VIDS].into())
    }

    fn insert(&mut self, vid: usize, port: PortId) {
        self.0[vid][port.index() / 64] |= 1 << (port.index() % 64);
    }

    /// Returns `true` if a port is in a VLAN's set.
    #[inline(always)]
    pub(crate) fn has(&self, vid: u16, port: PortId) -> bool {
        // A VID has 12 bits and a port number 9, so nothing is truncated.
        let word = self.0[usize::from(vid) % VIDS][port.index() / 64 % (MAX_PORTS / 64)];
        word >> (port.index() % 64) & 1 == 1
    }
}

/// Members of VLANs; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// Ports reachable from a port that is not isolated, and from one that is.
    pub(crate) reach: [Reach; 2],
    lists: Vec<PortId>,
    of_vid: Box<[Lists]>,
}

impl Groups {
    pub(crate) fn build(config: &SwitchConfig) -> Self {
        let mut reach = [Reach::new(), Reach::new()];
        for (port, settings) in config.ports() {
            for vid in (0..VIDS).filter(|vid| settings.vlans.contains(*vid as u16)) {
                reach[0].insert(vid, port);
                if !settings.isolated {
                    reach[1].insert(vid, port);
                }
            }
        }
        let mut lists = Vec::new();
        let mut of_members: HashMap<Ports, Lists> = HashMap::new();
        let of_vid = reach[0].0.iter().map(|members| {
            let list = || make_lists(config, members, &mut lists);
            *of_members.entry(*members).or_insert_with(list)
        });
        let of_vid = of_vid.collect();
        Self { reach, lists, of_vid }
    }

    /// Receivers of a flood, including the sender if it is a member.
    #[inline]
    pub(crate) fn list(&self, isolated: bool, vid: u16, flood: Flood) -> &[PortId] {
        let lists = self.of_vid.get(usize::from(vid)).copied().unwrap_or_default();
        let (start, end) = lists[usize::from(isolated)][usize::from(flood == Flood::Unknown)];
        self.lists.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Appends the four lists of a set of members.
fn make_lists(config: &SwitchConfig, members: &Ports, lists: &mut Vec<PortId>) -> Lists {
    let mut of = Lists::default();
    for (isolated, unknown) in [(false, false), (false, true), (true, false), (true, true)] {
        let start = lists.len() as u32;
        let wanted = config.ports().filter(|(port, settings)| {
            let member = members[port.index() / 64] >> (port.index() % 64) & 1 == 1;
            member && !(isolated && settings.isolated) && (!unknown || settings.flood_unknown)
        });
        lists.extend(wanted.map(|(port, _)| port));
        of[usize::from(isolated)][usize::from(unknown)] = (start, lists.len() as u32);
    }
    of
}

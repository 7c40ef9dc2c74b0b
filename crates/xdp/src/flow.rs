//! Flow rules of a network card, which steer frames for an address to a receive queue.
//!
//! Follows linux/ethtool.h, `struct ethtool_rxnfc`: a rule of type `ETHER_FLOW` with only the
//! destination address. Drivers without such rules return `EOPNOTSUPP`; the operator must then
//! steer in another way.

use std::os::fd::BorrowedFd;

use host::launcher::{self, Answer, ask};
use host::socket::{SocketKind, check};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::XdpError;
use crate::interface::{Interface, Interfaces, ethtool};

/// A rule on the card, for the life of this value. The rule of a killed process stays there; a
/// later process with the same rule takes it over.
#[derive(Debug)]
pub struct FlowRule {
    interfaces: Interfaces,
    interface: String,
    location: u32,
}

const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;

const ETHER_FLOW: u32 = 0x12;
/// The driver chooses the location of a rule, if it supports that.
const LOCATION_ANY: u32 = 0xffff_ffff;
const LOCATION_SPECIAL: u64 = 0x8000_0000;
/// Most rules that are read.
const RULES_MAX: usize = 1024;

/// Values or mask of a rule: `union ethtool_flow_union` and its extension.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fields {
    destination: [u8; 6],
    rest: [u8; 46],
    extension: [u8; 20],
}

const NO_FIELDS: Fields = Fields { destination: [0; 6], rest: [0; 46], extension: [0; 20] };

/// `struct ethtool_rx_flow_spec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rule {
    kind: u32,
    values: Fields,
    masks: Fields,
    queue: u64,
    location: u32,
}

/// `struct ethtool_rxnfc`, with room for the locations of rules.
#[repr(C)]
struct Request {
    cmd: u32,
    kind: u32,
    data: u64,
    rule: Rule,
    count: u32,
    locations: [u32; RULES_MAX],
}

impl Rule {
    fn new(mac: [u8; 6], queue: u32, location: u32) -> Rule {
        let values = Fields { destination: mac, ..NO_FIELDS };
        let masks = Fields { destination: [0xff; 6], ..NO_FIELDS };
        Rule { kind: ETHER_FLOW, values, masks, queue: queue.into(), location }
    }

    /// Returns `true` if it is equal except for its location.
    fn is(&self, other: &Rule) -> bool {
        let parts = |rule: &Rule| {
            let Fields { destination, rest, extension } = rule.masks;
            (rule.kind, rule.queue, rule.values.destination, destination, rest, extension)
        };
        parts(self) == parts(other)
    }
}

impl Request {
    fn new(cmd: u32, rule: Rule) -> Box<Request> {
        Box::new(Request { cmd, kind: 0, data: 0, rule, count: 0, locations: [0; RULES_MAX] })
    }
}

impl FlowRule {
    /// Steers frames for `mac` to `queue`, on an interface of the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// [`XdpError::NoFlowRules`] if the driver has none; another if it refuses this one.
    pub fn add(interface: &Interface, mac: [u8; 6], queue: u32) -> Result<FlowRule, XdpError> {
        let name = &interface.name;
        let error = |errno| match errno {
            Errno::OPNOTSUPP | Errno::INVAL => {
                XdpError::NoFlowRules { interface: name.clone(), queue }
            }
            errno => XdpError::of("adding a flow rule", name, "CAP_NET_ADMIN", errno),
        };
        let interfaces = Interfaces::here().map_err(error)?;
        let location = insert(&interfaces, name, Rule::new(mac, queue, 0)).map_err(error)?;
        Ok(FlowRule { interfaces, interface: name.clone(), location })
    }
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        let location = self.location;
        // Fails if the interface is gone, and the rule with it.
        let _ = change(&self.interfaces, &self.interface, FlowChange::Remove { location });
    }
}

/// Adds a rule, or finds an equal one; returns its location.
fn insert(interfaces: &Interfaces, name: &str, rule: Rule) -> Result<u32, Errno> {
    let mut counted = Request::new(GRXCLSRLCNT, rule);
    interfaces.ethtool(name, &mut *counted)?;
    let chooses = counted.data & LOCATION_SPECIAL != 0;
    let mut all = Request::new(GRXCLSRLALL, rule);
    all.count = counted.count.min(RULES_MAX as u32);
    interfaces.ethtool(name, &mut *all)?;
    let known = &all.locations[..RULES_MAX.min(all.count as usize)];
    for location in known {
        let mut there = Request::new(GRXCLSRULE, Rule { location: *location, ..rule });
        if interfaces.ethtool(name, &mut *there).is_ok() && there.rule.is(&rule) {
            return Ok(*location);
        }
    }
    let location = match chooses {
        true => LOCATION_ANY,
        // The last location has the lowest priority.
        false => last_free(all.data as u32, known).ok_or(Errno::NOSPC)?,
    };
    let (mac, queue) = (rule.values.destination, rule.queue as u32);
    change(interfaces, name, FlowChange::Insert { mac, queue, location })
}

/// A change of the flow rules.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum FlowChange {
    Insert { mac: [u8; 6], queue: u32, location: u32 },
    Remove { location: u32 },
}

impl FlowChange {
    /// Refuses to replace a rule, and to remove one that no daemon adds. `read` reads a rule.
    fn check(self, read: impl FnOnce(&mut Request) -> Result<(), Errno>) -> Result<(), Errno> {
        let (FlowChange::Insert { location, .. } | FlowChange::Remove { location }) = self;
        let mut there = Request::new(GRXCLSRULE, Rule::new([0; 6], 0, location));
        match self {
            FlowChange::Insert { location: LOCATION_ANY, .. } => Ok(()),
            FlowChange::Insert { .. } => match read(&mut there) {
                Ok(()) => Err(Errno::EXIST),
                // As the driver says that there is none.
                Err(Errno::NOENT | Errno::INVAL) => Ok(()),
                Err(errno) => Err(errno),
            },
            FlowChange::Remove { .. } => {
                read(&mut there)?;
                let Rule { values, queue, .. } = there.rule;
                let own = Rule::new(values.destination, queue as u32, location);
                if there.rule.is(&own) { Ok(()) } else { Err(Errno::PERM) }
            }
        }
    }
}

/// Adds or removes a flow rule for an address; tells its location.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeFlowRule {
    interface: String,
    change: FlowChange,
}

impl launcher::Request for ChangeFlowRule {
    const NAME: &'static str = "change-flow-rule";
    const DOES: &'static str = "adds or removes a flow rule that steers a MAC address to a queue, in the socket's namespace; replaces none";
    type Reply = u32;

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        check(*socket, SocketKind::Interfaces)?;
        launcher::check_named(&["xdp"], &self.interface)?;
        self.change.check(|rule| ethtool(*socket, &self.interface, rule))
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<u32> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        let mut request = match self.change {
            FlowChange::Insert { mac, queue, location } => {
                Request::new(SRXCLSRLINS, Rule::new(mac, queue, location))
            }
            FlowChange::Remove { location } => {
                Request::new(SRXCLSRLDEL, Rule::new([0; 6], 0, location))
            }
        };
        ethtool(*socket, &self.interface, &mut *request)?;
        Ok((request.rule.location, Vec::new()))
    }
}

fn change(interfaces: &Interfaces, name: &str, change: FlowChange) -> Result<u32, Errno> {
    let request = ChangeFlowRule { interface: name.to_owned(), change };
    Ok(ask(request, &[interfaces.socket()])?.0)
}

/// The last free one of `size` locations.
fn last_free(size: u32, taken: &[u32]) -> Option<u32> {
    (0..size).rev().find(|place| !taken.contains(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        use std::mem::offset_of;
        assert_eq!((size_of::<Rule>(), offset_of!(Rule, queue)), (168, 152));
        assert_eq!((offset_of!(Rule, masks), offset_of!(Rule, location)), (76, 160));
        assert_eq!((offset_of!(Request, rule), offset_of!(Request, count)), (16, 184));
        assert_eq!(offset_of!(Request, locations), 188);
    }

    #[test]
    fn rules_take_the_last_places() {
        assert_eq!(last_free(4, &[]), Some(3));
        assert_eq!(last_free(4, &[3, 1]), Some(2));
        assert_eq!(last_free(2, &[0, 1]), None);
        assert_eq!(last_free(0, &[]), None);
    }

    #[test]
    fn a_rule_is_known_again() {
        let rule = Rule::new([2, 0, 0, 0, 0, 1], 3, 7);
        assert!(rule.is(&Rule::new([2, 0, 0, 0, 0, 1], 3, 9)));
        assert!(!rule.is(&Rule::new([2, 0, 0, 0, 0, 2], 3, 7)));
        assert!(!rule.is(&Rule::new([2, 0, 0, 0, 0, 1], 4, 7)));
    }

    #[test]
    fn a_launcher_leaves_the_rules_of_others() {
        let mac = [2, 0, 0, 0, 0, 1];
        let insert = |location| FlowChange::Insert { mac, queue: 3, location };
        let remove = FlowChange::Remove { location: 7 };
        let none = |errno| move |_: &mut Request| Err(errno);
        for errno in [Errno::NOENT, Errno::INVAL] {
            assert_eq!(insert(7).check(none(errno)), Ok(()));
            assert_eq!(remove.check(none(errno)), Err(errno));
        }
        assert_eq!(insert(7).check(none(Errno::OPNOTSUPP)), Err(Errno::OPNOTSUPP));
        let mut other = Rule::new(mac, 3, 7);
        other.masks.destination[5] = 0;
        for (rule, removed) in [(Rule::new(mac, 3, 7), Ok(())), (other, Err(Errno::PERM))] {
            let found = |request: &mut Request| {
                request.rule = rule;
                Ok(())
            };
            assert_eq!(insert(7).check(found), Err(Errno::EXIST));
            assert_eq!(insert(LOCATION_ANY).check(found), Ok(()));
            assert_eq!(remove.check(found), removed);
        }
    }

    #[test]
    fn an_interface_without_rules_says_so() {
        let lo = Interface::find("lo").unwrap();
        let error = FlowRule::add(&lo, [2, 0, 0, 0, 0, 1], 0).unwrap_err();
        assert!(matches!(error, XdpError::NoFlowRules { queue: 0, .. }), "{error}");
    }
}

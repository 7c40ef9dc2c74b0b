//! The redirect program on an interface, and the maps it reads while it runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;

use crate::bpf::{self, Attach, LoadError, Map, MapKind};
use crate::error::XdpError;
use crate::groups::Groups;
use crate::interface::Interface;
use crate::program::{
    self, Address, KEY_LEN, Maps, RECORD_HEADER, RULE_LEN, Steered, SteeredQueues, VALUE_LEN,
};
use crate::socket::Handle;

/// Addresses that a filter may have: 255 VFs with as many addresses as a NIC has, twice.
pub const FILTER_MAX: u32 = 4096;

/// Bytes of the ring for copies of frames to groups: 2700 of them with an MTU of 1500.
const COPIES_LEN: u32 = 4 << 20;
/// Longest packet that is copied; what takes more is not for a group.
const COPY_MTU_MAX: u32 = 16 << 10;
/// Bytes of a frame on top of its packet: two addresses, two tags, a type.
const FRAME_OVERHEAD: u32 = 22;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// In the driver, before the kernel allocates anything for a frame.
    Native,
    /// Behind the driver, for any interface and slower, because the driver refused.
    Generic {
        /// What it said.
        refusal: Errno,
    },
}

/// What the program shall do.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedirectSpec<'a> {
    /// Redirects only frames for these; the host keeps the others, and gets a copy of those to
    /// groups ([`Redirect::groups`]). Can be changed later. Linux 5.18.
    pub filter: Option<&'a [Address]>,
    /// The first queue that [`Redirect::steer`] may be used for, if any.
    pub steered_from: Option<u32>,
}

/// The program, attached for as long as this lives: when the process ends, however it does, the
/// kernel takes the program off.
#[derive(Debug)]
pub struct Redirect {
    interface: Interface,
    sockets: Map,
    filter: Option<Filter>,
    groups: Option<Groups>,
    /// Rules of steered queues, and which is the first.
    steered: Option<(Map, u32)>,
    driver: Driver,
    fragments: bool,
    /// Kept open: the last descriptor holds the program to the interface.
    _link: OwnedFd,
}

#[derive(Debug)]
struct Filter {
    map: Map,
    addresses: BTreeSet<Address>,
}

const CAPABILITY: &str = "CAP_BPF and CAP_NET_ADMIN";

impl Redirect {
    /// Loads and attaches the program to `interface`, which must be of the calling thread's network
    /// namespace: in the driver where it can. Every frame still goes to the host until a queue is
    /// given its socket ([`Redirect::insert`]). Many devices lose their link for a moment.
    pub fn attach(interface: &Interface, spec: &RedirectSpec<'_>) -> Result<Redirect, XdpError> {
        // Asked again: the interface may have been looked at long ago.
        let interface = Interface::find(&interface.name)?;
        refuse_if_attached(&interface)?;
        let name = &interface.name;
        let map = |kind, key_size, value_size, entries| {
            Map::create(kind, "shunt", key_size, value_size, entries)
                .map_err(|errno| XdpError::of("making a BPF map", name, CAPABILITY, errno))
        };
        let queues = interface.rx_queues;
        let sockets = map(MapKind::Sockets, 4, 4, queues)?;
        let rules = || map(MapKind::Array, 4, RULE_LEN, queues);
        let steered = spec.steered_from.map(|first| Ok::<_, XdpError>((rules()?, first)));
        let steered = steered.transpose()?;
        let (filter, copies) = match spec.filter {
            Some(addresses) => {
                let map = map(MapKind::Hash, KEY_LEN, VALUE_LEN, FILTER_MAX)?;
                let mut filter = Filter { map, addresses: BTreeSet::new() };
                filter.change(name, addresses)?;
                (Some(filter), Some(map_of_copies(&interface)?))
            }
            None => (None, None),
        };
        let record = record_len(&interface);
        let by_filter = filter.as_ref().zip(copies.as_ref()).map(|(filter, copies)| {
            program::Filter { addresses: filter.map.as_fd(), copies: copies.as_fd(), record }
        });
        let maps = Maps {
            sockets: sockets.as_fd(),
            filter: by_filter,
            steered: steered
                .as_ref()
                .map(|(rules, first)| SteeredQueues { rules: rules.as_fd(), first: *first }),
        };
        let (program, fragments) = load(&interface, maps)?;
        let groups = copies.map(|copies| Groups::map(copies, COPIES_LEN)).transpose();
        let groups =
            groups.map_err(|errno| XdpError::of("mapping a BPF ring", name, CAPABILITY, errno))?;
        let (link, driver) = attach(&interface, &program)?;
        let _link = link;
        Ok(Redirect { interface, sockets, filter, groups, steered, driver, fragments, _link })
    }

    /// Where it runs.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Whether the kernel hands it frames in several pieces (Linux 5.18).
    pub fn takes_fragments(&self) -> bool {
        self.fragments
    }

    /// The copies of frames to groups, of all queues, if there is a filter; once.
    pub fn groups(&mut self) -> Option<Groups> {
        self.groups.take()
    }

    /// Gives a queue its socket, or another one: from now on its frames go there. The kernel takes
    /// the entry out when the socket is closed.
    pub fn insert(&self, queue: u32, socket: &Handle) -> Result<(), XdpError> {
        let fd = socket.as_fd().as_raw_fd();
        let set = self.sockets.set(&queue.to_ne_bytes(), &fd.to_ne_bytes());
        set.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Leaves the queue's frames to the host.
    pub fn remove(&self, queue: u32) -> Result<(), XdpError> {
        let removed = self.sockets.remove(&queue.to_ne_bytes());
        removed.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Redirects of a queue's frames only untagged ones to one address, up to a length; whatever
    /// the filter says. `None`: it is a queue like the others again. What a redirect without
    /// steered queues refuses as unsupported.
    pub fn steer(&self, queue: u32, rule: Option<Steered>) -> Result<(), XdpError> {
        let value = rule.map_or([0; RULE_LEN], Steered::rule);
        let set = match &self.steered {
            Some((rules, first)) if queue >= *first => rules.set(&queue.to_ne_bytes(), &value),
            _ => Err(Errno::OPNOTSUPP),
        };
        set.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Replaces the filter's addresses. New ones are in before old ones are out, so that what is in
    /// both is never passed. What a redirect without a filter refuses as unsupported.
    pub fn set_filter(&mut self, addresses: &[Address]) -> Result<(), XdpError> {
        let name = &self.interface.name;
        match &mut self.filter {
            Some(filter) => filter.change(name, addresses),
            None => Err(XdpError::of("changing the filter", name, CAPABILITY, Errno::OPNOTSUPP)),
        }
    }

    fn queue_error(&self, queue: u32, errno: Errno) -> XdpError {
        let name = &self.interface.name;
        match errno {
            Errno::TOOBIG | Errno::NOENT | Errno::INVAL => {
                let queues = self.interface.rx_queues;
                XdpError::NoQueue { interface: name.clone(), queue, queues }
            }
            errno => XdpError::of("changing a BPF map", name, CAPABILITY, errno),
        }
    }
}

impl Filter {
    fn change(&mut self, interface: &str, addresses: &[Address]) -> Result<(), XdpError> {
        let wanted: BTreeSet<_> = addresses.iter().map(|address| address.normal()).collect();
        let together = wanted.union(&self.addresses).count();
        if together > FILTER_MAX as usize {
            let interface = interface.to_owned();
            return Err(XdpError::FilterFull { interface, max: FILTER_MAX });
        }
        let error = |errno| XdpError::of("changing the filter", interface, CAPABILITY, errno);
        for address in &wanted {
            if !self.addresses.contains(address) {
                self.map.set(&address.key(), &address.value()).map_err(error)?;
                self.addresses.insert(*address);
            }
        }
        while let Some(address) = self.addresses.difference(&wanted).next().copied() {
            self.map.remove(&address.key()).map_err(error)?;
            self.addresses.remove(&address);
        }
        Ok(())
    }
}

/// Bytes of a record for a copy: as long as the interface's frames are now.
fn record_len(interface: &Interface) -> u32 {
    (RECORD_HEADER + interface.mtu.min(COPY_MTU_MAX) + FRAME_OVERHEAD).next_multiple_of(8)
}

fn map_of_copies(interface: &Interface) -> Result<Map, XdpError> {
    let (name, ring) = (interface.name.clone(), COPIES_LEN);
    Map::create(MapKind::Ring, "shunt", 0, 0, ring).map_err(|errno| match errno {
        Errno::INVAL => {
            XdpError::NotSupported { what: "a filter", interface: name, needs: "Linux 5.18" }
        }
        errno => XdpError::of("making a BPF ring", &name, CAPABILITY, errno),
    })
}

fn refuse_if_attached(interface: &Interface) -> Result<(), XdpError> {
    match interface.attached {
        Some(attached) => Err(XdpError::Attached {
            interface: interface.name.clone(),
            id: attached.id,
            mode: attached.mode,
        }),
        None => Ok(()),
    }
}

/// Loads the program; also says whether it takes frames in several pieces.
fn load(interface: &Interface, maps: Maps<'_>) -> Result<(OwnedFd, bool), XdpError> {
    let load = |fragments| {
        let code = program::redirect(maps, fragments);
        bpf::load("shunt_redirect", &code, fragments)
    };
    // A kernel that does not know fragments refuses the flag.
    let loaded = load(true).map(|program| (program, true)).or_else(|error| match error.errno {
        Errno::INVAL if maps.filter.is_none() => load(false).map(|program| (program, false)),
        _ => Err(error),
    });
    let name = &interface.name;
    loaded.map_err(|LoadError { errno, log }| match errno {
        Errno::PERM | Errno::ACCESS if log.is_empty() => {
            XdpError::of("loading the redirect program", name, CAPABILITY, errno)
        }
        Errno::INVAL if log.is_empty() && maps.filter.is_some() => XdpError::NotSupported {
            what: "a filter",
            interface: name.clone(),
            needs: "Linux 5.18",
        },
        source => XdpError::Refused { interface: name.clone(), log, source },
    })
}

/// Attaches it in the driver, else behind it.
fn attach(interface: &Interface, program: &OwnedFd) -> Result<(OwnedFd, Driver), XdpError> {
    let try_as = |how| bpf::attach(program.as_fd(), interface.index, how);
    let attached = match try_as(Attach::Native) {
        Ok(link) => return Ok((link, Driver::Native)),
        // Not the driver's word: it would be the same behind it.
        Err(errno @ (Errno::PERM | Errno::BUSY | Errno::EXIST | Errno::NODEV)) => Err(errno),
        Err(refusal) => try_as(Attach::Generic).map(|link| (link, Driver::Generic { refusal })),
    };
    attached.or_else(|errno| {
        if matches!(errno, Errno::BUSY | Errno::EXIST) {
            refuse_if_attached(&Interface::find(&interface.name)?)?;
        }
        Err(XdpError::of("attaching the redirect program", &interface.name, CAPABILITY, errno))
    })
}

//! The redirect program on an interface, and the maps it reads while it runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;

use crate::bpf::{self, Attach, LoadError, Map, MapKind};
use crate::error::XdpError;
use crate::interface::Interface;
use crate::program::{self, Address, KEY_LEN, Maps};
use crate::socket::Handle;

/// Addresses that a filter may have: 255 VFs with as many addresses as a NIC has, twice.
pub const FILTER_MAX: u32 = 4096;

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
    /// Redirects only frames for these; the host keeps the others. Can be changed later.
    pub filter: Option<&'a [Address]>,
    /// Whether [`Redirect::set_longest`] will be used.
    pub longest: bool,
}

/// The program, attached for as long as this lives: when the process ends, however it does, the
/// kernel takes the program off.
#[derive(Debug)]
pub struct Redirect {
    interface: Interface,
    sockets: Map,
    filter: Option<Filter>,
    longest: Option<Map>,
    driver: Driver,
    fragments: bool,
    /// Kept open: the last descriptor holds the program to the interface.
    _link: OwnedFd,
}

#[derive(Debug)]
struct Filter {
    map: Map,
    keys: BTreeSet<[u8; KEY_LEN]>,
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
        let longest = spec.longest.then(|| map(MapKind::Array, 4, 4, queues)).transpose()?;
        let filter = match spec.filter {
            Some(addresses) => {
                let map = map(MapKind::Hash, KEY_LEN, 1, FILTER_MAX)?;
                let mut filter = Filter { map, keys: BTreeSet::new() };
                filter.change(name, addresses)?;
                Some(filter)
            }
            None => None,
        };
        let maps = Maps {
            sockets: sockets.as_fd(),
            filter: filter.as_ref().map(|filter| filter.map.as_fd()),
            longest: longest.as_ref().map(Map::as_fd),
        };
        let (program, fragments) = load(&interface, maps)?;
        let (link, driver) = attach(&interface, &program)?;
        Ok(Redirect { interface, sockets, filter, longest, driver, fragments, _link: link })
    }

    /// Where it runs.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Whether the kernel hands it frames in several pieces (Linux 5.18).
    pub fn takes_fragments(&self) -> bool {
        self.fragments
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

    /// Leaves frames of more than `bytes` to the host; `None` takes any length. What a redirect
    /// without `longest` refuses as unsupported.
    pub fn set_longest(&self, queue: u32, bytes: Option<u32>) -> Result<(), XdpError> {
        let value = bytes.unwrap_or(0).to_ne_bytes();
        let set = match &self.longest {
            Some(map) => map.set(&queue.to_ne_bytes(), &value),
            None => Err(Errno::OPNOTSUPP),
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
        let wanted: BTreeSet<_> = addresses.iter().map(|address| address.key()).collect();
        let together = wanted.union(&self.keys).count();
        if together > FILTER_MAX as usize {
            let interface = interface.to_owned();
            return Err(XdpError::FilterFull { interface, max: FILTER_MAX });
        }
        let error = |errno| XdpError::of("changing the filter", interface, CAPABILITY, errno);
        for key in &wanted {
            if !self.keys.contains(key) {
                self.map.set(key, &[1]).map_err(error)?;
                self.keys.insert(*key);
            }
        }
        while let Some(key) = self.keys.difference(&wanted).next().copied() {
            self.map.remove(&key).map_err(error)?;
            self.keys.remove(&key);
        }
        Ok(())
    }
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
        Errno::INVAL => load(false).map(|program| (program, false)),
        _ => Err(error),
    });
    let name = &interface.name;
    loaded.map_err(|LoadError { errno, log }| match errno {
        Errno::PERM | Errno::ACCESS if log.is_empty() => {
            XdpError::of("loading the redirect program", name, CAPABILITY, errno)
        }
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

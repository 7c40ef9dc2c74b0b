//! The redirect program on an interface, and the maps it reads while it runs.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use host::launcher::{Answer, Request, ask};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::bpf::{self, Attach, LoadError, Map, MapKind};
use crate::error::XdpError;
use crate::groups::Groups;
use crate::handle::SocketHandle;
use crate::interface::Interface;
use crate::program::{
    self, Address, KEY_LEN, Maps, RECORD_HEADER, RULE_LEN, SteeredQueues, SteeringRule, VALUE_LEN,
};

/// Most addresses of a filter: twice those of 255 VFs with a NIC's limit each.
pub const FILTER_MAX: u32 = 4096;

/// Bytes of the ring for copies of frames to groups: 2700 of them with an MTU of 1500.
const COPIES_LEN: u32 = 4 << 20;
/// Longest packet that is copied; longer ones are not multicast.
const COPY_MTU_MAX: u32 = 16 << 10;
/// Most bytes that a frame adds to its packet: two addresses, two tags, a type.
const FRAME_OVERHEAD: u32 = 22;

/// Place where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramMode {
    /// In the driver, before the kernel allocates anything for a frame.
    Native,
    /// After the driver, for any interface and slower, because the driver refused.
    Generic {
        /// The driver's error.
        refusal: Errno,
    },
}

/// Settings of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedirectSpec<'a> {
    /// Redirects only frames for these addresses; the host keeps the others, and also receives
    /// those to groups ([`Redirect::groups`]). Can be changed later. Linux 5.18.
    pub filter: Option<&'a [Address]>,
    /// First queue for [`Redirect::steer`], if any.
    pub steered_from: Option<u32>,
}

/// The program, attached for the life of this value: the kernel detaches it when the process ends,
/// however it ends.
#[derive(Debug)]
pub struct Redirect {
    interface: Interface,
    sockets: Map,
    filter: Option<Filter>,
    groups: Option<Groups>,
    /// Rules of steered queues, and the first queue.
    steered: Option<(Map, u32)>,
    driver: ProgramMode,
    fragments: bool,
    /// Kept open: the last descriptor keeps the program attached.
    _link: OwnedFd,
}

#[derive(Debug)]
struct Filter {
    map: Map,
    addresses: BTreeSet<Address>,
}

const CAPABILITY: &str = "CAP_BPF and CAP_NET_ADMIN";

impl Redirect {
    /// Loads and attaches the program to `interface`, which must be in the calling thread's network
    /// namespace: in the driver if possible. Every frame goes to the host until its queue has a
    /// socket ([`Redirect::insert`]). Many devices lose their link for a moment.
    pub fn attach(interface: &Interface, spec: &RedirectSpec<'_>) -> Result<Redirect, XdpError> {
        // Read again: the earlier reading may be old.
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

    /// Place where the program runs.
    pub fn driver(&self) -> ProgramMode {
        self.driver
    }

    /// Returns `true` if it takes frames in several fragments (Linux 5.18).
    pub fn takes_fragments(&self) -> bool {
        self.fragments
    }

    /// Copies of frames to groups, of all queues, if there is a filter; returned once.
    pub fn groups(&mut self) -> Option<Groups> {
        self.groups.take()
    }

    /// Sets the socket of a queue, which receives its frames from now on. The kernel removes the
    /// entry when the socket is closed.
    pub fn insert(&self, queue: u32, socket: &SocketHandle) -> Result<(), XdpError> {
        let fd = socket.as_fd().as_raw_fd();
        let set = self.sockets.set(&queue.to_ne_bytes(), &fd.to_ne_bytes());
        set.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Removes a queue's socket: the host receives its frames.
    pub fn remove(&self, queue: u32) -> Result<(), XdpError> {
        let removed = self.sockets.remove(&queue.to_ne_bytes());
        removed.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Redirects only a queue's untagged frames to one address, up to a length, whatever the filter
    /// says. `None` makes it an ordinary queue again. A redirect without steered queues returns
    /// "not supported".
    pub fn steer(&self, queue: u32, rule: Option<SteeringRule>) -> Result<(), XdpError> {
        let value = rule.map_or([0; RULE_LEN], SteeringRule::rule);
        let set = match &self.steered {
            Some((rules, first)) if queue >= *first => rules.set(&queue.to_ne_bytes(), &value),
            _ => Err(Errno::OPNOTSUPP),
        };
        set.map_err(|errno| self.queue_error(queue, errno))
    }

    /// Replaces the filter's addresses. New ones are added before old ones are removed, so that
    /// addresses in both are always redirected. A redirect without a filter returns "not
    /// supported".
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

/// Bytes of a record for a copy: the interface's current longest frame.
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
        Some(attached) => Err(XdpError::AttachedProgram {
            interface: interface.name.clone(),
            id: attached.id,
            mode: attached.mode,
        }),
        None => Ok(()),
    }
}

/// Loads the program; also returns `true` if it takes frames in several fragments.
fn load(interface: &Interface, maps: Maps<'_>) -> Result<(OwnedFd, bool), XdpError> {
    let load = |fragments| {
        let record = maps.filter.map(|filter| filter.record);
        let first = maps.steered.map(|steered| steered.first);
        let filter = maps.filter.map(|filter| [filter.addresses, filter.copies]);
        let mut fds = vec![maps.sockets];
        fds.extend(filter.into_iter().flatten());
        fds.extend(maps.steered.map(|steered| steered.rules));
        let failed = |errno| LoadError { errno, log: String::new() };
        let (loaded, fds) = ask(LoadRedirect { record, first, fragments }, &fds).map_err(failed)?;
        loaded.map_err(|(errno, log)| LoadError { errno: Errno::from_raw_os_error(errno), log })?;
        fds.into_iter().next().ok_or_else(|| failed(Errno::BADMSG))
    };
    // A kernel without fragment support rejects the flag.
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

/// Loads the redirect program, which is assembled here, over maps: sockets, those of the filter,
/// and rules of steered queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadRedirect {
    /// Bytes of a record of the filter's copies, with a filter.
    record: Option<u32>,
    /// First steered queue, if there are any.
    first: Option<u32>,
    fragments: bool,
}

impl Request for LoadRedirect {
    const NAME: &'static str = "load-redirect";
    const DOES: &'static str = "loads the redirect program, which the launcher assembles";
    type Reply = Result<(), (i32, String)>;

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<Result<(), (i32, String)>> {
        let mut fds = fds.iter().copied();
        let mut next = || fds.next().ok_or(Errno::INVAL);
        let sockets = next()?;
        let filter = self.record.map(|record| {
            Ok::<_, Errno>(program::Filter { addresses: next()?, copies: next()?, record })
        });
        let filter = filter.transpose()?;
        let steered =
            self.first.map(|first| Ok::<_, Errno>(SteeredQueues { rules: next()?, first }));
        let maps = Maps { sockets, filter, steered: steered.transpose()? };
        let code = program::redirect(maps, self.fragments);
        match bpf::load("shunt_redirect", &code, self.fragments) {
            Ok(program) => Ok((Ok(()), vec![program])),
            Err(LoadError { errno, log }) => Ok((Err((errno.raw_os_error(), log)), Vec::new())),
        }
    }
}

/// Attaches it in the driver, else generically.
fn attach(interface: &Interface, program: &OwnedFd) -> Result<(OwnedFd, ProgramMode), XdpError> {
    let try_as = |how| bpf::attach(program.as_fd(), interface.index, how);
    let attached = match try_as(Attach::Native) {
        Ok(link) => return Ok((link, ProgramMode::Native)),
        // Not an error of the driver: generic mode would fail as well.
        Err(errno @ (Errno::PERM | Errno::BUSY | Errno::EXIST | Errno::NODEV)) => Err(errno),
        Err(refusal) => {
            try_as(Attach::Generic).map(|link| (link, ProgramMode::Generic { refusal }))
        }
    };
    attached.or_else(|errno| {
        if matches!(errno, Errno::BUSY | Errno::EXIST) {
            refuse_if_attached(&Interface::find(&interface.name)?)?;
        }
        Err(XdpError::of("attaching the redirect program", &interface.name, CAPABILITY, errno))
    })
}

//! Errors with their remedies.

use rustix::io::Errno;

/// Reasons that an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// No interface of this name in this network namespace.
    #[error("no interface {0:?} in this network namespace; `ip link` lists those there are")]
    NoInterface(String),
    /// The process lacks a permission.
    #[error("{call} for {interface} is not permitted; run as root, or grant {capability}")]
    NotPermitted {
        /// Operation asked of the kernel.
        call: &'static str,
        /// The interface.
        interface: String,
        /// Missing capability.
        capability: &'static str,
    },
    /// The kernel does not support it.
    #[error("{what} for {interface} needs {needs}; use packet:{interface} instead")]
    NotSupported {
        /// Feature asked for.
        what: &'static str,
        /// The interface.
        interface: String,
        /// Kernel version or configuration needed.
        needs: &'static str,
    },
    /// Another program has the interface.
    #[error(
        "XDP program {id} is attached to {interface} already; stop the process that attached it, or \
         detach it with `ip link set dev {interface} {mode} off` (`bpftool prog show id {id}` \
         shows it)"
    )]
    AttachedProgram {
        /// The interface.
        interface: String,
        /// The program's id.
        id: u32,
        /// Mode of attachment, as shown by `ip link`.
        mode: &'static str,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of {interface} has an AF_XDP socket already; stop the process that uses it"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has no such queue.
    #[error(
        "{interface} has no receive queue {queue}, it has {queues}; configure fewer, or add some with \
         `ethtool -L {interface} combined N`"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u32,
        /// Queues there are.
        queues: u32,
    },
    /// The driver has no rules that steer frames to a queue.
    #[error(
        "the driver of {interface} has no rules for destination addresses; steer the frames to queue \
         {queue} in another way"
    )]
    NoFlowRules {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// Zero-copy was required.
    #[error(
        "the driver of {interface} has no zero-copy for queue {queue}; set zero_copy to auto, or \
         update the driver"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface is down.
    #[error("{0} is down; `ip link set dev {0} up`")]
    Down(String),
    /// The kernel would reject the memory.
    #[error("memory of {size} bytes in chunks of {chunk} bytes is unusable: {reason}")]
    BadUmem {
        /// Bytes.
        size: u64,
        /// Bytes of a chunk.
        chunk: u32,
        /// Rule that it breaks.
        reason: &'static str,
    },
    /// A ring of an impossible size.
    #[error("ring of {0} entries; allowed: powers of two from 1 to 32768")]
    BadRing(u32),
    /// The memory could not be pinned.
    #[error(
        "the kernel cannot pin {size} bytes for {interface}; free some memory, or raise the limit \
         (ulimit -l, LimitMEMLOCK=), or grant CAP_IPC_LOCK"
    )]
    NoMemory {
        /// The interface.
        interface: String,
        /// Bytes.
        size: u64,
    },
    /// The filter is full.
    #[error("the filter of {interface} has at most {max} addresses; remove the filter")]
    FilterFull {
        /// The interface.
        interface: String,
        /// Its limit.
        max: u32,
    },
    /// The verifier rejected the program: a bug here, or a kernel that is too old.
    #[error("the kernel rejected the redirect program for {interface}; verifier: {log}")]
    Refused {
        /// The interface.
        interface: String,
        /// The last lines of the verifier's log.
        log: String,
        /// The kernel's error.
        #[source]
        source: Errno,
    },
    /// The kernel returned another error.
    #[error("{call} for {interface} failed")]
    Kernel {
        /// Operation asked of the kernel.
        call: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: Errno,
    },
}

impl XdpError {
    /// The usual error of a call for an interface; `capability` is needed for it.
    pub(crate) fn of(
        call: &'static str,
        interface: &str,
        capability: &'static str,
        source: Errno,
    ) -> XdpError {
        let interface = interface.to_owned();
        match source {
            Errno::PERM | Errno::ACCESS => XdpError::NotPermitted { call, interface, capability },
            Errno::NODEV => XdpError::NoInterface(interface),
            Errno::NETDOWN => XdpError::Down(interface),
            source => XdpError::Kernel { call, interface, source },
        }
    }
}

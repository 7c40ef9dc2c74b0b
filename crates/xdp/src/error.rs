//! What can go wrong, and what to do about it.

use rustix::io::Errno;

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// No interface of this name in this network namespace.
    #[error("no interface {0:?} in this network namespace; `ip link` lists those there are")]
    NoInterface(String),
    /// The process may not do this.
    #[error("{call} for {interface} is not permitted; run as root, or grant {capability}")]
    NotPermitted {
        /// What was asked of the kernel.
        call: &'static str,
        /// The interface.
        interface: String,
        /// What the process lacks.
        capability: &'static str,
    },
    /// The kernel cannot do this.
    #[error("{what} for {interface} needs {needs}; use packet:{interface} instead")]
    NotSupported {
        /// What was asked for.
        what: &'static str,
        /// The interface.
        interface: String,
        /// Version or configuration.
        needs: &'static str,
    },
    /// Another program has the interface.
    #[error(
        "XDP program {id} is attached to {interface} already; end the process that attached it, or \
         take it off with `ip link set dev {interface} {mode} off` (`bpftool prog show id {id}` \
         tells what it is)"
    )]
    Attached {
        /// The interface.
        interface: String,
        /// The program's number.
        id: u32,
        /// How it is attached, as `ip link` says it.
        mode: &'static str,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of {interface} has an AF_XDP socket already; end the process that holds it"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has no such queue.
    #[error(
        "{interface} has no receive queue {queue}, it has {queues}; ask for fewer, or add some with \
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
    /// The driver cannot be told which frames come by a queue.
    #[error(
        "the driver of {interface} takes no rule for a destination address; see to it that the frames \
         come by queue {queue} in another way"
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
    /// The memory cannot be given to the kernel as it is.
    #[error("memory of {size} bytes in chunks of {chunk} cannot hold frames: {reason}")]
    BadUmem {
        /// Bytes.
        size: u64,
        /// Bytes of a chunk.
        chunk: u32,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A ring of an impossible size.
    #[error("a ring of {0} entries is not possible; sizes are powers of two from 1 to 32768")]
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
    #[error("the filter of {interface} holds at most {max} addresses; do without a filter")]
    FilterFull {
        /// The interface.
        interface: String,
        /// Its limit.
        max: u32,
    },
    /// The verifier refused the program, which is a bug here or a kernel that is too old.
    #[error("the kernel refused the redirect program for {interface}, its verifier said: {log}")]
    Refused {
        /// The interface.
        interface: String,
        /// The last lines of the verifier's log.
        log: String,
        /// The kernel's word.
        #[source]
        source: Errno,
    },
    /// The kernel refused for another reason.
    #[error("{call} for {interface} failed")]
    Kernel {
        /// What was asked of the kernel.
        call: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's word.
        #[source]
        source: Errno,
    },
}

impl XdpError {
    /// What most calls for an interface fail by; `capability` is what they need.
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

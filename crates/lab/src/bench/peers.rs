//! Programs that are measured beside Shunt: started, stopped for a while, resumed and ended by the
//! lab.
//!
//! # Model
//! A [`Peer`] is a process that the lab did not write: testpmd, Open vSwitch, QEMU. The kernel kills it
//! when the lab ends in whatever way, and its standard output is read line by line. The kernel's
//! own bridge ([`LinuxBridge`]) has no process. Everything that a peer needs of the machine
//! ([`Hugepages`], interfaces, a directory) is given back on drop.
//!
//! # Limits
//! Needs the programs `setpriv`, `stdbuf` and `taskset` (util-linux and coreutils). A lab that is
//! killed by SIGKILL gives neither huge pages nor directories back.

pub mod hugepages;
pub mod linux_bridge;
pub mod ovs;
pub mod process;
pub mod qemu;
pub mod testpmd;
pub mod veths;

pub use hugepages::Hugepages;
pub use linux_bridge::LinuxBridge;
pub use ovs::Ovs;
pub use process::{CpuWait, Peer, is_installed, pause, prefer, resume};
pub use qemu::{Qemu, QemuRings};
pub use testpmd::{GuestPort, Testpmd};
pub use veths::Veths;

//! Programs that are compared with Shunt: the lab starts, pauses, resumes and ends them.
//!
//! # Model
//! A [`Peer`] is a process of another project: testpmd, Open vSwitch, QEMU. The kernel kills it
//! when the lab ends for any reason, and its standard output is read line by line. The kernel's own
//! bridge ([`LinuxBridge`]) has no process. All resources of a peer ([`Hugepages`], interfaces, a
//! directory) are released on drop.
//!
//! # Limits
//! Needs the programs `setpriv`, `stdbuf` and `taskset` (util-linux and coreutils). A lab killed by
//! SIGKILL releases neither huge pages nor directories.

use std::time::Duration;

use anyhow::Result;

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

/// Waits until a counter is constant, at most 5 s; returns it. Frames in flight end, so it
/// converges.
///
/// # Errors
/// Those of `count`.
fn settled(before: u64, mut count: impl FnMut() -> Result<u64>) -> Result<u64> {
    const TURN: Duration = Duration::from_millis(50);
    const SAME: u32 = 4;
    let (mut last, mut same) = (before, 0);
    for _ in 0..100 {
        std::thread::sleep(TURN);
        let now = count()?;
        // A slow guest may not have begun: it gets more time before its first frame.
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same >= if now == before { 5 * SAME } else { SAME } {
            break;
        }
    }
    Ok(last)
}

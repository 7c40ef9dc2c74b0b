//! Two pairs of virtual interfaces (veth): ports of a switch in the kernel's network, and of its
//! guest.
//!
//! # Model
//! Both ends are in the lab's network namespace. Frames sent on the guest's end of a pair arrive at
//! the switch's end, and back. The guest's ends have its addresses. The namespace carries only the
//! guest's frames: IPv6 is off, and no interface has an IP address. Netfilter does not see frames
//! that the kernel's bridge forwards.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use host::interface::Interfaces;
use wire::Mac;

use host::links::Links;
use traffic::netns;

/// Settings of the namespace; some files are missing on some machines.
const SILENT: [(&str, &str); 5] = [
    ("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"),
    ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"),
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-arptables", "0"),
];

/// Two veth pairs, removed when dropped.
#[derive(Debug)]
pub struct Veths {
    /// Ends of the switch.
    pub switch: [String; 2],
    /// Ends of the guest.
    pub guest: [String; 2],
}

impl Veths {
    /// Makes both pairs in the lab's namespace; all interfaces are up.
    ///
    /// # Errors
    /// The machine allows no namespace, or the kernel has no veth.
    pub fn new(macs: [Mac; 2]) -> Result<Veths> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        netns::enter().map_err(anyhow::Error::msg)?;
        for (file, value) in SILENT {
            if fs::exists(file).unwrap_or(false) {
                fs::write(file, value).with_context(|| format!("cannot write {file}"))?;
            }
        }
        let numbers = [(); 2].map(|()| NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = |of: &str| numbers.map(|number| format!("{of}{number}"));
        let veths = Veths { switch: name("port"), guest: name("guest") };
        let (mut links, interfaces) = (Links::open()?, Interfaces::of(None)?);
        for ((switch, guest), mac) in veths.switch.iter().zip(&veths.guest).zip(macs) {
            links.add_pair(switch, guest, std::process::id())?;
            interfaces.set_mac(guest, mac.0)?;
            interfaces.set_up(guest, true)?;
        }
        Ok(veths)
    }
}

impl Drop for Veths {
    fn drop(&mut self) {
        let Ok(mut links) = Links::open() else { return };
        for name in &self.switch {
            let _ = links.remove(name);
        }
    }
}

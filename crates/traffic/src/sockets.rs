//! Traffic over the sockets of a guest's kernel: TCP and UDP, measured at the receiver.
//!
//! A guest's kernel is a network namespace that this process makes and that ends with it. It has
//! `lo`; the device that carries its frames moves an interface named `eth0` into it before the
//! parent gives the start. The receiver (or requester) measures: warm-up, [`Event::Begin`], the
//! measured time, [`Event::End`], cool-down, and its result. The other end works until it is
//! killed.
//!
//! File copies ([`SocketRole::Serve`], [`SocketRole::Fetch`]) have their own sequence, documented
//! in the module `file`.
//!
//! A process in the namespace of another ([`NetNamespace::Of`]) reaches it over `lo`: the
//! self-test, as no path can exceed the rate of both ends without a path between them.

mod common;
mod datagram;
mod file;
mod request;
mod stream;

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use host::interface::Interfaces;
use host::links::{LinkAddress, Links};
use wire::Mac;

use crate::netns;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::sockets::{NetNamespace, SocketRole, SocketSpec};

/// Prefix length of the guests' network.
const PREFIX: u8 = 24;

/// Runs one end; the module's documentation lists its events.
pub fn run(spec: &SocketSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let eth0 = enter(&spec.room)?;
    let file = match spec.part {
        SocketRole::Serve(mib) => Some(file::SharedFile::random(mib)?),
        _ => None,
    };
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    if let Some((ip, mac)) = eth0 {
        let interfaces = Interfaces::of(None)?;
        interfaces.set_mac("eth0", mac.0)?;
        interfaces.set_up("eth0", true)?;
        let address = LinkAddress { ip: ip.into(), prefix_len: PREFIX };
        Links::open()?.add_address("eth0", address)?;
    }
    match (&spec.part, spec.load.tcp) {
        (SocketRole::Send(to), true) => stream::send(*to, &spec.load),
        (SocketRole::Send(to), false) => datagram::send(*to, &spec.load),
        (SocketRole::Receive(times), true) => stream::receive(&spec.load, times),
        (SocketRole::Receive(times), false) => datagram::receive(&spec.load, times),
        (SocketRole::Ask(to, times), _) => request::ask(*to, &spec.load, times),
        (SocketRole::Answer, _) => request::answer(&spec.load),
        (SocketRole::Serve(_), _) => file::serve(&file.context("a server has a file")?, &spec.load),
        (SocketRole::Fetch(from), _) => file::fetch(*from, &spec.load),
    }
}

/// Enters the namespace; returns the addresses of its `eth0`.
fn enter(room: &NetNamespace) -> Result<Option<(Ipv4Addr, Mac)>> {
    match room {
        NetNamespace::Own { ip, mac } => {
            netns::enter_new().context("this guest gets no network namespace")?;
            Interfaces::of(None)?.set_up("lo", true)?;
            let mac = mac.parse().ok().with_context(|| format!("{mac} is no Ethernet address"))?;
            Ok(Some((*ip, mac)))
        }
        NetNamespace::Alone => {
            netns::enter_new().context("this guest gets no network namespace")?;
            Interfaces::of(None)?.set_up("lo", true)?;
            Ok(None)
        }
        NetNamespace::Of(pid) => netns::enter_that_of(*pid).map(|()| None),
    }
}

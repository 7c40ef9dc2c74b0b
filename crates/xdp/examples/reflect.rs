//! Sends every frame back to its sender, bypassing the kernel's stack.
//!
//! usage: reflect INTERFACE [ADDRESS[/VLAN] ...]
//!
//! With addresses, only frames for those are taken, and the host keeps the others. Prints the
//! kernel's counters each second. Needs root; a peer behind a veth needs `ethtool -K PEER tx off`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use guestmem::{Mapping, Pages, SharedFile};
use xdp::{
    Address, Chunks, Descriptor, Interface, Redirect, RedirectSpec, Socket, SocketSpec, Umem,
    ZeroCopy,
};

const RING: u32 = 2048;
const BURST: u32 = 64;

fn main() {
    if let Err(error) = run() {
        eprintln!("reflect: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: reflect INTERFACE [ADDRESS[/VLAN] ...]")?;
    let filter: Vec<Address> = args.map(|arg| address(&arg)).collect::<Result<_, _>>()?;
    let filter = (!filter.is_empty()).then_some(filter.as_slice());

    let interface = Interface::find(&name)?;
    println!("{interface:?}");
    let redirect = Redirect::attach(&interface, &RedirectSpec { filter, steered_from: None })?;
    println!("program: {:?}", redirect.driver());
    let bound = (0..interface.rx_queues).map(|queue| open(&interface, &redirect, queue));
    let mut sockets = bound.collect::<Result<Vec<_>, _>>()?;
    let mut report = Instant::now();
    loop {
        for (socket, inside) in &mut sockets {
            reflect(socket, inside)?;
        }
        if report.elapsed() > Duration::from_secs(1) {
            report = Instant::now();
            for (queue, (socket, _)) in sockets.iter().enumerate() {
                println!("queue {queue}: {:?}", socket.handle.statistics()?);
            }
        }
    }
}

/// A socket on `queue`, with half of its memory for received frames; and `true` if its next
/// descriptor continues a frame.
fn open(
    interface: &Interface,
    redirect: &Redirect,
    queue: u32,
) -> Result<(Socket, bool), Box<dyn std::error::Error>> {
    let chunks = Chunks { size: 4096, headroom: 0, unaligned: false };
    let size = u64::from(2 * RING) * u64::from(chunks.size);
    let file = SharedFile::create("frames", size, Pages::Ordinary)?;
    let umem = Umem::new(Arc::new(Mapping::new(file.fd(), size, 0)?), chunks)?;
    let fragments = interface.mtu + 18 > umem.room();
    let spec =
        SocketSpec { queue, ring: RING, zero_copy: ZeroCopy::Auto, fragments, busy_poll: None };
    let mut socket = Socket::bind(interface, umem, &spec)?;
    for chunk in 0..RING {
        socket.fill.put(socket.handle.umem().address(chunk));
    }
    socket.fill.submit();
    redirect.insert(queue, &socket.handle)?;
    println!("queue {queue}: zero-copy {}", socket.handle.is_zero_copy());
    Ok((socket, false))
}

/// One turn: reclaims sent frames, and sends the received ones back.
fn reflect(socket: &mut Socket, inside: &mut bool) -> Result<(), Box<dyn std::error::Error>> {
    let umem = socket.handle.umem();
    while let Some(sent) = socket.completion.take() {
        socket.fill.put(umem.chunk_of(sent));
    }
    socket.completion.release();
    socket.fill.submit();

    let room = socket.tx.reserve(BURST);
    for _ in 0..socket.rx.peek(room) {
        let Some(piece) = socket.rx.take() else { break };
        if !std::mem::replace(inside, piece.continues()) {
            turn_around(umem, &piece)?;
        }
        socket.tx.put(piece);
    }
    socket.rx.release();
    socket.tx.submit();
    if socket.tx.pending() > 0 && socket.tx.needs_wakeup() {
        socket.handle.wake_tx()?;
    }
    if socket.fill.needs_wakeup() {
        socket.handle.wake_rx()?;
    }
    Ok(())
}

/// Swaps the two addresses of a frame.
fn turn_around(umem: &Umem, piece: &Descriptor) -> Result<(), &'static str> {
    let frame = umem.frame(piece).ok_or("a frame outside of the memory")?;
    if frame.len() >= 12 {
        let (to, from) = (frame.read::<6>(0), frame.read::<6>(6));
        frame.write(0, from);
        frame.write(6, to);
    }
    Ok(())
}

fn address(text: &str) -> Result<Address, String> {
    let wrong = || format!("{text:?} is no ADDRESS[/VLAN]: 02:00:00:00:00:01/7");
    let (mac, vlan) = text.split_once('/').unwrap_or((text, "0"));
    let bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| wrong())?;
    let mac = bytes.try_into().map_err(|_| wrong())?;
    Ok(Address { mac, vlan: vlan.parse().map_err(|_| wrong())? })
}

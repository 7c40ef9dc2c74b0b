//! The kernel's side of a socket, for tests: rings and a memory, without a socket or interface.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use guestmem::{Mapping, Pages, SharedFile};

use crate::handle::SocketHandle;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::placer::Placer;
use crate::ring::kit::{other_end, ring};
use crate::ring::{Consumer, Descriptor, Producer};
use crate::socket::Socket;
use crate::umem::{Chunks, Umem};

/// Bytes of a chunk.
const CHUNK: u32 = 2048;

/// Simulates the kernel's side of a socket: receives and sends frames.
#[derive(Debug)]
pub struct SimulatedKernel {
    rx: Producer<Descriptor>,
    fill: Consumer<u64>,
    tx: Consumer<Descriptor>,
    completion: Producer<u64>,
    handle: Arc<SocketHandle>,
    /// Chunks for received frames.
    chunks: VecDeque<u64>,
}

/// A handle of a memory of `chunks` chunks, without a socket.
pub(crate) fn handle(chunks: u64) -> Arc<SocketHandle> {
    over(memory(chunks), false)
}

/// As [`handle`], with unaligned chunks.
#[cfg(test)]
pub(crate) fn unaligned_handle(chunks: u64) -> Arc<SocketHandle> {
    over(memory(chunks), true)
}

fn memory(chunks: u64) -> Arc<Mapping> {
    let bytes = chunks * u64::from(CHUNK);
    let file = SharedFile::create("frames", bytes, Pages::Ordinary).expect("a little memory");
    Arc::new(Mapping::new(file.fd(), bytes, 0).expect("a little memory"))
}

/// A handle of a memory.
fn over(memory: Arc<Mapping>, unaligned: bool) -> Arc<SocketHandle> {
    let cut = Chunks { size: CHUNK, headroom: 0, unaligned };
    let umem = Umem::new(memory, cut).expect("a memory as it must be");
    // A descriptor that never becomes ready.
    let fd = UnixDatagram::unbound().expect("a descriptor").into();
    Arc::new(SocketHandle { fd, umem, zero_copy: false, fragments: true })
}

/// As [`wire`], over the given memory, for frames of at most `longest` bytes behind `header`.
pub fn placing(
    memory: Arc<Mapping>,
    size: u32,
    (header, longest): (u32, u32),
) -> (SimulatedKernel, Placer) {
    let (wire, socket) = ends(size, over(memory, true));
    (wire, Placer::new(socket, header, longest))
}

/// A socket in two halves whose rings have `size` entries, with a memory of twice as many chunks,
/// of which `spare` are for [`Inbound::append`]; and the kernel's side.
pub fn wire(size: u32, spare: u32) -> (SimulatedKernel, Inbound, Outbound) {
    let (wire, socket) = ends(size, handle(u64::from(2 * size)));
    let (inbound, outbound) = socket.split(spare);
    (wire, inbound, outbound)
}

/// Both sides of a socket.
fn ends(size: u32, handle: Arc<SocketHandle>) -> (SimulatedKernel, Socket) {
    let (fill, rx, tx, completion) = (ring(size), ring(size), ring(size), ring(size));
    let wire = SimulatedKernel {
        rx: Producer::over(other_end(&rx)),
        fill: Consumer::over(other_end(&fill)),
        tx: Consumer::over(other_end(&tx)),
        completion: Producer::over(other_end(&completion)),
        handle: handle.clone(),
        chunks: VecDeque::new(),
    };
    let socket = Socket {
        fill: Producer::over(fill),
        rx: Consumer::over(rx),
        tx: Producer::over(tx),
        completion: Consumer::over(completion),
        handle,
    };
    (wire, socket)
}

impl SimulatedKernel {
    /// Receives a frame; returns `false` without a free chunk.
    pub fn receive(&mut self, frame: &[u8]) -> bool {
        self.chunks.extend(std::iter::from_fn(|| self.fill.take()));
        self.fill.release();
        let umem = self.handle.umem();
        let mut pieces = frame.chunks(umem.room() as usize).peekable();
        if self.chunks.len() < pieces.len() {
            return false;
        }
        while let Some(bytes) = pieces.next() {
            let len = bytes.len() as u32;
            let options = if pieces.peek().is_some() { Descriptor::CONTINUES } else { 0 };
            let chunk = self.chunks.pop_front().expect("counted before");
            let lead = u64::from(umem.chunks().size - umem.room());
            let addr = if umem.chunks().unaligned { chunk | lead << 48 } else { chunk + lead };
            let descriptor = Descriptor { addr, len, options };
            let room = umem.frame(&descriptor).expect("a chunk of the memory");
            room.write_bytes(bytes);
            assert!(self.rx.put(descriptor), "no more chunks than entries");
        }
        self.rx.submit();
        true
    }

    /// Frames sent since the last call.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        while let Some(piece) = self.tx.take() {
            let mut bytes = vec![0; piece.len as usize];
            let slice = self.handle.umem().frame(&piece).expect("a piece of the memory");
            slice.read_bytes(&mut bytes);
            frame.append(&mut bytes);
            assert!(self.completion.put(piece.addr), "no more chunks than entries");
            if !piece.continues() {
                frames.push(std::mem::take(&mut frame));
            }
        }
        assert!(frame.is_empty(), "a frame without an end");
        self.tx.release();
        self.completion.submit();
        frames
    }
}

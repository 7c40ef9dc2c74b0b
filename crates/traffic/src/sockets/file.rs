//! File copies over TCP: one end sends the same file to several clients, from a common start.
//!
//! The server keeps the file in memory (a memfd of random bytes) and sends it with sendfile(2), one
//! thread per client. It sends [`Event::Begin`] once all clients are connected, starts at the next
//! line from its parent, and sends [`Event::Served`]. A client reads to the end of its connection,
//! computes a checksum, and sends [`Event::Fetched`]. Both then stay until they are killed: a guest
//! that ends removes its tap, which would disturb copies still running.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};
use report::statistics::random::Random;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::common::{PATIENCE, PORT};
use super::stream::{accept, connect};
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::sockets::{Fetched, Served, SocketLoad};

/// Bytes that are generated at once: a multiple of [`BLOCK`].
const CHUNK: usize = 128 << 10;
/// Bytes per step of the checksum.
const BLOCK: usize = 32;
/// Seed of the content, which is the same in every run.
const SEED: u64 = 2012;

/// The file that a server sends.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: File,
    bytes: u64,
    checksum: u64,
}

impl SharedFile {
    /// Makes a file of `mib` MiB of random bytes in memory.
    pub(super) fn random(mib: u32) -> Result<SharedFile> {
        ensure!(mib > 0, "a file has at least 1 MiB");
        let mut file = File::from(memfd_create("shunt-lab-file", MemfdFlags::CLOEXEC)?);
        let bytes = u64::from(mib) << 20;
        let (mut random, mut checksum) = (Random::new(SEED), Checksum::default());
        let mut chunk = vec![0; CHUNK];
        for _ in 0..bytes / CHUNK as u64 {
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&random.bits().to_le_bytes());
            }
            checksum.update(&chunk);
            file.write_all(&chunk).with_context(|| format!("no memory for {mib} MiB"))?;
        }
        Ok(SharedFile { file, bytes, checksum: checksum.finish() })
    }

    /// Sends the whole file, `chunk` bytes per call.
    fn send(&self, to: &TcpStream, chunk: usize) -> Result<()> {
        let mut offset = 0;
        while offset < self.bytes {
            match sendfile(to, &self.file, Some(&mut offset), chunk) {
                Ok(1..) | Err(Errno::INTR) => {}
                Ok(0) => anyhow::bail!("the file ends after {offset} of {} bytes", self.bytes),
                Err(error) => return Err(error).context("a client does not take the file"),
            }
        }
        Ok(to.shutdown(Shutdown::Write)?)
    }
}

/// Sends the file to one client per stream, with a common start.
pub(super) fn serve(file: &SharedFile, load: &SocketLoad) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot listen")?;
    let clients = accept(&listener, load.streams)?;
    for client in &clients {
        client.set_write_timeout(Some(PATIENCE))?;
    }
    send_event(&Event::Begin)?;
    wait_for_parent()?;
    let started_ns = nanoseconds(ClockId::Monotonic);
    std::thread::scope(|scope| {
        let send = |client| scope.spawn(move || file.send(client, load.bytes as usize));
        let threads: Vec<_> = clients.iter().map(send).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    send_event(&Event::Served(Served { started_ns, checksum: file.checksum }))?;
    stay()
}

/// Receives the file from a server.
pub(super) fn fetch(from: Ipv4Addr, load: &SocketLoad) -> Result<()> {
    let size = load.bytes as usize;
    ensure!(size > 0 && size.is_multiple_of(BLOCK), "reads are multiples of {BLOCK} bytes");
    let mut stream = connect(from, load)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; size];
    let cpu_before = nanoseconds(ClockId::ProcessCPUTime);
    let (bytes, checksum) = receive(&mut stream, &mut buffer)?;
    let ended_ns = nanoseconds(ClockId::Monotonic);
    let cpu_s = (nanoseconds(ClockId::ProcessCPUTime) - cpu_before) as f64 / 1e9;
    send_event(&Event::Fetched(Fetched { ended_ns, bytes, checksum, cpu_s }))?;
    stay()
}

/// Reads to the end, through a buffer that is filled before each checksum step.
fn receive(from: &mut impl Read, buffer: &mut [u8]) -> Result<(u64, u64)> {
    let (mut bytes, mut checksum, mut filled) = (0, Checksum::default(), 0);
    loop {
        match from.read(&mut buffer[filled..]).context("the server sends nothing")? {
            0 => break,
            n => (bytes, filled) = (bytes + n as u64, filled + n),
        }
        if filled == buffer.len() {
            checksum.update(buffer);
            filled = 0;
        }
    }
    checksum.update(&buffer[..filled]);
    Ok((bytes, checksum.finish()))
}

/// Waits to be killed.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

/// A 64-bit checksum that detects changed, missing and swapped bytes; not cryptographic. Four
/// independent accumulators hide the latency of the multiplication.
#[derive(Clone, Debug, Default)]
struct Checksum {
    parts: [u64; BLOCK / 8],
    bytes: u64,
}

impl Checksum {
    /// Odd, so that multiplication loses no bit (the golden ratio's fraction).
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Adds bytes. All calls but the last must pass a multiple of [`BLOCK`].
    fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            self.block(block);
        }
        if !rest.is_empty() {
            let mut block = [0; BLOCK];
            block[..rest.len()].copy_from_slice(rest);
            self.block(&block);
        }
    }

    fn block(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (part, word) in self.parts.iter_mut().zip(words) {
            *part = mixed(*part, u64::from_le_bytes(*word));
        }
    }

    fn finish(&self) -> u64 {
        self.parts.iter().fold(self.bytes, |sum, part| mixed(sum, *part))
    }
}

fn mixed(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(25) ^ word).wrapping_mul(Checksum::FACTOR)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn checksum(bytes: &[u8]) -> u64 {
        let mut checksum = Checksum::default();
        checksum.update(bytes);
        checksum.finish()
    }

    #[test]
    fn what_changes_the_content_changes_the_checksum() {
        let bytes: Vec<u8> = (0..200).collect();
        let whole = checksum(&bytes);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x80;
            assert_ne!(checksum(&changed), whole, "byte {at}");
            assert_ne!(checksum(&bytes[..at]), whole, "cut after {at} bytes");
        }
        let swapped = [&bytes[32..64], &bytes[..32], &bytes[64..]].concat();
        assert_ne!(checksum(&swapped), whole);
        assert_ne!(checksum(&[&bytes[..], &[0]].concat()), whole, "the length counts");
    }

    #[test]
    fn what_comes_in_pieces_is_the_file() {
        /// Yields 1, 2, 3 ... bytes at a time.
        struct Pieces(Cursor<Vec<u8>>, usize);
        impl Read for Pieces {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.1 += 1;
                let size = self.1.min(buffer.len());
                self.0.read(&mut buffer[..size])
            }
        }
        let shared = SharedFile::random(1).unwrap();
        let mut bytes = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&shared.file, &mut bytes, 0).unwrap();
        let mut pieces = Pieces(Cursor::new(bytes.clone()), 0);
        let received = receive(&mut pieces, &mut vec![0; 4096]).unwrap();
        assert_eq!(received, (1 << 20, shared.checksum));
        let short = receive(&mut &bytes[..1000], &mut vec![0; 4096]).unwrap();
        assert_eq!(short.0, 1000);
        assert_ne!(short.1, shared.checksum);
    }
}

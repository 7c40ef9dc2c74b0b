//! TCP bulk traffic: one thread per connection at both ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt;

use super::common::{PATIENCE, PORT, measured, patiently, payload, set_buffers};
use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::sockets::{BulkResult, RunTimes, SocketLoad};

/// Bytes per read.
const READ: usize = 128 << 10;

/// Connects, and writes until this process is killed or the other end closes.
pub(super) fn send(to: Ipv4Addr, load: &SocketLoad) -> Result<()> {
    let mut threads = Vec::new();
    for _ in 0..load.streams {
        let mut stream = connect(to, load)?;
        let data = payload(load.bytes)?;
        threads.push(std::thread::spawn(move || while stream.write_all(&data).is_ok() {}));
    }
    for thread in threads {
        let _ = thread.join(); // the connection has ended
    }
    Ok(())
}

/// Connects. Buffers are set before: they determine the offered window.
pub(super) fn connect(to: Ipv4Addr, load: &SocketLoad) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType, connect, socket_with};
    let what = format!("cannot connect to {to}");
    patiently(&what, || -> rustix::io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // The receiver sets the same size and reports a failure.
        let _ = set_buffers(&socket, load.buffer);
        connect(&socket, &SocketAddrV4::new(to, PORT))?;
        Ok(socket.into())
    })
}

/// Accepts the connections, and measures.
pub(super) fn receive(load: &SocketLoad, times: &RunTimes) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot listen")?;
    set_buffers(&listener, load.buffer)?;
    let streams = accept(&listener, load.streams)?;
    let one = streams[0].try_clone()?;
    let counts: Vec<Arc<AtomicU64>> = streams.into_iter().map(counted).collect();
    let all = || counts.iter().map(|count| count.load(Ordering::Relaxed));
    patiently("not every stream has begun", || match all().all(|bytes| bytes > 0) {
        true => Ok(()),
        false => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
    })?;
    let (seconds, [before], [after]) = measured(times, || [all().sum::<u64>()])?;
    let buffer = sockopt::socket_recv_buffer_size(&one)? as u64;
    let bytes = after - before;
    send_event(&Event::Received(BulkResult { seconds, bytes, buffer, ..BulkResult::default() }))
}

/// Accepts `streams` connections.
pub(super) fn accept(listener: &TcpListener, streams: u32) -> Result<Vec<TcpStream>> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + PATIENCE;
    let mut accepted = Vec::new();
    while accepted.len() < streams as usize {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                accepted.push(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if Instant::now() > end {
                    bail!("only {} of {streams} connections came", accepted.len());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error).context("cannot take a connection in"),
        }
    }
    Ok(accepted)
}

/// Reads a connection to its end in its own thread, and counts the bytes.
fn counted(mut stream: TcpStream) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counting = count.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            counting.fetch_add(n as u64, Ordering::Relaxed);
        }
    });
    count
}

//! UDP bulk traffic: numbered datagrams as fast as the socket takes them.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt;

use super::common::{PATIENCE, PORT, measured, patiently, payload, set_buffers};
use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::sockets::{BulkResult, RunTimes, SocketLoad};

/// Bytes of the number at the start of a datagram.
const NUMBER: usize = 8;

/// Sends until this process is killed. Datagrams that the socket rejects do not count.
pub(super) fn send(to: Ipv4Addr, load: &SocketLoad) -> Result<()> {
    ensure!(load.bytes as usize >= NUMBER, "datagrams begin with {NUMBER} bytes of number");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a socket")?;
    set_buffers(&socket, load.buffer)?;
    patiently(&format!("cannot reach {to}"), || socket.connect((to, PORT)))?;
    let mut data = payload(load.bytes)?;
    let mut number = 0u64;
    loop {
        data[..NUMBER].copy_from_slice(&number.to_be_bytes());
        // Rejected while the receiver is not there yet, or the queue is full.
        number += u64::from(socket.send(&data).is_ok());
    }
}

/// Totals, and the highest number.
#[derive(Debug, Default)]
struct ReceivedTotals {
    bytes: AtomicU64,
    datagrams: AtomicU64,
    highest: AtomicU64,
}

impl ReceivedTotals {
    fn read(&self) -> [u64; 3] {
        [&self.bytes, &self.datagrams, &self.highest].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Receives, and measures from the first datagram on.
pub(super) fn receive(load: &SocketLoad, times: &RunTimes) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot open a socket")?;
    set_buffers(&socket, load.buffer)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut first = vec![0; load.bytes as usize];
    socket.recv(&mut first).context("no datagram came")?;
    let buffer = sockopt::socket_recv_buffer_size(&socket)? as u64;
    let seen = Arc::new(ReceivedTotals::default());
    let seeing = seen.clone();
    std::thread::spawn(move || count(&socket, &seeing, first));
    let (seconds, before, after) = measured(times, || seen.read())?;
    let [bytes, datagrams, sent] = [0, 1, 2].map(|i| after[i] - before[i]);
    send_event(&Event::Received(BulkResult { seconds, bytes, datagrams, sent, buffer }))
}

fn count(socket: &UdpSocket, seen: &ReceivedTotals, mut data: Vec<u8>) {
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    loop {
        let Ok(n) = socket.recv(&mut data) else { continue };
        seen.bytes.fetch_add(n as u64, Ordering::Relaxed);
        seen.datagrams.fetch_add(1, Ordering::Relaxed);
        if let Some(number) = data[..n].first_chunk::<NUMBER>() {
            seen.highest.fetch_max(u64::from_be_bytes(*number), Ordering::Relaxed);
        }
    }
}

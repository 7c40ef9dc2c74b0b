//! UDP request and response: one datagram in flight, and its round-trip time.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::common::{PATIENCE, PORT, patiently, payload};
use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::sockets::{RoundTripResult, RunTimes, SocketLoad};

/// Longest wait for an answer; a later one is lost.
const LOST: Duration = Duration::from_millis(250);
/// Bytes of the number at the start of a datagram.
const NUMBER: usize = 8;
/// Longest recorded round trip: ten seconds.
const MAX_NS: u64 = 10_000_000_000;

/// Sends requests, and measures.
pub(super) fn ask(to: Ipv4Addr, load: &SocketLoad, times: &RunTimes) -> Result<()> {
    ensure!(load.bytes as usize >= NUMBER, "requests begin with {NUMBER} bytes of number");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a socket")?;
    patiently(&format!("cannot reach {to}"), || socket.connect((to, PORT)))?;
    socket.set_read_timeout(Some(LOST))?;
    let mut client = Client { socket, data: payload(load.bytes)?, number: 0 };
    let end = Instant::now() + PATIENCE;
    while client.ask().is_none() {
        ensure!(Instant::now() < end, "{to} does not answer");
    }
    client.ask_for(times.warmup_s)?;
    send_event(&Event::Begin)?;
    let asked = client.ask_for(times.seconds)?;
    send_event(&Event::End)?;
    client.ask_for(times.cooldown_s)?;
    send_event(&Event::Asked(asked))
}

struct Client {
    socket: UdpSocket,
    data: Vec<u8>,
    number: u64,
}

impl Client {
    /// Sends one request; returns its round-trip time in nanoseconds, if it was answered.
    fn ask(&mut self) -> Option<u64> {
        self.number += 1;
        let number = self.number.to_be_bytes();
        self.data[..NUMBER].copy_from_slice(&number);
        let start = Instant::now();
        if self.socket.send(&self.data).is_err() {
            std::thread::sleep(Duration::from_millis(5)); // the other end is not ready yet
            return None;
        }
        let mut answer = [0; NUMBER];
        loop {
            // An answer to an earlier request is late.
            self.socket.recv(&mut answer).ok()?;
            if answer == number {
                return Some(start.elapsed().as_nanos() as u64);
            }
        }
    }

    fn ask_for(&mut self, seconds: f64) -> Result<RoundTripResult> {
        let mut trips = Histogram::<u64>::new_with_max(MAX_NS, 3).context("no histogram")?;
        let (start, mut lost) = (Instant::now(), 0);
        let elapsed = loop {
            match self.ask() {
                Some(ns) => trips.saturating_record(ns),
                None => lost += 1,
            }
            let elapsed = start.elapsed().as_secs_f64();
            if elapsed >= seconds {
                break elapsed;
            }
        };
        let us = |quantile: f64| trips.value_at_quantile(quantile) as f64 / 1e3;
        Ok(RoundTripResult {
            seconds: elapsed,
            answered: trips.len(),
            lost,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: trips.max() as f64 / 1e3,
        })
    }
}

/// Returns each datagram to its sender.
pub(super) fn answer(load: &SocketLoad) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot open a socket")?;
    let mut data = payload(load.bytes)?;
    loop {
        if let Ok((n, from)) = socket.recv_from(&mut data) {
            let _ = socket.send_to(&data[..n], from); // may be lost, as any datagram
        }
    }
}

//! UDP request and response: one datagram in flight, and how long each takes there and back.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{Load, PATIENCE, PORT, Times, patiently, payload};
use crate::{Event, say};

/// An answer that has not come by then is lost.
const LOST: Duration = Duration::from_millis(250);
/// Bytes of the number at a datagram's beginning.
const NUMBER: usize = 8;
/// Round trips are recorded up to ten seconds.
const MAX_NS: u64 = 10_000_000_000;

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests without an answer within 250 ms.
    pub lost: u64,
    /// Half of the round trips took at most so many microseconds.
    pub p50_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// 99.9 % of them.
    pub p999_us: f64,
    /// The longest one.
    pub max_us: f64,
}

/// Asks and asks, and measures.
pub(super) fn ask(to: Ipv4Addr, load: &Load, times: &Times) -> Result<()> {
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
    say(&Event::Begin)?;
    let asked = client.ask_for(times.seconds)?;
    say(&Event::End)?;
    client.ask_for(times.cooldown_s)?;
    say(&Event::Asked(asked))
}

struct Client {
    socket: UdpSocket,
    data: Vec<u8>,
    number: u64,
}

impl Client {
    /// One request; nanoseconds until its answer came, if it came.
    fn ask(&mut self) -> Option<u64> {
        self.number += 1;
        let number = self.number.to_be_bytes();
        self.data[..NUMBER].copy_from_slice(&number);
        let start = Instant::now();
        if self.socket.send(&self.data).is_err() {
            std::thread::sleep(Duration::from_millis(5)); // the other end is not there yet
            return None;
        }
        let mut answer = [0; NUMBER];
        loop {
            // What belongs to an earlier request came too late.
            self.socket.recv(&mut answer).ok()?;
            if answer == number {
                return Some(start.elapsed().as_nanos() as u64);
            }
        }
    }

    fn ask_for(&mut self, seconds: f64) -> Result<Asked> {
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
        Ok(Asked {
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

/// Sends each datagram back to where it came from.
pub(super) fn answer(load: &Load) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot open a socket")?;
    let mut data = payload(load.bytes)?;
    loop {
        if let Ok((n, from)) = socket.recv_from(&mut data) {
            let _ = socket.send_to(&data[..n], from); // lost, as any datagram may be
        }
    }
}

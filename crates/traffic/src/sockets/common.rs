//! Constants and helpers of both ends.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt;

use crate::parent::send_event;
use crate::protocol::Event;
use crate::protocol::sockets::RunTimes;

/// Port of receivers and responders.
pub(super) const PORT: u16 = 5001;

/// Longest wait for the other end to be reachable.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for the warm-up, then measures: `count` reads the received totals, bytes first. Traffic
/// that stalls for the whole time, such as TCP after a loss, gets more time.
pub(super) fn measured<const N: usize>(
    times: &RunTimes,
    count: impl Fn() -> [u64; N],
) -> Result<(f64, [u64; N], [u64; N])> {
    let rest = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds));
    rest(times.warmup_s);
    send_event(&Event::Begin)?;
    let start = Instant::now();
    let before = count();
    rest(times.seconds);
    while count()[0] == before[0] && start.elapsed() < PATIENCE {
        rest(0.01);
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), count());
    send_event(&Event::End)?;
    rest(times.cooldown_s);
    Ok((seconds, before, after))
}

/// Requests buffers of that size. Only root may exceed the limits `net.core.rmem_max` and
/// `wmem_max`.
pub(super) fn set_buffers(socket: impl AsFd, bytes: Option<u32>) -> Result<()> {
    let Some(bytes) = bytes.map(|bytes| bytes as usize) else { return Ok(()) };
    if sockopt::set_socket_send_buffer_size_force(&socket, bytes).is_err() {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if sockopt::set_socket_recv_buffer_size_force(&socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    Ok(())
}

/// Retries until success or timeout.
pub(super) fn patiently<T, E: std::error::Error + Send + Sync + 'static>(
    what: &str,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > end => return Err(error).context(what.to_owned()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A buffer to send from, of constant bytes.
pub(super) fn payload(bytes: u32) -> Result<Vec<u8>> {
    ensure!(bytes > 0, "a write has at least one byte");
    Ok(vec![0x5b; bytes as usize])
}

//! Thread that only sleeps on an eventfd, as a lane does.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use host::tsc;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

/// The thread; it ends with the process.
#[derive(Debug)]
pub(super) struct Floor {
    kick: Arc<OwnedFd>,
    /// Time of its last wake-up, in time-stamp cycles; 0 once read.
    awake: Arc<AtomicU64>,
}

impl Floor {
    /// Starts the thread on `cpu`.
    pub(super) fn start(cpu: Option<usize>) -> Result<Floor> {
        let kick = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &kick, epoll::EventData::new_u64(0), flags)?;
        let awake = Arc::new(AtomicU64::new(0));
        let (watched, told) = (kick.clone(), awake.clone());
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("floor".into()).spawn(move || {
            let _watched = watched;
            let _ = said.send(cpu.map_or(Ok(()), host::cpu::pin_this_thread));
            let data = epoll::EventData::new_u64(0);
            let mut events = [epoll::Event { flags, data }; 1];
            loop {
                match epoll::wait(&epoll, &mut events[..], None) {
                    Ok(_) => told.store(tsc::now(), Ordering::Release),
                    Err(Errno::INTR) => {} // a signal, not a kick
                    Err(_) => return,
                }
            }
        })?;
        heard.recv()??;
        Ok(Floor { kick, awake })
    }

    /// Wakes the thread.
    pub(super) fn kick(&self) {
        // a full counter is already signalled
        let _ = rustix::io::write(&*self.kick, &1u64.to_ne_bytes());
    }

    /// Time of the wake-up, if there was one since the last call.
    pub(super) fn woken(&self) -> Option<u64> {
        match self.awake.swap(0, Ordering::AcqRel) {
            0 => None,
            at => Some(at),
        }
    }
}
